"""The GPU benchmark, run on a CPU: time limit, failures, and resumption."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from benchmarks import _gpu_session, gpu
from benchmarks._gpu_session import Session, TimeOver, read_results
from benchmarks._gpu_steps import VARIANTS
from benchmarks._gpu_study import copy_study, kept_steps, planned_steps
from benchmarks.gpu import main
from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import load_study
from tests.studies import PRESETS, ROOT
from tests.unit.pretrain import small

SLEEPER = """
import signal, sys, time
from pathlib import Path
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path("started").touch()
time.sleep(600)
"""


def make_session(out: Path, seconds: float = 60.0) -> Session:
    return Session("rates", out, rehearsal=True, deadline=time.monotonic() + seconds)


def test_benchmark_gpu_rehearses_rates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--rehearse", "--out", str(tmp_path)]) == 0
    results = read_results(tmp_path)
    assert results["rehearsal"] and results["gpu"] is None and results["torch"] == torch.__version__
    cells = results["rates"]
    assert sorted(cells) == sorted(f"{shape}, {name}" for name, variant in VARIANTS.items() for shape in variant.shapes)
    for cell in cells.values():
        assert cell["steps_per_s"] > 0 and 0 < cell["mfu"] and cell["peak_mb"] > 50 and 0 < cell["mean_loss"] < 20
    lines = capfd.readouterr().out.splitlines()
    assert all(line.endswith("(rehearsal)") for line in lines[:-1]) and lines[-1].startswith("rates: complete after")


def test_session_failed_cell_is_recorded_and_measured_again(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    assert "ZeroDivisionError" in session.cell("one", lambda: {"figure": 1 // 0}, variant="eager")["error"]
    assert session.cell("one", lambda: {"figure": 1}, variant="eager") == {"variant": "eager", "figure": 1}
    assert session.cell("one", lambda: {"figure": 2})["figure"] == 1
    assert read_results(tmp_path) == {"rates": {"one": {"variant": "eager", "figure": 1}}}


@pytest.mark.parametrize("arguments", [[], ["deaf"]])
def test_session_run_is_stopped_when_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(_gpu_session, "GRACE_SECONDS", 0.2)
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    with pytest.raises(TimeOver):
        make_session(tmp_path, 0.5).run("sleeper", *arguments, cwd=tmp_path)
    assert (tmp_path / "started").exists()
    with pytest.raises(TimeOver):
        make_session(tmp_path, 0).run("sleeper", cwd=tmp_path)


@pytest.mark.parametrize(
    ("exit_call", "error"), [("sys.exit('no such shape')", RuntimeError), ("sys.exit(75)", TimeOver)]
)
def test_session_run_failure_and_stop_raise_different_errors(
    tmp_path: Path, exit_call: str, error: type[Exception]
) -> None:
    (tmp_path / "program.py").write_text(f"import sys\n{exit_call}")
    with pytest.raises(error, match="no such shape" if error is RuntimeError else None):
        make_session(tmp_path).run("program", cwd=tmp_path)


def test_benchmark_gpu_time_over_and_failed_cells_end_in_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pretraining(session: Session, variant: str) -> None:
        assert 0 < session.seconds_left <= 60 and variant == "eager"
        raise TimeOver

    def run(session: Session, *arguments: str) -> None:
        session.cell("mini, eager", lambda: {"figure": 1 // 0})

    monkeypatch.setattr(gpu, "pretraining", pretraining)
    monkeypatch.setattr(Session, "run", run)
    (tmp_path / "params.yaml").touch()
    options = ["--rehearse", "--out", str(tmp_path / "out"), "--study", str(tmp_path), "--minutes", "1"]
    assert main([*options, "--variant", "eager"]) == 1
    printed = capsys.readouterr().out
    assert "pretraining: time over" in printed and "rates: failed: mini, eager" in printed


def test_benchmark_gpu_without_gpu_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="no GPU answers"):
        main(["--out", str(tmp_path)])
    _gpu_session.write_results(tmp_path, {"rehearsal": True})
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path)])
    assert "has results of a rehearsal: name another folder" in capsys.readouterr().err


def test_copy_study_copies_training_inputs_and_keeps_existing_copy(tmp_path: Path) -> None:
    study, copy = tmp_path / "study", tmp_path / "copy"
    for name in ("data/tokens", "data/text", "models/pretrained"):
        (study / name).mkdir(parents=True)
    (study / "params.yaml").write_text("seed: 1\n")
    copy_study(study, copy)
    assert [path.name for path in (copy / "data").iterdir()] == ["tokens"] and not (copy / "models").exists()
    (copy / "params.yaml").write_text("seed: 2\n")
    copy_study(study, copy)
    assert (copy / "params.yaml").read_text() == "seed: 2\n"


def test_planned_steps_fit_into_time() -> None:
    phase1 = {"wall_seconds": 30.0, "training_seconds": 10.0, "steps_per_s": 20.0}
    assert planned_steps(phase1, 330.0) == round(0.93 * 300 * 20)
    assert planned_steps(phase1, 10.0) == 2  # never none


def test_models_are_kept_by_tokens_within_second_phase() -> None:
    assert kept_steps(tokens_per_step=1e5, first=600, last=5_000) == [1_000, 2_000]
    assert kept_steps(tokens_per_step=1e5, first=200, last=499) == []


def make_study(folder: Path) -> Path:
    """Write a study whose examples are planned. Its two phases have examples of one length."""
    folder.mkdir()
    params = yaml.safe_load(preset_text("test", PRESETS))
    params["examples"]["max_seq_length"] = {"phase1": 16, "phase2": 16}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    with contextlib.chdir(folder):
        small.make_study(folder)
        plan_examples(seed=1, examples=load_study().examples)
    return folder


@pytest.mark.slow
def test_pack_copies_study_and_trains_copy(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study, packed = make_study(tmp_path / "study"), tmp_path / "packed"
    assert main(["--study", str(study), "--pack", str(packed)]) == 0
    assert "MB, trained for a few steps" in capfd.readouterr().out
    assert (packed / "params.yaml").read_text() == (study / "params.yaml").read_text()
    assert not (packed / "models").exists()
    with pytest.raises(SystemExit):
        main(["--study", str(study), "--pack", str(packed)])


@pytest.mark.slow
def test_pack_of_study_that_does_not_train_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study = make_study(tmp_path / "study")
    shutil.rmtree(study / "data/vocabulary")
    assert main(["--study", str(study), "--pack", str(tmp_path / "packed")]) == 1
    assert "error: the study does not train: phase1: RuntimeError" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_saved_compilation_is_loaded_by_another_process(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
import torch
from benchmarks._gpu_steps import compile_seconds, load_compiled, save_compiled
from torch._dynamo.utils import counters
path = Path(sys.argv[1])
load_compiled(path)
torch.compile(lambda x: x.sin() + 1)(torch.ones(8))
save_compiled(path)
assert sum(compile_seconds().values()) > 0
print(counters["inductor"]["fxgraph_cache_hit"])
"""
    hits = []
    for number in range(2):
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / str(number))}
        command = [sys.executable, "-c", program, str(tmp_path / "compiled" / "artifacts")]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        hits.append(int(done.stdout.split()[-1]))
    assert hits == [0, 1]
