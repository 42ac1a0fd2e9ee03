"""Trackers write the training curve and continue it after a restart. wandb is replaced by a fake."""

import inspect
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_src.pretrain import tracking
from pipeline_src.pretrain.tracking import BACKENDS, DEFAULTS, Run, Tracker

PARAMS = {"seed": 1, "pretrain": {"train_batch_size": 32, "betas": [0.9, 0.98]}}
METRICS = Path("logs/dvclive/phase1/plots/metrics")
NAME = "phase1-abc123"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in DEFAULTS:
        monkeypatch.setenv(name, "")  # restored at the end, although the tracker sets it
        monkeypatch.delenv(name)


def tracker(first_step=0, *names, identity="abc123"):
    return Tracker(names or ("dvclive",), Run("phase1", identity, PARAMS, first_step))


def rows(name):
    return (METRICS / f"{name}.tsv").read_text(encoding="utf-8").splitlines()


def test_tracker_default_writes_only_dvclive_files():
    writer = tracker()
    writer.row(20, {"step": 20, "loss": 9.5, "mfu": 0.25})
    writer.row(40, {"step": 40, "loss": 1 / 3, "validation_mlm_loss": 8.0})
    writer.finish()
    assert rows("loss") == ["step\tloss", "20\t9.5", "40\t0.3333333333333333"]
    assert rows("mfu") == ["step\tmfu", "20\t0.25"]
    assert rows("validation_mlm_loss") == ["step\tvalidation_mlm_loss", "40\t8.0"]
    assert len(list(METRICS.iterdir())) == 3 and os.listdir("logs") == ["dvclive"]


def test_tracker_resumed_drops_rows_after_checkpoint():
    writer = tracker()
    for step in (20, 40, 60):
        writer.row(step, {"loss": step / 10})
    writer.row(60, {"validation_mlm_loss": 8.0})
    with open(METRICS / "loss.tsv", "a") as file:
        file.write("80\t7")  # killed within a row
    writer = tracker(40)
    assert rows("loss") == ["step\tloss", "20\t2.0", "40\t4.0"]
    writer.row(60, {"loss": 6.5})
    assert rows("loss") == ["step\tloss", "20\t2.0", "40\t4.0", "60\t6.5"]
    assert not (METRICS / "validation_mlm_loss.tsv").exists()


@pytest.mark.parametrize("content", ["", "step\tlo", "step\tloss\nbroken\n\x00\t1\n", "step\tloss\n20\t1\n30"])
def test_tracker_truncated_file_is_repaired_and_continued(content):
    tracker()
    (METRICS / "loss.tsv").write_text(content)
    tracker(25).row(40, {"loss": 3.0})
    assert rows("loss")[0] == "step\tloss" and rows("loss")[-1] == "40\t3.0"
    assert len(rows("loss")) <= 3


def test_tracker_rows_of_another_training_are_removed():
    """A later phase starts after step 0, so that steps alone do not tell whose rows they are."""
    writer = tracker(400)
    for step in (420, 440):
        writer.row(step, {"loss": step / 100, "nsp_loss": 0.5})
    writer = tracker(440, identity="def456")
    writer.row(460, {"loss": 1.0})
    assert rows("loss") == ["step\tloss", "460\t1.0"]
    assert [path.name for path in METRICS.iterdir()] == ["loss.tsv"]


def test_tracker_infinite_value_is_written():
    tracker().row(1, {"loss": 2.0, "grad_norm": math.inf})
    assert rows("grad_norm") == ["step\tgrad_norm", "1\tinf"]


