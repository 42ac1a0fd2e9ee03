"""The results table: the same figures on the page, in report.md, in a terminal and in scores.tsv."""

import csv
import re
from argparse import Namespace

import pytest

from pipeline_src.base.files import read_json
from pipeline_src.report import report, table
from pipeline_src.report.columns import (
    GLUE_AVERAGE,
    MARKDOWN,
    TERMINAL,
    TSV,
    ScoreRow,
    columns_of,
    error_of_average,
    glue_average,
    score_rows,
    table_rows,
    verdict,
)
from pipeline_src.report.published import published_scores
from pipeline_src.report.results import SEEDS
from tests.unit.report.conftest import GAIN, LOSS, NOISE, Page, baselines, glue_rows, score_row, write_scores


def rows_of(*rows: dict, rules: tuple[str, ...] = (), model: str = "BERT-base", **kinds) -> list[ScoreRow]:
    return score_rows({"rules": dict.fromkeys(rules, ""), "rows": list(rows), **kinds}, published_scores(model))


def test_table_rows_of_few_labels_stand_before_that_of_all_labels_and_have_no_published_score():
    rows = [score_row("rte", "accuracy", 60.0), score_row("mrpc", "accuracy", 84.0), score_row("mrpc", "f1", 80.0)]
    few = [score_row("mrpc", "accuracy", 70.0 + count, labels=count) for count in (1, 9)]
    scores = {"rules": {}, "rows": rows, "few_labels": few}
    shown = table_rows(scores, published_scores("BERT-base"))
    assert [row.mean for row in shown] == [60.0, 71.0, 79.0, 84.0, 80.0]
    assert [row.mean for row in score_rows(scores)] == [60.0, 84.0, 80.0]
    assert all(row.published is None and row.test_server is None for row in shown[1:3])
    assert shown[3].published or shown[3].test_server or shown[4].test_server


def test_columns_show_same_values_in_every_table(results, capsys):
    row = score_row("mnli", "accuracy", 85.0, 86.0, interval=[83.1, 87.9], baselines=baselines(NOISE))
    write_scores(results, [row])
    report.run()
    table.main(Namespace())
    terminal = capsys.readouterr().out
    page = Page((results / "report.html").read_text(encoding="utf-8")).text
    markdown = (results / "report.md").read_text(encoding="utf-8")
    for text in (
        "85.5",
        "± 0.7",
        "± deviation",
        "83.1 to 87.9",
        "50.0",
        "44.4",
        "61.5",
        "not significant (1,287 examples needed)",
    ):
        assert text in terminal and text in markdown and text in page, text
    for text in (SEEDS, "86.0", "84.4 (a)", "+1.1", "84.6 (e)"):  # best, table 5, its difference, the test server
        assert text in markdown and text in page, text
    assert "+1.0 (-1.0 to 3.0)" in page and "mnli/dev.tsv" in page
    with open(results / "scores.tsv", encoding="utf-8", newline="") as file:
        (record,) = csv.DictReader(file, delimiter="\t")
    assert record == {
        **{"score": "MNLI, accuracy", "split": "dev.tsv", "metric": "accuracy"},
        **{"value": "85.5000", "majority_baseline": "50.0000"},
    }


def test_columns_of_drops_columns_without_values():
    rows = rows_of(score_row("swag", "accuracy", 30.0, random_weights=None), model="none")
    headers = {name: [column.header for column in columns_of(name, rows)] for name in (MARKDOWN, TERMINAL, TSV)}
    assert headers[TERMINAL] == ["task", "metric", "score", "majority"]
    assert headers[MARKDOWN] == ["task", "metric", "split", "score", "majority"] and len(headers[TSV]) == 5


@pytest.mark.parametrize(
    ("difference", "word"),
    [
        (GAIN, "yes"),
        (LOSS, "worse"),
        (NOISE, "not significant (1,287 examples needed)"),
        (NOISE | {"examples_needed": None}, "same"),
        (None, None),
    ],
)
def test_verdict_describes_difference_in_words(difference, word):
    assert verdict(difference, seeds=2) == word


def test_verdict_of_one_seed_is_marked():
    assert [verdict(difference, 1) for difference in (GAIN, LOSS)] == ["yes (one seed)", "worse (one seed)"]
    assert verdict(GAIN, 1, better="") == "(one seed)" and verdict(GAIN, 2, better="") == ""
    assert "seed" not in verdict(NOISE, 1)
    rows = rows_of(*(score_row("ner", "f1", *values, baselines=baselines(GAIN)) for values in ((70.0,), (70.0, 71.0))))
    (column,) = [column for column in columns_of(TERMINAL, rows) if column.header == "better than random?"]
    assert [column.text(row) for row in rows] == ["yes (one seed)", "yes"]


