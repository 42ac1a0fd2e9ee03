"""Bars for people, lines for logs."""

import logging
import re

from pipeline_src import progress


def test_lines_without_a_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    path = progress.open_log("books", "all")
    assert list(progress.track("abcd", "reading", "book", total=4)) == list("abcd")
    shown = capsys.readouterr().err
    assert re.search(r"\[books all\] reading: 2/4 book, [\d,.]+/s, [\d,]+ s left", shown)
    assert "reading: 4/4 book" in path.read_text()


def test_a_new_run_starts_a_new_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    progress.open_log("books", "all")
    progress.log.info("first")
    path = progress.open_log("books", "all")
    progress.log.info("second")
    assert "first" not in path.read_text() and len(logging.getLogger("pipeline_src").handlers) == 2


def test_numbers_stand_at_the_end_of_the_line():
    bar = progress.Progress("training", 10, "step")
    bar.advance(2, loss=6.51234)
    assert bar._line(1.0) == "training: 2/10 step, 2.0/s, 4 s left, loss 6.512"


def test_a_bar_on_a_terminal_unless_jobs_run_side_by_side(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv(progress.PLAIN, raising=False)
    with progress.Progress("training", 10, "step") as alone:
        assert alone._bar is not None
    monkeypatch.setenv(progress.PLAIN, "1")
    with progress.Progress("training", 10, "step") as beside:
        assert beside._bar is None