class Service:
    """Fake of wandb that stores runs by name, with config, rows, and how often each was opened and finished."""

    def __init__(self):
        self.runs, self.current, self.is_gone, self.calls = {}, None, False, []

    def init(self, *, id, name, config, resume):
        assert name == id and resume == ("allow" if os.environ["WANDB_MODE"] == "online" else None)
        assert os.environ["WANDB_PROJECT"] == "bert-pipeline" and os.environ["WANDB_DIR"] == "logs"
        self.current = self.runs.setdefault(id, {"config": config, "rows": {}, "opened": 0, "ended": 0})
        self.current["opened"] += 1
        return SimpleNamespace(log=self.log, finish=self.finish)

    def log(self, values, step):
        self.calls.append(step)
        if self.is_gone:
            raise ConnectionError("no server")
        self.current["rows"].setdefault(step, values)

    def finish(self):
        self.current["ended"] += 1


@pytest.fixture
def wandb(monkeypatch):
    service = Service()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=service.init))
    return service


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_tracker_resumed_run_is_continued(wandb, mode, monkeypatch):
    if mode == "online":
        monkeypatch.setenv("WANDB_MODE", mode)
    writer = tracker(0, "dvclive", "wandb")
    for step in (20, 40, 60):
        writer.row(step, {"step": step, "loss": step / 10})
    writer = tracker(40, "dvclive", "wandb")  # killed after step 60, and its last checkpoint is that of step 40
    for step in (60, 80):
        writer.row(step, {"step": step, "loss": step / 10})
    writer.finish()
    assert wandb.runs.keys() == {NAME}
    run = wandb.runs[NAME]
    assert run["config"] == PARAMS and (run["opened"], run["ended"]) == (2, 1)
    assert run["rows"] == {step: {"loss": step / 10} for step in (20, 40, 60, 80)}
    assert rows("loss")[1:] == [f"{step}\t{step / 10}" for step in (20, 40, 60, 80)]


def test_tracker_other_training_opens_new_run(wandb):
    tracker(0, "wandb").row(20, {"loss": 1.0})
    Tracker(("wandb",), Run("phase1", "def456", PARAMS, 0)).row(20, {"loss": 1.0})
    assert {name: len(run["rows"]) for name, run in wandb.runs.items()} == {NAME: 1, "phase1-def456": 1}


def test_tracker_unreachable_server_is_dropped_with_one_warning(wandb, caplog):
    writer = tracker(0, "wandb", "dvclive")
    writer.row(20, {"loss": 2.0})
    wandb.is_gone = True
    for step in (40, 60):
        writer.row(step, {"loss": step / 10})
    writer.finish()
    assert caplog.text.count("without wandb: ConnectionError: no server") == 1
    assert wandb.calls == [20, 40] and rows("loss")[-1] == "60\t6.0"


def test_tracker_server_missing_at_start_does_not_stop_training(monkeypatch, caplog):
    def init(**_):
        raise RuntimeError("no key")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    tracker(0, "wandb", "dvclive").row(20, {"loss": 2.0})
    assert "without wandb: RuntimeError: no key" in caplog.text and len(rows("loss")) == 2


def test_tracker_failure_of_dvclive_is_raised(monkeypatch):
    writer = tracker()
    monkeypatch.setattr(tracking.DVCLiveFiles, "log", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        writer.row(1, {"loss": 1.0})


def test_tracker_environment_variables_of_user_are_kept(monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    tracker()
    assert os.environ["WANDB_PROJECT"] == "mine" and os.environ["WANDB_MODE"] == "offline"


def test_tracker_tensorboard_reads_back_resumed_run():
    pytest.importorskip("tensorboard", reason="needs the extra `track`")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first, steps in ((0, (20, 40, 60)), (40, (60, 80))):
        writer = tracker(first, "tensorboard")
        for step in steps:
            writer.row(step, {"loss": float(first + step)})
        writer.finish()
    events = EventAccumulator(f"logs/tensorboard/{NAME}")
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(20, 20), (40, 40), (60, 100), (80, 120)]


def test_wandb_fake_has_signature_of_wandb_init():
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    assert {"id", "name", "config", "resume"} <= inspect.signature(wandb.init).parameters.keys()


def test_backends_are_the_trackers_of_machine_yaml():
    from typing import get_args

    from pipeline_src.study.machine import TrackerName

    assert set(get_args(TrackerName)) == BACKENDS.keys()