def test_score_rows_are_marked_by_kind_of_data_and_selection():
    kinds = {"rules": ("rte",), "from_corpus": {"swag": ""}, "best_epoch": ["rte", "mrpc"]}
    kinds |= {"best_of_grid": ["mrpc", "ner"]}
    rows = rows_of(*(score_row(task, "f1", 80.0) for task in ("rte", "mrpc", "swag", "ner")), **kinds)
    assert [(row.task, row.marks, row.metric_and_split) for row in rows] == [  # synthetic last
        ("mrpc", " (best epoch, best of a grid)", "F1 (best epoch, best of a grid)"),
        ("swag", " (from this corpus)", "F1"),
        ("ner", " (best of a grid)", "F1 (best of a grid)"),
        ("rte", " (synthetic, best epoch)", "F1 (best epoch)"),
    ]


@pytest.mark.parametrize("change", [{"file": "test.tsv"}, {"metric": "f1"}, {"eval_set": "mnli_mm2"}])
def test_difference_from_published_score_needs_same_split_metric_and_set(change):
    (row,) = rows_of(score_row("mnli", "accuracy", 85.0))
    assert row.difference == pytest.approx(0.6) and row.test_server.value == 84.6
    (row,) = rows_of(score_row("mnli", "accuracy", 85.0) | change)
    assert row.published is None and row.difference is None


def test_score_rows_of_synthetic_tasks_have_no_published_score():
    rows = rows_of(*(score_row(name, metric, 80.0) for name, metric in GLUE_AVERAGE.items()), rules=("mnli",))
    assert rows[-1].task == "mnli" and rows[-1].published is rows[-1].test_server is None
    assert rows[0].test_server and glue_average(rows, published_scores("BERT-base")).test_server is None


def test_glue_average_uses_metrics_of_the_paper():
    others = [score_row("wnli", "accuracy", 10.0), score_row("mrpc", "accuracy", 70.0)]
    average = glue_average(rows_of(*glue_rows(85.0), *others, rules=("rte",), best_epoch=["wnli"]))
    assert average.mean == 85.0 and len(average.averaged) == 9  # the F1 of MRPC; WNLI left out
    assert average.synthetic and average.test_server is None and not average.chosen


def test_glue_average_with_missing_score_is_none():
    assert glue_average([]) is None and glue_average(rows_of(score_row("rte", "accuracy", 50.0))) is None
    assert glue_average(rows_of(*glue_rows(85.0)[1:])) is None


@pytest.mark.parametrize("choice", ["best_epoch", "best_of_grid"])
def test_glue_average_with_score_chosen_on_dev_set_is_marked(choice):
    average = glue_average(rows_of(*glue_rows(85.0), **{choice: ["rte"]}))
    assert average.marks == " (some chosen on their development sets)"


def test_glue_average_row_shows_average_of_the_paper_without_difference():
    rows = rows_of(*(score_row(name, metric, 80.0, 82.0) for name, metric in GLUE_AVERAGE.items()))
    average = glue_average(rows, published_scores("BERT-base"))
    assert (average.mean, average.best) == (81.0, 82.0) and average.deviation == pytest.approx(2**0.5)
    assert average.test_server.value == 79.6 and average.published is None and average.difference is None


def test_error_of_average_with_missing_interval_is_none():
    rows = rows_of(score_row("a", "f1", 1.0, interval=[0.0, 6.0]), score_row("b", "f1", 1.0, interval=[0.0, 8.0]))
    assert error_of_average(rows) == pytest.approx(2.5)
    assert error_of_average([*rows, *rows_of(score_row("c", "f1", 1.0))]) is None


def test_synthetic_scores_are_marked_in_every_table(results):
    report.run()
    page = (results / "report.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr[^>]*><th scope=\"row\">(?:RTE|MRPC|WNLI|SQUAD1|SWAG)<.*?</tr>", page, re.DOTALL)
    assert rows and all(">synthetic<" in row for row in rows)
    assert all("synthetic" in summary for summary in re.findall(r"<summary>.*?not fully correct", page))
    assert "score on the synthetic tasks" in page
    rows = re.findall(r"^\| (?:RTE|MRPC|SQUAD).*", (results / "report.md").read_text(encoding="utf-8"), re.MULTILINE)
    rows += (results / "scores.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == 12 and all("(synthetic)" in row for row in rows)
    names = {"mlm_loss", "mlm_gap", "nsp_accuracy", "synthetic_squad1", "synthetic_swag"}
    assert set(read_json(results / "summary.json")) == names
