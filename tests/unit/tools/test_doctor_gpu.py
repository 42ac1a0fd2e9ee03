"""``doctor --gpu`` on a machine without one: the checks on the CPU, and what it says of GPUs that are stood in for."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pipeline_src import __main__ as command
from pipeline_src.params.machine import Machine, PretrainingMachine
from pipeline_src.params.study import load_study
from pipeline_src.tools.doctor import accelerator as what_is_here
from pipeline_src.tools.doctor import kernels, needs, processes, rates, trial
from pipeline_src.tools.doctor.accelerator import Accelerator
from pipeline_src.tools.doctor.finding import OK, PROBLEM, WARNING, Finding
from pipeline_src.training.datasheet import DATASHEET, Chip

SLOW, FAST = Chip(1e-4, 1e-3, 1), Chip(1e6, 1e9, 1)  # chips that this CPU is faster, and slower than
CHECKS = (
    *("versions", "device", "product", "attention", "optimiser", "compile", "product rate", "feed-forward"),
    *("memory rate", "attention", "attention", "all-reduce", "loader", "disk rate", "gpu memory", "step"),
)


@pytest.fixture
def project(tmp_path, monkeypatch, root):
    """A folder with a study's parameters alone."""
    shutil.copy(root / "workflow/presets/test.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    return tmp_path


@pytest.fixture
def cpu(project):
    return Accelerator(torch.device("cpu"), None, load_study(), Machine())


@pytest.fixture
def h100(cpu, monkeypatch):
    """What torch would say of two H100s; nothing can be computed on them."""
    known = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=80 << 30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: known)
    return replace(cpu, device=torch.device("cuda", 0), chip=DATASHEET["H100"])


def test_on_a_cpu_all_of_it_runs_and_says_so(project, capsys):
    assert command.main(["doctor", "--gpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [line for line in lines if line[:8].strip() in (OK, WARNING, PROBLEM) and not line.startswith("ok:")]
    assert [line[9:22].strip() for line in starts] == list(CHECKS)
    assert [line[9:15] for line in starts if not line.startswith("ok ")] == ["device"]
    said = " ".join(" ".join(lines).split())
    assert "no GPU" in said and "figures below are of the CPU" in said and "srun --gres gpu:1" in said
    assert "nothing is expected of them" in said and "no GPU, so nothing is expected" in said
    assert ("TORCH=installed" in said) == (torch.version.cuda is None)  # a job would not help
    assert "gloo, 2 processes, 4 MB" in said and "made-up pairs" in said and f"torch {torch.__version__}" in said
    for check, unit in {
        "product rate": "FLOP/s",
        "memory rate": "B/s",
        "all-reduce": "B/s",
        "disk rate": "MB/s",
    }.items():
        assert any(check in line and unit in line for line in starts), check
    assert all(len(line) <= 80 for line in lines)
    assert not list(project.glob(".doctor-*"))


@pytest.mark.parametrize(("chip", "state"), [(SLOW, OK), (FAST, WARNING)])
def test_every_rate_stands_beside_what_the_roofline_model_expects(cpu, chip, state):
    cpu = replace(cpu, chip=chip)
    found = [*rates.products(cpu), rates.memory_rate(cpu), *rates.attention_rates(cpu)]
    assert [finding.state for finding in found] == [state] * 5
    assert all("expected" in finding.found for finding in found)
    assert all((finding.remedy is None) == (state == OK) for finding in found)


def test_a_step_is_expected_to_take_what_the_roofline_model_says(h100, root):
    base = replace(h100, study=load_study(root / "workflow/presets/bert-base.yaml"))
    found = rates.step(base, 1).found
    assert "1 x 28,180 tokens" in found and "MFU 38%" in found and "benchmarks.pretrain_step" in found
    assert "8 x 3,523 tokens" in rates.step(base, 8).found


def test_a_kernel_that_does_not_run_is_a_problem_and_nothing_is_timed(cpu, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no kernel image is available\nCUDA kernel errors might be asynchronous")

    monkeypatch.setattr(kernels, "attention", refuse)
    found = {finding.check: finding for finding in trial.run(cpu)}
    assert found["attention"].state == PROBLEM and "RuntimeError: no kernel image" in found["attention"].found
    assert "asynchronous" not in found["attention"].found and found["attention"].remedy
    assert "product rate" not in found and found["product"].state == OK


def test_a_kernel_that_computes_something_else_is_a_problem(cpu, monkeypatch):
    attention = kernels.attention

    def wrong(*arguments, **more):
        return attention(*arguments, **more) * (1 if more.get("back_end") == "padded" else 1.1)

    monkeypatch.setattr(kernels, "attention", wrong)
    found = kernels.attention_kernel(cpu)
    assert found.state == PROBLEM and "10.0% from what it should give" in found.found


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import time; time.sleep(60)", "no answer in"),
        ("import sys; sys.exit('NCCL error: unhandled system error')", "unhandled system error"),
    ],
    ids=["hangs", "fails"],
)
def test_processes_that_hang_or_fail(h100, monkeypatch, program, said):
    started = []

    def start(count):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.extend(subprocess.Popen([sys.executable, "-S", "-c", program], **pipes) for _ in range(count))
        return started

    monkeypatch.setattr(processes, "_start", start)
    monkeypatch.setattr(processes, "WITHIN", 0.3 if "sleep" in program else 20)
    found = processes.over_processes(h100)
    assert found.state == PROBLEM and said in found.found and "NCCL_DEBUG" in found.remedy
    assert len(started) == 2 and all(process.poll() is not None for process in started)


def test_sums_slower_than_the_links_are_told(h100, monkeypatch):
    took = {"backend": "nccl", "bytes": 1 << 28, "bus": 20e9}
    program = f"print({json.dumps(json.dumps(took))})"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    monkeypatch.setattr(
        processes,
        "_start",
        lambda count: [subprocess.Popen([sys.executable, "-S", "-c", program], **pipes) for _ in range(count)],
    )
    found = processes.over_processes(h100)
    assert found.state == WARNING and "20.0 GB/s; expected 360 GB/s, this is 6%" in found.found
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert processes.over_processes(h100).found == "one GPU: nothing to sum over"


def test_gpus_by_name_with_what_their_driver_says(h100, tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '570.86.15, 700.00 W, 1980 MHz, 31, 0 %, P0'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = what_is_here.devices(h100)
    assert found.state == OK and "2 x NVIDIA H100 80GB HBM3, 80 GiB, sm_90" in found.found
    assert "driver version 570.86.15" in found.found and "power limit 700.00 W" in found.found
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert "driver" not in what_is_here.devices(h100).found
    unlisted = what_is_here.devices(replace(h100, chip=None))
    assert unlisted.state == WARNING and "datasheet" in unlisted.remedy


def test_memory_too_small_for_a_step_is_told(h100, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 << 30, 80 << 30))
    assert rates.gpu_memory(h100).state == OK and "70.0 of 80.0 GiB free" in rates.gpu_memory(h100).found
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 28, 80 << 30))
    assert rates.gpu_memory(h100).state == WARNING and "max_tokens" in rates.gpu_memory(h100).remedy


