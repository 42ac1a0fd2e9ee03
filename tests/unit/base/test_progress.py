"""Progress bars, progress lines and logs."""

import contextlib
import logging
import re
from pathlib import Path

import pytest

from pipeline_src.base import progress


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv(progress.PLAIN, raising=False)


def test_track_without_terminal_logs_lines(project, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    path = progress.open_log("tokenize", "all")
    assert list(progress.track("abcd", "reading", "book", total=4)) == list("abcd")
    assert re.search(r"\[tokenize all\] reading: 2/4 book, [\d,.]+/s, [\d,]+ s left", capsys.readouterr().err)
    assert "reading: 4/4 book" in path.read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_open_log_on_full_disk_prints_message_without_traceback(project, capsys):
    progress.open_log("tokenize", "all")
    to_file = progress.log.handlers[0]
    opened = to_file.stream
    with contextlib.suppress(OSError), open("/dev/full", "w") as to_file.stream:  # closing writes again
        progress.log.info("a message")
    to_file.stream = opened
    output = capsys.readouterr().err
    assert "a message" in output and "Traceback" not in output


def test_open_log_continues_unfinished_log_and_overwrites_finished_log(project):
    misleading = f"third, {progress.DONE} 1.0 s is not how it ends"
    messages = ("first", "second", misleading, f"{progress.DONE} 2.0 s", "fifth")
    logged = []
    for message in messages:
        path = progress.open_log("tokenize", "all")
        progress.log.info(message)
        logged.append(path.read_text())
    assert len(logging.getLogger("pipeline_src").handlers) == 2
    assert [text.count(progress.SEPARATOR) for text in logged] == [0, 1, 2, 3, 0]
    assert all(message in logged[3] for message in messages[:4])
    assert "fifth" in logged[4] and "first" not in logged[4]


def test_open_log_without_stderr_prints_nothing(project, capsys):
    path = progress.open_log("tokenize", "all", to_stderr=False)
    progress.log.info("said")
    assert "said" in path.read_text() and not capsys.readouterr().err


def test_advance_numbers_are_appended_to_line():
    bar = progress.Progress("training", 10, "step")
    bar.advance(2, loss=6.51234)
    assert bar._line(1.0) == "training: 2/10 step, 2.0/s, 4 s left, loss 6.512"
    bar.advance(0, loss=2.5, tokens_per_second=12_345.6, mfu=0.4123)
    assert bar.note == "loss 2.5, tok/s 12.3k, MFU 41 %"


def test_progress_line_rate_excludes_steps_of_earlier_run():
    bar = progress.Progress("training", 1000, "step", initial=900)
    assert bar._line(1.0) == "training: 900/1,000 step, 0.0/s, unknown time left"
    bar.advance(20)
    assert bar._line(10.0) == "training: 920/1,000 step, 2.0/s, 40 s left"


def test_progress_bar_starts_at_initial_count(terminal):
    with progress.Progress("training", 1000, "step", initial=900) as bar:
        bar.advance(20, loss=2.5, mfu=0.41)
        assert bar._bar is not None
        state = bar._bar.format_dict
        assert (state["n"], state["initial"]) == (920, 900) and state["postfix"] == "loss 2.5, MFU 41 %"


def test_progress_plain_mode_shows_no_bar(terminal, monkeypatch):
    monkeypatch.setenv(progress.PLAIN, "1")
    with progress.Progress("training", 10, "step") as bar:
        assert bar._bar is None


def test_duration_from_two_minutes_is_hours_and_minutes():
    times = (0.4, 119, 120, 3753, 90_061)
    assert [progress.duration(time) for time in times] == ["0 s", "119 s", "0:02:00", "1:02:33", "25:01:01"]


def test_open_log_removes_passwords_and_control_codes(project, capsys):
    path = progress.open_log("download", "all")
    progress.log.info("fetching %s", "https://me:word@host/a?token=hf_abc")
    progress.log.warning("a server says \x1b[2J")
    for text in (path.read_text(), capsys.readouterr().err):
        assert "https://…@host/a?token=…" in text and r"\x1b[2J" in text
        assert "\x1b" not in text and "word" not in text and "hf_abc" not in text
