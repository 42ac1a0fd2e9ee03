"""Curves in DVCLive's files, continued after a stop."""

import math

import pytest

from pipeline_src.pretraining.tracking import TENSORBOARD, Tracker


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv(TENSORBOARD, raising=False)
    return tmp_path / "dvclive" / "phase1"


def rows(folder, name):
    return (folder / "plots" / "metrics" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()


def test_tracker_writes_dvclives_layout(folder):
    tracker = Tracker(folder, 0)
    tracker.row(20, {"loss": 9.5, "mfu": 0.25})
    tracker.row(40, {"loss": 1 / 3, "validation_mlm_loss": 8.0})
    assert rows(folder, "loss") == ["step\tloss", "20\t9.5", "40\t0.3333333333333333"]
    assert rows(folder, "mfu") == ["step\tmfu", "20\t0.25"]
    assert rows(folder, "validation_mlm_loss") == ["step\tvalidation_mlm_loss", "40\t8.0"]
    assert not (folder.parent.parent / "tensorboard").exists()


def test_tracker_resumed_drops_rows_after_checkpoint(folder):
    tracker = Tracker(folder, 0)
    for step in (20, 40, 60):
        tracker.row(step, {"loss": step / 10})
    tracker.row(60, {"validation_mlm_loss": 8.0})
    with open(folder / "plots" / "metrics" / "loss.tsv", "a") as file:
        file.write("80\t7")  # killed within a row
    tracker = Tracker(folder, 40)
    assert rows(folder, "loss") == ["step\tloss", "20\t2.0", "40\t4.0"]
    tracker.row(60, {"loss": 6.5})
    assert rows(folder, "loss") == ["step\tloss", "20\t2.0", "40\t4.0", "60\t6.5"]
    assert not (folder / "plots" / "metrics" / "validation_mlm_loss.tsv").exists()


@pytest.mark.parametrize("content", ["", "step\tlo", "step\tloss\nbroken\n\x00\t1\n", "step\tloss\n20\t1\n30"])
def test_tracker_broken_file_is_continued(folder, content):
    path = folder / "plots" / "metrics" / "loss.tsv"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    tracker = Tracker(folder, 25)
    tracker.row(40, {"loss": 3.0})
    assert rows(folder, "loss")[0] == "step\tloss" and rows(folder, "loss")[-1] == "40\t3.0"
    assert len(rows(folder, "loss")) <= 3


def test_tracker_infinite_value_is_written(folder):
    tracker = Tracker(folder, 0)
    tracker.row(1, {"loss": 2.0, "grad_norm": math.inf})
    assert rows(folder, "grad_norm") == ["step\tgrad_norm", "1\tinf"]


def test_tracker_tensorboard_is_written_if_requested(folder, monkeypatch, caplog):
    monkeypatch.setenv(TENSORBOARD, "1")
    tracker = Tracker(folder, 0)
    tracker.row(1, {"loss": 2.0})
    assert rows(folder, "loss") == ["step\tloss", "1\t2.0"]
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        assert not (folder.parent.parent / "tensorboard").exists()
        return
    assert list((folder.parent.parent / "tensorboard" / "phase1").glob("events*"))
