"""report.md and the terminal's table."""

import re
from argparse import Namespace

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.report import table
from pipeline_src.report.columns import score_rows
from pipeline_src.report.results import read_results
from pipeline_src.report.table import average_line, render_markdown, validation_line
from tests.unit.report.conftest import ROWS, score_row, write_scores


def test_average_line_says_how_many_scores_it_averages():
    line = average_line(score_rows({"rules": {}, "rows": ROWS}))
    assert line.endswith("85.0") and "2 of the 9 scores" in line
    assert average_line([]).endswith("none")


def test_validation_line_without_next_sentences_says_so(results):
    validation = read_results().pretrain["phase2"]["validation"]
    assert "gap +0.600 nats); NSP accuracy 61.0 % (larger class 57.0 %)" in validation_line(validation)
    del validation["nsp_accuracy"]
    assert validation_line(validation).endswith("no next sentences")


def test_markdown_of_a_mixed_study_folds_synthetic_scores(results):
    mine = [score_row("mine", "accuracy", 77.0), score_row("mine", "f1", 66.0, main=False)]
    write_scores(results, [*ROWS, *mine], ["rte", "mrpc", "wnli", "squad1"], further=["mine"])
    text = render_markdown(read_results())
    real, folded = text.split("<details><summary>6 of synthetic tasks</summary>")
    assert re.search(r"\| MINE +\| accuracy +\| dev +\| +77.0", real) and "| RTE" not in real
    assert re.search(r"\| RTE \(synthetic\)", folded)


def test_markdown_of_a_diagnosed_phase_shows_the_sentence_as_text(results):
    path = results / "pretrain/phase2.json"
    sentence = "0.60 nats below the unigram baseline after 8.19 M tokens: normal | [UNK] <b>"
    write_json(path, read_json(path) | {"diagnosis": {"sentence": sentence, "cause": None}})
    shown = sentence.replace("|", "\\|").replace("<", "&lt;")
    text = render_markdown(read_results())
    assert f"\n\nIs this normal? phase2: {shown}.\n\n" in text and "Is this normal? phase1" not in text


def test_markdown_of_losses_by_source_shows_gain_and_forgetting(results):
    path = results / "pretrain/phase2.json"
    books = [{"step": step, "mlm_loss": loss} for step, loss in ((10, 4.2), (1_200, 3.75), (1_400, 3.71), (1_500, 3.7))]
    wikipedia = [{"step": 10, "mlm_loss": 4.5}, {"step": 1_500, "mlm_loss": 4.75}]
    losses = {"source_losses": {"books": books, "wikipedia": wikipedia}, "by_source": {"ltg": books}}
    write_json(path, read_json(path) | losses)
    text = render_markdown(read_results())
    line = "books 4.200 -> 3.700 (-0.500, nine tenths by step 1,200); wikipedia 4.500 -> 4.750 (+0.250: forgotten)"
    assert f"Going on from another model, phase2: MLM loss on {line}" in text
    assert "By source, phase2: MLM loss on ltg 3.700" in text and "phase1: MLM" not in text


def test_table_without_results_is_one_error(results):
    (results / "scores.json").unlink()
    with pytest.raises(PipelineError, match="scores.json"):
        table.main(Namespace())
