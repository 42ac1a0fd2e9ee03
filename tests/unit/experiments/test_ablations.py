"""What the tool asks of DVC, with a queue of the test's own in DVC's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src import __main__ as command_line
from pipeline_src.experiments import ablations

ROOT = Path(__file__).resolve().parents[3]


class Queue:
    """DVC's: an experiment that is queued when workers start is done at the next question, or has failed."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.done: list[str] = []
        self.fails: set[str] = set()
        self.asked: list[str] = []

    def dvc(self, *words: str, quiet: bool = False) -> str:
        if words[:2] == ("exp", "list"):
            return "\n".join(self.done)
        if words[:2] == ("exp", "run"):
            self.asked.append(words[4])
            self.states[words[4]] = "Queued"
        elif words[:2] == ("queue", "start"):
            self.asked.append(f"start {words[3]}")
            for name, state in self.states.items():
                if state == "Queued":
                    self.states[name] = "Failed" if name in self.fails else "Success"
            self.done += [name for name, state in self.states.items() if state == "Success" and name not in self.done]
        return ""


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "params.yaml").write_text((ROOT / "workflow/presets/sample.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    queue = Queue()
    monkeypatch.setattr(ablations, "_dvc", queue.dvc)
    monkeypatch.setattr(ablations, "states", lambda: dict(queue.states))
    monkeypatch.setattr(ablations, "POLL_SECONDS", (0.01, 0.01))
    monkeypatch.setattr(ablations, "_workers", lambda: False)
    return queue


def test_what_takes_over_a_model_is_queued_when_that_is_there(queue: Queue) -> None:
    assert command_line.main(["ablations", "table5"]) == 0
    assert queue.asked == ["table5-no-nsp", "table5-ltr", "start 2", "table5-ltr-bilstm", "start 2"]


def test_queueing_alone_starts_none(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["ablations", "table5", "--queue", "-j", "3"]) == 0
    assert queue.asked == ["table5-no-nsp", "table5-ltr", "table5-ltr-bilstm"]
    assert "dvc queue start -j 3; -j 1, for some share a pretraining" in capsys.readouterr().out


def test_the_same_command_goes_on_where_one_failed(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.fails = {"table5-ltr"}
    assert command_line.main(["ablations", "table5", "-j", "1"]) == 2
    assert "table5-ltr-bilstm" not in queue.asked  # it would train the same model again
    assert "`dvc queue logs table5-ltr` shows why" in capsys.readouterr().err
    queue.fails, queue.asked = set(), []
    assert command_line.main(["ablations", "table5", "-j", "1"]) == 0
    assert queue.asked == ["table5-ltr", "start 1", "table5-ltr-bilstm", "start 1"]


def test_what_waits_already_is_not_queued_twice(queue: Queue) -> None:
    queue.states = {"rates-05": "Running", "rates-10": "Success"}  # the second on an earlier commit
    queue.done = []
    assert command_line.main(["ablations", "rates", "--queue", "--only", "rates-05", "rates-10"]) == 0
    assert queue.asked == ["rates-10"]


def test_workers_that_died_are_noticed(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.states = {"rates-05": "Running"}
    assert command_line.main(["ablations", "rates", "--only", "rates-05"]) == 2
    assert "workers ended before the experiments did: rates-05" in capsys.readouterr().err


def test_all_tables_are_run_where_none_is_named(queue: Queue) -> None:
    assert command_line.main(["ablations", "--preset", "test"]) == 0
    assert len(queue.done) == 3 + 5 + 5 + 16 + 5
    assert "test:" in Path("params.yaml").read_text().splitlines()[0]  # the study that was asked for stands there
