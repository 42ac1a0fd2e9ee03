"""Results as read, their summary, and errors of results that were cut, edited or written by another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.report import report
from pipeline_src.report.results import fitting_results, read_results, summarise
from tests.unit.report.conftest import ROWS, score_row, write_scores


def test_summarise_is_short_and_flat(results):
    more = [score_row("squad2", "f1", 1.0), score_row("ner", "entity_f1", 2.0)]
    write_scores(results, [*ROWS, *more], ["rte"], further=["ner"])
    summary = summarise(read_results())
    losses, glue = ["mlm_loss", "mlm_gap", "nsp_accuracy"], ["synthetic_glue"]
    assert list(summary) == [*losses, *glue, "squad1", "swag", "squad2", "ner"] and summary["ner"] == 2.0
    assert all(isinstance(value, float) for value in summary.values())


def test_summarise_task_named_like_a_figure_is_own(results):
    names = ("glue", "squad1", "a", "own_glue")
    rows = [score_row(f"my_{name}", "accuracy", 70.0 + at, eval_set=name) for at, name in enumerate(names)]
    rows += [score_row(f"task{number}", "accuracy", float(number)) for number in range(9)]
    write_scores(results, [*ROWS, *rows], ["rte", "mrpc", "wnli", "swag"], further=[row["task"] for row in rows])
    summary = summarise(read_results())
    assert (summary["own_glue"], summary["own_squad1"], summary["a"]) == (70.0, 71.0, 72.0)
    assert summary["own_own_glue"] == 73.0 and summary["task8"] == 8.0 and summary["synthetic_glue"] == 85.0


def test_summarise_tasks_from_the_corpus_are_averaged_with_their_error(results):
    rows = [
        score_row("word_swap", "accuracy", 60.0, interval=[57.0, 63.0]),
        score_row("cloze", "f1", 20.0, interval=[16.0, 24.0]),
        score_row("cloze", "em", 10.0, main=False),
    ]
    write_scores(results, rows, [])
    write_json(
        results / "scores.json", read_json(results / "scores.json") | {"from_corpus": {"word_swap": "", "cloze": ""}}
    )
    summary = summarise(read_results())
    assert summary["from_corpus"] == 40.0 and summary["from_corpus_error"] == 2.5


def test_read_results_missing_file_is_one_error(results):
    (results / "corpus.json").unlink()
    with pytest.raises(PipelineError, match="corpus.json"):
        read_results()


def test_read_results_damaged_curve_is_one_error(results):
    (results / "pretrain" / "phase2.tsv").write_text("step\tloss\n1\tmuch\n")
    with pytest.raises(PipelineError, match="not a table of numbers"):
        read_results()


def test_fitting_results_names_the_code_that_failed() -> None:
    with pytest.raises(PipelineError, match=r"(?s)no table can be made.*ZeroDivisionError.*read by results.py, line"):
        with fitting_results("table"):
            1 / 0  # noqa: B018


def test_fitting_results_names_the_value_that_a_template_lacks(results: Path) -> None:
    corpus = read_json(results / "corpus.json")
    del corpus["vocabulary"]["entries"]
    write_json(results / "corpus.json", corpus)
    with pytest.raises(PipelineError, match="no attribute 'entries'"):
        report.run()
