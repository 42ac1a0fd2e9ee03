"""The results table: the same figures on the page, in report.md, in a terminal and in scores.tsv."""

import csv
import re
from argparse import Namespace

import pytest

from pipeline_src.common.files import read_json
from pipeline_src.report import report, table
from pipeline_src.report.columns import (
    COLUMNS,
    GLUE_AVERAGE,
    MARKDOWN,
    PAGE,
    TERMINAL,
    TSV,
    aligned,
    cells_of_page,
    columns_of,
    error_of_average,
    glue_average,
    score_rows,
    text_table,
    verdict,
)
from pipeline_src.report.published import published_scores
from pipeline_src.report.rendering import FORMATS
from pipeline_src.report.results import read_results
from tests.unit.report.conftest import ROWS, Page, score_row, write_scores

GAIN = {"difference": 15.0, "interval": [10.0, 20.0], "p": 0.001, "significant": True, "examples_needed": None}
LOSS = GAIN | {"difference": -15.0, "interval": [-20.0, -10.0]}
NOISE = {"difference": 1.0, "interval": [-1.0, 3.0], "p": 0.4, "significant": False, "examples_needed": 1287}


def baselines(vs_baseline: dict) -> dict:
    return {
        "random_weights": {"score": 55.0, "interval": [50.0, 60.0], "vs_baseline": vs_baseline},
        "bag_of_words": {"score": 44.4, "interval": [40.0, 50.0], "vs_baseline": vs_baseline},
    }


def rows_of(*rows: dict, rules: tuple[str, ...] = (), model: str = "BERT-base", **kinds) -> list:
    return score_rows({"rules": dict.fromkeys(rules, ""), "rows": list(rows), **kinds}, published_scores(model))


def test_every_table_shows_the_same_figures_of_a_row(results, capsys):
    row = score_row("mnli", "accuracy", 85.0, 86.0, interval=[83.1, 87.9], baselines=baselines(NOISE))
    write_scores(results, [row], [])
    report.run()
    table.main(Namespace())
    terminal = capsys.readouterr().out
    page = Page((results / "report.html").read_text(encoding="utf-8")).text
    markdown = (results / "report.md").read_text(encoding="utf-8")
    for text in ("85.5 ± 0.7", "83.1 to 87.9", "50.0", "44.4", "61.5", "not significant (1,287 examples needed)"):
        assert text in terminal and text in markdown and text in page, text
    for text in ("86.0", "84.4 (a)", "+1.1", "84.6 (e)"):  # best, table 5, its difference, the test server
        assert text in markdown and text in page, text
    assert "+1.0 (-1.0 to 3.0)" in page and "mnli/dev.tsv" in page
    with open(results / "scores.tsv", encoding="utf-8", newline="") as file:
        (record,) = csv.DictReader(file, delimiter="\t")
    assert record == {
        "score": "MNLI, accuracy",
        "split": "dev.tsv",
        "metric": "accuracy",
        "value": "85.5000",
        "majority_baseline": "50.0000",
    }


def test_columns_have_known_formats_and_a_first_cell_for_every_part():
    assert {column.format for column in COLUMNS} <= FORMATS.keys()
    cells = cells_of_page(rows_of(score_row("mnli", "accuracy", 85.0, 86.0, baselines=baselines(NOISE))))
    assert all(cell[0].style in ("text", "number", "number main") for cell in cells)
    assert all(part.style in ("soft", "doubt", "tag") for cell in cells for part in cell[1:])


def test_columns_without_any_value_are_left_out():
    rows = rows_of(score_row("swag", "accuracy", 30.0, random_weights=None), model="none")
    headers = {name: [column.header for column in columns_of(name, rows)] for name in (PAGE, MARKDOWN, TERMINAL, TSV)}
    assert headers[TERMINAL] == ["task", "metric", "score", "majority"]
    assert headers[MARKDOWN] == ["task", "metric", "split", "score", "majority"]
    assert len(headers[TSV]) == 5 and "best" not in headers[PAGE]


@pytest.mark.parametrize(
    ("vs_baseline", "word"),
    [(GAIN, "yes"), (LOSS, "worse"), (NOISE, "not significant (1,287 examples needed)"), (None, "–")],
)
def test_text_table_difference_has_its_verdict(vs_baseline, word):
    row = score_row("mnli", "accuracy", 85.0, baselines=baselines(vs_baseline) if vs_baseline else {})
    other = score_row("rte", "accuracy", 85.0, baselines=baselines(GAIN))
    cells = [cell.strip() for cell in text_table(TERMINAL, rows_of(row, other)).splitlines()[2].split("|")]
    assert cells[-2] == word


