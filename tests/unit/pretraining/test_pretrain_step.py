"""The benchmark of a training step by itself: what it prints on a CPU, and what it would make of a GPU's profile."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from benchmarks import pretrain_step
from benchmarks._pretrain_sides import Side, config_of, random_batches
from pipeline_src.training.throughput import Peak


def test_alone_it_prints_one_paste(monkeypatch, capsys):
    monkeypatch.setattr(pretrain_step, "peak_flops", lambda device, precision: Peak(1e12, "a test"))
    monkeypatch.setitem(pretrain_step.SETUPS["cpu"].sequences, "tiny", 4)
    pretrain_step.main(["--alone", "--size", "tiny", "--device", "cpu", "--steps", "2"])
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"torch {torch.__version__}, ") and lines[1].startswith("tiny: 4 sequences of up to 128")
    assert "tokens a second of CPU, " in lines[2] and "by the clock" in lines[2]
    assert "MFU is the share of 1 TFLOP/s (a test)" in lines[3] and "operator" in lines[4]
    assert "%  aten::mm" in lines[5] + lines[6]
    assert len(lines) == 5 + 5 and all("%  " in line for line in lines[5:])
    found = json.loads(last)["sizes"]["tiny"]
    (ours,) = found["sides"].values()
    flops = pretrain_step.mean_flops(config_of("tiny"), random_batches(128, 4, 6, torch.device("cpu")))
    assert ours["mfu"] == pytest.approx(ours["wall_tokens_per_s"] * flops / 1e12, abs=1e-4)
    assert ours["peak_mb"] > 50 and ours["compile_seconds"] == 0
    assert list(found["kernels"].values()) == sorted(found["kernels"].values(), reverse=True)
    assert 0.3 < sum(found["kernels"].values()) <= 1


def test_steps_that_compile_are_counted_apart(monkeypatch):
    """A side that compiles in its first step and once more later; the clock says which steps were slow."""
    layer = torch.compile(lambda rows: rows * 2, backend="eager", dynamic=True)
    sizes = iter((4, 4, 5, 1, 6, 7, 8, 9))
    seconds = {4: 2.0, 1: 50.0}  # by the size of the step's rows
    clock = SimpleNamespace(now=0.0)

    def step():
        size = next(sizes)
        layer(torch.zeros(size, 2))
        clock.now += seconds.get(size, 1.0)

    monkeypatch.setattr(pretrain_step, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setitem(pretrain_step.SIDES, "ours", lambda *_: Side(step, lambda batch: 1.0))
    setup = pretrain_step.SETUPS["cpu"]
    alone = pretrain_step.replace(setup, peers=(), times={}, sequences={"tiny": 2})
    row = pretrain_step.measure("tiny", 128, "cpu", 4, alone, text="random")["sides"]["ours"]
    assert row["compile_seconds"] == 52.0
    tokens = [batch.tokens for batch in random_batches(128, 2, 6, torch.device("cpu"))]
    assert row["wall_best_tokens_per_s"] == max(tokens[2], *tokens[4:])


def test_on_a_gpu_memory_and_compiling_are_shown():
    row = {"tokens_per_s": 700_000.0, "mfu": 0.3, "of_training_mb": 7_000, "compile_seconds": 54.0}
    result = {"sequences": 256, "length": 128, "fill": 0.86, "sides": {"ours": row}}
    result |= {"peak_flops": 989e12, "peak_source": "datasheet of H100", "kernels": {"gemm": 0.5}}
    text = pretrain_step.summary("base", result)
    assert "700,000 tokens a second, 7,000 MB, MFU 30.0%, 54 s of compiling not in it" in text
    assert "above 100 %" not in text
    row["mfu"] = 1.2
    assert "above 100 %" in pretrain_step.summary("base", result)


def test_without_a_gpu_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"built without CUDA; .*doctor"):
        monkeypatch.setattr(torch.version, "cuda", None)
        pretrain_step.main(["--device", "cuda"])
    with pytest.raises(SystemExit, match="no GPU answers"):
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        pretrain_step.main(["--device", "cuda"])


def test_of_a_gpu_kernels_alone_are_counted():
    def row(key, device, own):
        return SimpleNamespace(
            key=key, device_type=SimpleNamespace(name=device), self_device_time_total=own, self_cpu_time_total=1
        )

    rows = [row(f"kernel {number}", "CUDA", number) for number in range(1, 8)] + [row("aten::mm", "CPU", 99)]
    assert pretrain_step.shares(rows, "cuda") == {
        f"kernel {number}": round(number / 28, 3) for number in (7, 6, 5, 4, 3)
    }
    assert pretrain_step.shares(rows, "cpu") == {"aten::mm": 1}


def test_without_the_peer_it_says_what_goes_without(monkeypatch, capsys):
    monkeypatch.setattr(pretrain_step.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="--alone goes without"):
        pretrain_step.main(["--size", "tiny", "--device", "cpu"])
