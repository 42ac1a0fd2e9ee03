"""What the tool asks of DVC, with a queue of the test's own in DVC's place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_src import __main__ as command_line
from pipeline_src.tools.ablations import ablations

ROOT = Path(__file__).resolve().parents[4]


class Queue:
    """DVC's: an experiment that is queued when workers start is done at the next question, or has failed.

    The first ``idle_starts`` times that workers start, they end without having begun anything.
    """

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.done: list[str] = []
        self.fails: set[str] = set()
        self.idle_starts = 0
        self.asked: list[str] = []

    def dvc(self, *words: str, quiet: bool = False) -> str:
        if words[:2] == ("exp", "list"):
            return "\n".join(self.done)
        if words[:2] == ("exp", "run"):
            self.asked.append(words[4])
            self.states[words[4]] = "Queued"
        elif words[:2] == ("queue", "kill"):
            self.asked.append(f"kill {words[2]}")
            self.states[words[2]] = "Failed"
        elif words[:2] == ("queue", "start"):
            self.asked.append(f"start {words[3]}")
            if self.idle_starts:
                self.idle_starts -= 1
                return ""
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
    monkeypatch.setattr(ablations, "workers", lambda: False)
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


@pytest.mark.parametrize("idle", [0, ablations.STARTS])
def test_what_a_worker_left_behind_is_queued_again(queue: Queue, capsys: pytest.CaptureFixture[str], idle: int) -> None:
    queue.states, queue.idle_starts = {"rates-05": "Running"}, idle
    status = command_line.main(["ablations", "rates", "--only", "rates-05"])
    again = ["kill rates-05", "rates-05", "start 2"]
    if not idle:
        assert status == 0 and queue.asked == ["start 2", *again] and queue.done == ["rates-05"]
    else:
        assert status == 2 and queue.asked == ["start 2", *again, "start 2"]
        assert "workers ended before the experiments did: rates-05" in capsys.readouterr().err


@pytest.mark.parametrize(("idle", "status"), [(ablations.STARTS - 1, 0), (ablations.STARTS, 2)])
def test_workers_that_end_too_soon_are_started_again(queue: Queue, idle: int, status: int) -> None:
    queue.idle_starts = idle
    assert command_line.main(["ablations", "rates", "--only", "rates-05"]) == status
    assert queue.asked == ["rates-05"] + ["start 2"] * ablations.STARTS
    assert queue.done == ["rates-05"][status:]


def test_a_worker_that_does_not_answer_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        experiments = celery_queue = property(lambda self: self)

        def __init__(self, path: str) -> None: ...
        def __enter__(self) -> Silent:
            return self

        def __exit__(self, *exception: object) -> None: ...
        def worker_status(self) -> dict[str, list[str]]:
            return {}

    monkeypatch.setattr("dvc.repo.Repo", Silent)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", "print(flush=True); input()", "exp", "queue-worker", "dvc-exp-012345-1@localhost"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin and worker.stdout and worker.stdout.readline()
        assert ablations.workers()
        monkeypatch.chdir(elsewhere)
        assert not ablations.workers()
        monkeypatch.chdir(tmp_path)
        worker.stdin.close()
        worker.wait()
        assert not ablations.workers()


def test_an_experiment_that_a_worker_takes_while_the_queue_is_read_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dvc.repo.experiments.queue.celery import LocalCeleryQueue

    (tmp_path / "dvc.yaml").write_text("stages: {count: {cmd: echo, params: [steps]}}\n")
    (tmp_path / "params.yaml").write_text("steps: 1\n")
    for command in (
        "git init -q", "dvc init -q", "git add .",
        "git -c user.name=a -c user.email=a@b commit -qm study", "dvc exp run -q --queue -n more -S steps=2",
    ):  # fmt: skip
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert ablations.states() == {"more": "Queued"}
    broker, waiting = tmp_path / ".dvc/tmp/exps/celery/broker", LocalCeleryQueue.iter_queued

    def taken(queue: LocalCeleryQueue) -> object:
        """As the file system's broker takes one: the message changes its folder."""
        for message in (broker / "in").iterdir():
            message.rename(broker / "processed" / message.name)
        return waiting(queue)

    monkeypatch.setattr(LocalCeleryQueue, "iter_queued", taken)
    assert ablations.states() == {"more": "Running"}


def test_all_tables_are_run_where_none_is_named(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    """But for what has no teacher yet, which is said."""
    assert command_line.main(["ablations", "--preset", "test"]) == 0
    assert len(queue.done) == 3 + 5 + 5 + 16 + 5 + 23 + 9 + 5
    assert capsys.readouterr().out.count("left out, there is no teacher in models/teacher/pretrained/long") == 6
    assert "test:" in Path("params.yaml").read_text().splitlines()[0]  # the study that was asked for stands there


def test_a_missing_teacher_is_named_before_anything_is_queued(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["ablations", "taught", "--queue"]) == 2
    said = capsys.readouterr().err
    assert "no teacher here: models/teacher/pretrained/long" in said and "docs/family.md" in said and not queue.asked
    Path("models/teacher/pretrained/long").mkdir(parents=True)
    assert command_line.main(["ablations", "taught", "--queue"]) == 0
    assert len(queue.asked) == 6