@pytest.mark.parametrize(
    ("model", "tokens", "recompute", "gigabytes"),
    [
        ({}, 16_384, False, 8.8),
        ({}, 65_536, False, 28.7),
        ({}, 65_536, True, 7.2),
        ({"layers": 24, "hidden": 1024}, 16_384, False, 21.1),
        ({"layers": 24, "hidden": 1024}, 65_536, False, 71.0),
        ({"layers": 24, "hidden": 1024}, 65_536, True, 13.7),
    ],
)
def test_memory_of_a_step_is_what_torchs_allocator_took(root, model, tokens, recompute, gigabytes):
    """With a float32 residual stream; counted by torch's own allocator over kernels that compute nothing."""
    study = load_study(root / "workflow/presets/bert-base.yaml")
    study = study.model_copy(update={"model": study.model.model_copy(update=model)})
    machine = Machine(pretrain=PretrainingMachine(max_tokens=tokens, recompute=recompute))
    assert needs.gpu_memory(study, machine) / 2**30 == pytest.approx(gigabytes, rel=0.12)


def test_sharding_spreads_what_a_gpu_holds(root):
    study = load_study(root / "workflow/presets/bert-base.yaml")
    ways = {how: Machine(pretrain=PretrainingMachine(sharding=how)) for how in ("none", "optimiser", "full")}
    alone, eight = ({how: needs.gpu_memory(study, way, gpus) for how, way in ways.items()} for gpus in (1, 8))
    assert len(set(alone.values())) == 1 and eight["none"] == alone["none"]
    weights = needs.parameters(study)
    assert eight["none"] - eight["optimiser"] == pytest.approx((16 - 16 / 8 - 8) * weights, rel=0.02)
    assert eight["full"] < eight["optimiser"] - 8 * 0.5 * weights


def test_a_disk_that_takes_a_minute_for_a_checkpoint_is_told(cpu, monkeypatch):
    assert rates.disk_rate(cpu).state == OK
    monkeypatch.setattr(needs, "checkpoint", lambda study: 1e15)
    found = rates.disk_rate(cpu)
    assert found.state == WARNING and "PIPELINE_CHECKPOINT_MINUTES" in found.remedy
    assert "a checkpoint of 1,000 TB takes" in found.found


def test_a_loader_that_a_gpu_would_wait_for_is_told(cpu, monkeypatch):
    cpu = replace(cpu, chip=SLOW)
    monkeypatch.setattr(rates, "LOADED", 2)
    assert rates.loader(cpu, 1).state == OK and "needed for each GPU" in rates.loader(cpu, 1).found
    monkeypatch.setattr(rates, "AHEAD", 1e12)
    assert rates.loader(cpu, 1).state == WARNING and "pretrain.threads" in rates.loader(cpu, 1).remedy


def test_the_studys_own_examples_are_loaded_where_there_are_some(cpu, project):
    from pipeline_src.examples.build_examples import run as plan_examples
    from tests.unit.pretraining.small import EXAMPLES, make_study

    make_study(project)
    plan_examples(seed=1, examples=EXAMPLES)
    found = rates.loader(cpu, 1)
    assert found == Finding("loader", OK, found.found) and found.found.startswith("data/examples/short: ")
