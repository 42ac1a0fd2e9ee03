"""Results as read, their summary, and errors of results that were truncated, edited or written by another version."""

from pathlib import Path

import pytest

from pipeline_src.__main__ import main
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.report import report
from pipeline_src.report.results import read_results, reading_results, summarise
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.model import ModelParams
from tests.unit.report.conftest import ROWS, glue_rows, score_row, update_json, write_scores


def test_summarise_returns_few_numbers_without_nesting(results):
    rows = [*glue_rows(85.0), *ROWS[4:], score_row("squad2", "f1", 1.0), score_row("ner", "entity_f1", 2.0)]
    write_scores(results, rows, ["rte"], further=["ner"])
    assert summarise(read_results()) == {
        **{"mlm_loss": 6.1, "mlm_gap": 0.6, "nsp_accuracy": 0.61, "synthetic_glue": 85.0},
        **{"squad1": 50.0, "swag": 30.0, "squad2": 1.0, "ner": 2.0},
    }


def test_summarise_extra_task_with_reserved_name_gets_own_prefix(results):
    names = ("glue", "squad1", "a", "own_glue")
    rows = [score_row(f"my_{name}", "accuracy", 70.0 + at, eval_set=name) for at, name in enumerate(names)]
    rows += [score_row(f"task{number}", "accuracy", float(number)) for number in range(9)]
    made = [*glue_rows(85.0), score_row("swag", "accuracy", 30.0)]
    write_scores(results, [*made, *rows], [row["task"] for row in made], further=[row["task"] for row in rows])
    summary = summarise(read_results())
    assert (summary["own_glue"], summary["own_squad1"], summary["a"]) == (70.0, 71.0, 72.0)
    assert summary["own_own_glue"] == 73.0 and summary["task8"] == 8.0 and summary["synthetic_glue"] == 85.0


def test_summarise_averages_tasks_from_corpus_with_error(results):
    rows = [
        score_row("word_swap", "accuracy", 60.0, interval=[57.0, 63.0]),
        score_row("cloze", "f1", 20.0, interval=[16.0, 24.0]),
        score_row("cloze", "em", 10.0, main=False),
    ]
    write_scores(results, rows, from_corpus={"word_swap": "", "cloze": ""})
    summary = summarise(read_results())
    assert summary["from_corpus"] == 40.0 and summary["from_corpus_error"] == 2.5


def test_read_results_damaged_curve_is_rejected(results):
    (results / "pretrain" / "phase2.tsv").write_text("step\tloss\n1\tmuch\n")
    with pytest.raises(PipelineError, match="a cell is empty or not a number"):
        read_results()


def test_reading_results_error_names_failing_code():
    with pytest.raises(PipelineError, match=r"(?s)cannot make the table.*ZeroDivisionError.*read by results.py, line"):
        with reading_results("table"):
            1 / 0  # noqa: B018


def test_results_tool_damaged_file_is_rejected(results, capsys):
    (results / "corpus.json").write_text('{"examples": {}}')
    assert main(["results"]) == 2
    assert "cannot make the table" in capsys.readouterr().err


def test_reading_results_error_names_missing_template_value(results):
    update_json(results / "corpus.json", vocabulary={"coverage": 1.0})
    with pytest.raises(PipelineError, match="no attribute 'entries'"):
        report.run()


def test_results_of_unpublished_model_size_have_no_published_scores(results):
    write_scores(results, ROWS)
    assert read_results().sources
    config = read_json(results / "pretrain/phase2.json")["config"] | {"hidden_size": 64}
    update_json(results / "pretrain/phase2.json", config=config)
    read = read_results()
    assert read.model is None and not read.sources and all(row.published is None for row in read.rows)


def test_results_of_other_architecture_have_its_title_and_no_published_scores(results):
    write_scores(results, ROWS)
    assert read_results().title == "BERT-base, from raw text to scores"
    (results / "interpretation").mkdir()
    write_json(results / "interpretation/contents.json", {"model": {"title": "ModernBERT"}})
    read = read_results(architecture="modernbert")
    assert read.title == "ModernBERT, from raw text to scores"
    assert not read.sources and all(row.published is None for row in read.rows)


@pytest.mark.parametrize("folder", ["hub:google-bert/bert-large-uncased@main", "models/imported/minilm"])
def test_results_of_encoder_from_elsewhere_have_no_published_scores(results, folder):
    write_scores(results, ROWS)
    read = read_results(encoder=Path(folder))
    assert read.title == "BERT, from raw text to scores"
    assert not read.sources and all(row.published is None for row in read.rows)
    assert read_results(encoder=Path("models/pretrained/phase1")).sources


def test_report_of_study_with_encoder_from_elsewhere_has_title_without_published_model(results):
    write_scores(results, ROWS)
    sizes = ModelParams(num_hidden_layers=12, hidden_size=768)
    report.run(model=sizes, finetune=FinetuneParams(model="models/imported/minilm"))
    assert (results / "report.md").read_text(encoding="utf-8").startswith("# BERT, from raw text to scores\n")
    report.run(model=sizes, finetune=FinetuneParams())
    assert (results / "report.md").read_text(encoding="utf-8").startswith("# BERT-base, from raw text to scores\n")