def test_verdict_without_any_difference_is_the_same():
    assert verdict(NOISE | {"difference": 0.0, "examples_needed": None}) == "same"


def test_score_rows_are_marked_by_their_data_and_epoch():
    kinds = {"rules": ("rte",), "from_corpus": {"swag": ""}, "best_epoch": ["rte", "mrpc"]}
    rows = rows_of(*(score_row(task, "accuracy", 80.0) for task in ("rte", "mrpc", "swag", "ner")), **kinds)
    marks = {row.task: row.marks for row in rows}
    assert marks == {
        "mrpc": " (best epoch)",
        "swag": " (from this corpus)",
        "ner": "",
        "rte": " (synthetic, best epoch)",
    }
    assert [row.task for row in rows] == ["mrpc", "swag", "ner", "rte"]  # synthetic last


@pytest.mark.parametrize(("file", "rules"), [("test.tsv", ()), ("diagnostic-full.tsv", ()), ("dev.tsv", ("mnli",))])
def test_difference_from_published_needs_the_same_split_and_real_data(file, rules):
    (row,) = rows_of(score_row("mnli", "accuracy", 85.0, file=file), rules=rules)
    assert row.difference is None and row.test_server.value == 84.6
    (same,) = rows_of(score_row("mnli", "accuracy", 85.0))
    assert same.difference == pytest.approx(0.6)


@pytest.mark.parametrize("other", [{"metric": "f1"}, {"eval_set": "mnli_mm2"}])
def test_difference_from_published_needs_the_same_metric_and_set(other):
    (row,) = rows_of(score_row("mnli", "accuracy", 85.0) | other)
    assert row.published is None and row.difference is None


def test_glue_average_counts_as_the_paper_does():
    average = glue_average(rows_of(*ROWS, rules=("rte",)))
    assert average.mean == 85.0 and len(average.averaged) == 2  # RTE and the F1 of MRPC; WNLI left out
    assert average.synthetic and average.test_server is None  # of a part of the scores
    assert glue_average([]) is None


def test_glue_average_of_all_scores_is_next_to_the_papers_without_a_difference():
    rows = rows_of(*(score_row(name, metric, 80.0, 82.0) for name, metric in GLUE_AVERAGE.items()))
    average = glue_average(rows, published_scores("BERT-base"))
    assert (average.mean, average.best) == (81.0, 82.0) and average.deviation == pytest.approx(2**0.5)
    assert average.test_server.value == 79.6 and average.published is None and average.difference is None


def test_error_of_average_needs_every_interval():
    rows = rows_of(score_row("a", "f1", 1.0, interval=[0.0, 6.0]), score_row("b", "f1", 1.0, interval=[0.0, 8.0]))
    assert error_of_average(rows) == pytest.approx(2.5)
    assert error_of_average([*rows, *rows_of(score_row("c", "f1", 1.0))]) is None


def test_aligned_numbers_are_to_the_right():
    assert aligned(("task", "score"), [("a", "5.0"), ("long", "100.0")]).splitlines() == [
        "| task | score |",
        "| ---- | ----: |",
        "| a    |   5.0 |",
        "| long | 100.0 |",
    ]


def test_synthetic_scores_are_called_so_in_every_table(results):
    report.run()
    page = (results / "report.html").read_text(encoding="utf-8")
    for row in re.findall(r"<tr[^>]*><th scope=\"row\">.*?</tr>", page, re.DOTALL):
        if re.search(r">(RTE|MRPC|WNLI|SQUAD1|SWAG|GLUE average)<", row):
            assert ">synthetic<" in row
    assert all("synthetic" in summary for summary in re.findall(r"<summary>.*?not fully correct", page))
    assert "score on the synthetic tasks" in page
    for row in (results / "report.md").read_text(encoding="utf-8").splitlines():
        if re.match(r"\| (RTE|MRPC|SQUAD)", row):
            assert "(synthetic)" in row
    assert all("(synthetic)" in row for row in (results / "scores.tsv").read_text(encoding="utf-8").splitlines()[1:])
    names = {"mlm_loss", "mlm_gap", "nsp_accuracy", "synthetic_glue", "synthetic_squad1", "synthetic_swag"}
    assert set(read_json(results / "summary.json")) == names


def test_rows_of_a_model_of_no_published_size_have_no_published_scores(results):
    read = read_results()
    read.pretrain["phase2"]["config"] = {"hidden_size": 64}
    assert read.model is None and not read.sources and all(row.published is None for row in read.rows)
