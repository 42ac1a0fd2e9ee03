"""Reading while DVC makes an experiment: it lists the workspace, writes other values, and puts all back."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.preset import preset_text
from pipeline_src.study.settled import TABLE, read_settled, when_settled
from pipeline_src.study.study import load_study

LISTED = json.dumps({"write": {"workspace": {"pid": 1, "cmd": "dvc exp run --queue -S mask_prob=0.4"}}})
FREE = json.dumps({"read": {}})
OTHERS = json.dumps({"write": {"refs/exps/celery/stash": {"pid": 1, "cmd": "dvc exp run --run-all"}}})


@pytest.fixture(autouse=True)
def checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE.parent.mkdir(parents=True)
    Path("params.yaml").write_text("study")


def in_a_while(*changes, after=0.2):
    """Start a thread that writes each (path, text), one after the other."""
    checkout = Path.cwd()

    def write():
        for path, text in changes:
            time.sleep(after)
            (checkout / path).write_text(text)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.mark.parametrize("table", [LISTED, "", LISTED[:20]])
def test_read_settled_waits_until_workspace_is_restored(table):
    TABLE.write_text(table)
    Path("params.yaml").write_text("experiment")
    thread = in_a_while(("params.yaml", ""), ("params.yaml", "study"), (TABLE, FREE))
    assert read_settled("params.yaml") == "study"
    thread.join()


@pytest.fixture
def no_wait(monkeypatch):
    """Fails a test that waits."""

    def fail(seconds: float) -> None:
        raise AssertionError(f"it waits for {seconds} s")

    monkeypatch.setattr("pipeline_src.study.settled.time.sleep", fail)


@pytest.mark.parametrize("table", [None, FREE, OTHERS])
def test_read_settled_does_not_wait_without_experiment(table, no_wait):
    if table is not None:
        TABLE.write_text(table)
    assert read_settled("params.yaml") == "study"


def test_read_settled_ignores_line_that_killed_dvc_left(no_wait):
    TABLE.write_text(LISTED)
    os.utime(TABLE, (time.time() - 120, time.time() - 120))
    assert read_settled("params.yaml") == "study"


def test_when_settled_gives_up_when_patience_ends():
    TABLE.write_text(LISTED)
    assert when_settled(lambda: 1, patience=0.2) == 1


def test_when_settled_retries_if_dvc_started_meanwhile():
    looks = []

    def look():
        looks.append(Path("params.yaml").read_text())
        if len(looks) == 1:
            TABLE.write_text(LISTED)
            Path("params.yaml").write_text("experiment")
            in_a_while(("params.yaml", "study"), (TABLE, FREE))
        return Path("params.yaml").read_text()

    assert when_settled(look) == "study"
    assert looks == ["study", "study"]


@pytest.mark.parametrize("error", [PipelineError("changed", hint="put it back"), FileNotFoundError("params.yaml")])
def test_when_settled_raises_only_persistent_errors(error):
    looks = []

    def look():
        looks.append(None)
        if len(looks) == 1:
            TABLE.write_text(LISTED)
            in_a_while((TABLE, FREE))
        raise error

    with pytest.raises(type(error)):
        when_settled(look)
    assert len(looks) == 2


def test_load_study_does_not_read_values_of_experiment(root):
    study = preset_text("test", root / "workflow/presets")
    TABLE.write_text(LISTED)
    Path("params.yaml").write_text(study.replace("mask_prob: 0.15", "mask_prob: 0.4"))
    thread = in_a_while(("params.yaml", study), (TABLE, FREE))
    assert load_study().mask_prob == 0.15
    thread.join()
