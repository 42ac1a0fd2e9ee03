"""Bars for people, lines for logs."""

import logging
import re

from pipeline_src.common import progress


def test_lines_without_a_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    path = progress.open_log("tokenize", "all")
    assert list(progress.track("abcd", "reading", "book", total=4)) == list("abcd")
    shown = capsys.readouterr().err
    assert re.search(r"\[tokenize all\] reading: 2/4 book, [\d,.]+/s, [\d,]+ s left", shown)
    assert "reading: 4/4 book" in path.read_text()


def test_a_new_run_starts_a_new_log_unless_the_one_before_did_not_finish(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    messages = (
        "first",
        "second",
        f"third, {progress.DONE} 1.0 s is not how it ends",
        f"{progress.DONE} 2.0 s",
        "fifth",
    )
    logged = []
    for message in messages:
        path = progress.open_log("tokenize", "all")
        progress.log.info(message)
        logged.append(path.read_text())
    assert len(logging.getLogger("pipeline_src").handlers) == 2
    assert [text.count(progress.SEPARATOR) for text in logged] == [0, 1, 2, 3, 0]
    assert all(message in logged[3] for message in messages[:4])  # three did not finish, the fourth did
    assert "fifth" in logged[4] and "first" not in logged[4]


def test_numbers_stand_at_the_end_of_the_line():
    bar = progress.Progress("training", 10, "step")
    bar.advance(2, loss=6.51234)
    assert bar._line(1.0) == "training: 2/10 step, 2.0/s, 4 s left, loss 6.512"


def test_training_reads_its_own_numbers():
    bar = progress.Progress("training", 10, "step")
    bar.advance(0, loss=2.5, tokens_per_second=12_345.6, mfu=0.4123)
    assert bar.note == "loss 2.5, tok/s 12.3k, MFU 41 %"


def test_steps_of_an_earlier_run_count_as_done_but_not_into_the_rate():
    bar = progress.Progress("training", 1000, "step", initial=900)
    assert bar._line(1.0) == "training: 900/1,000 step, 0.0/s, unknown time left"
    bar.advance(20)
    assert bar._line(10.0) == "training: 920/1,000 step, 2.0/s, 40 s left"


def test_the_bar_too_starts_where_the_earlier_run_stopped(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv(progress.PLAIN, raising=False)
    with progress.Progress("training", 1000, "step", initial=900) as bar:
        bar.advance(20, loss=2.5, mfu=0.41)
        assert bar._bar is not None
        shown = bar._bar.format_dict
        assert (shown["n"], shown["initial"]) == (920, 900) and shown["postfix"] == "loss 2.5, MFU 41 %"


def test_long_times_are_hours_and_minutes():
    times = (0.4, 119, 120, 3753, 90_061)
    assert [progress.duration(time) for time in times] == ["0 s", "119 s", "0:02:00", "1:02:33", "25:01:01"]
    bar = progress.Progress("training", 3754, "step")
    bar.advance()
    assert bar._line(1.0) == "training: 1/3,754 step, 1.0/s, 1:02:33 left"


def test_a_bar_on_a_terminal_unless_jobs_run_side_by_side(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv(progress.PLAIN, raising=False)
    with progress.Progress("training", 10, "step") as alone:
        assert alone._bar is not None
    monkeypatch.setenv(progress.PLAIN, "1")
    with progress.Progress("training", 10, "step") as beside:
        assert beside._bar is None
