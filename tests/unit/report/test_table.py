"""report.md and the table on the terminal."""

import re
import shutil
from argparse import Namespace

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.report import table
from pipeline_src.report.columns import TERMINAL, score_rows, text_table
from pipeline_src.report.page import render_page
from pipeline_src.report.results import read_results, summarise
from pipeline_src.report.table import average_line, render_markdown, validation_line
from tests.unit.report.conftest import ROWS, VALIDATION, glue_rows, score_row, update_json, write_scores


def test_average_line_names_scores_chosen_on_dev_sets():
    rows = glue_rows(85.0)
    line = average_line(score_rows({"rules": {}, "best_epoch": ["wnli"], "rows": rows}))
    assert line.endswith("85.0") and "chosen" not in line  # WNLI is not averaged
    assert "chosen" in average_line(score_rows({"rules": {}, "best_epoch": ["rte"], "rows": rows}))
    assert average_line(score_rows({"rules": {}, "rows": ROWS})).endswith("none, with 2 of its 9 scores")


def test_validation_line_has_nsp_accuracy_if_measured():
    assert "gap +0.600 nats); NSP accuracy 61.0 % (larger class 57.0 %)" in validation_line(VALIDATION)
    without = {name: value for name, value in VALIDATION.items() if not name.startswith("nsp")}
    assert validation_line(without).endswith("no next sentences")


def test_text_table_aligns_numbers_right():
    rows = score_rows({"rules": {}, "rows": [score_row("a", "f1", 5.0), score_row("long", "f1", 100.0)]})
    assert [line.split(" | ")[:3] for line in text_table(TERMINAL, rows).splitlines()] == [
        ["| task", "metric", "score"],
        ["| ----", "------", "----:"],
        ["| A   ", "F1    ", "  5.0"],
        ["| LONG", "F1    ", "100.0"],
    ]


def test_markdown_of_real_and_synthetic_tasks_folds_synthetic_scores(results):
    extra = [score_row("mine", "accuracy", 77.0), score_row("mine", "f1", 66.0, main=False)]
    write_scores(results, [*ROWS, *extra], ["rte", "mrpc", "wnli", "squad1"], further=["mine"])
    real, folded = render_markdown(read_results()).split("<details><summary>6 of synthetic tasks</summary>")
    assert re.search(r"\| MINE +\| accuracy +\| dev +\| +77.0", real) and "| RTE" not in real
    assert re.search(r"\| RTE \(synthetic\)", folded)


def test_markdown_shows_diagnosis_as_escaped_text(results):
    sentence = "0.60 nats below the unigram baseline after 8.19 M tokens: normal | [UNK] <b>"
    update_json(results / "pretrain/phase2.json", diagnosis={"sentence": sentence})
    text = render_markdown(read_results())
    escaped = sentence.replace("|", "\\|").replace("<", "&lt;")
    assert f"\n\nIs this normal? phase2: {escaped}.\n\n" in text and "Is this normal? phase1" not in text


def test_markdown_of_overlapping_validation_text_has_warning(results):
    for warning in ({}, {"overlap_warning": "16 of 64 validation documents share a run of 13 words"}):
        update_json(results / "corpus.json", **warning)
        read = read_results()
        sentence = "16 of 64 validation documents share a run of 13 words."
        assert (f"**{sentence}**" in render_markdown(read)) == bool(warning)
        assert (f"<strong>{sentence}</strong>" in render_page(read, summarise(read))) == bool(warning)


def test_markdown_of_losses_by_source_shows_gain_and_forgetting(results):
    books = [{"step": step, "mlm_loss": loss} for step, loss in ((10, 4.2), (1_200, 3.75), (1_400, 3.71), (1_500, 3.7))]
    wikipedia = [{"step": 10, "mlm_loss": 4.5}, {"step": 1_500, "mlm_loss": 4.75}]
    losses = {"source_losses": {"books": books, "wikipedia": wikipedia}, "by_source": {"ltg": books}}
    update_json(results / "pretrain/phase2.json", **losses)
    text = render_markdown(read_results())
    line = "books 4.200 -> 3.700 (-0.500, nine tenths by step 1,200); wikipedia 4.500 -> 4.750 (+0.250: forgotten)"
    assert f"Going on from another model, phase2: MLM loss on {line}" in text
    assert "By source, phase2: MLM loss on ltg 3.700" in text and "phase1: MLM" not in text


def test_reports_of_three_phases_show_losses_by_position(results):
    corpus = read_json(results / "corpus.json")
    corpus["examples"]["phase3"] = corpus["examples"]["phase2"] | {"length": 2048}
    write_json(results / "corpus.json", corpus)
    for suffix in ("json", "tsv"):
        shutil.copyfile(results / f"pretrain/phase2.{suffix}", results / f"pretrain/phase3.{suffix}")
    update_json(results / "pretrain/phase2.json", by_position={"0-511": 4.25, "1024-2047": 5.5})
    update_json(results / "pretrain/phase3.json", by_position={"0-511": 4.0, "1024-2047": 4.125}, steps_before=20)
    update_json(results / "pretrain/phase3.json", validation=VALIDATION | {"mlm_loss": 3.125})
    read = read_results()
    assert "MLM loss at positions 1024-2047: 5.500 after phase2, 4.125 after phase3" in render_markdown(read)
    assert summarise(read)["mlm_loss"] == 3.125
    html = render_page(read, summarise(read))
    assert "5.500" in html and "4.125" in html and "2,048" in html
    assert "for all phases" in html and "Examples of phase3" in html


def test_results_tool_without_results_is_rejected(results):
    (results / "scores.json").unlink()
    with pytest.raises(PipelineError, match="scores.json"):
        table.main(Namespace())
