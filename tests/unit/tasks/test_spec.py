from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.errors import PipelineError
from pipeline_src.tasks.spec import DECLARATIONS, load_spec, load_specs, task_names


def test_fourteen_tasks_fill_seventeen_rows():
    rows = [row for task in task_names() for row in load_spec(task).scores]
    assert len(task_names()) == 14
    assert sorted(rows) == sorted([*task_names(), "mnli_mm", "ax", "ner_test"])
    assert len({row.title for task in task_names() for row in load_spec(task).scores.values()}) == 17


def test_entries_are_short():
    lines = [line for line in DECLARATIONS.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 8 * len(task_names())


def test_diagnostics_have_columns_of_their_own():
    spec = load_spec("mnli")
    assert spec.row("ax").columns.texts == ("Premise", "Hypothesis")
    assert spec.row("ax").metrics == ("matthews",)
    assert spec.row(None) == spec.scores["mnli"]


def test_unknown_task_and_row_say_what_there_is():
    with pytest.raises(PipelineError, match="unknown task: colla[\\s\\S]*cola, sst2"):
        load_spec("colla")
    with pytest.raises(PipelineError, match="no such score row"):
        load_spec("cola").row("ax")


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ("{kind: parsing}", "mine.kind"),
        ("{kind: span, typo: 1}", "mine.typo"),
        ("{kind: classification, columns: {texts: [a], label: b}}", "labels or a range"),
        ("{kind: classification, labels: [x]}", "tables need columns"),
        ("{kind: choice, columns: {texts: [a], label: b}}", "choices belong"),
        ("{kind: tagging, columns: {texts: [1], label: 2}}", "labels or a range"),
        ("{kind: tagging, labels: [O], columns: {texts: [word], label: tag}}", "counted from 1"),
        ("{kind: tagging, labels: [O], columns: {texts: [1, 2], label: 3}}", "one text column"),
        ("{kind: tagging, labels: [O], format: xml, columns: {texts: [1], label: 2}}", "mine.format"),
    ],
)
def test_a_wrong_declaration_names_the_key(tmp_path: Path, entry: str, key: str):
    path = tmp_path / "tasks.yaml"
    scores = "scores: {mine: {title: Mine, file: dev.tsv, metrics: [accuracy]}}, train: train.tsv"
    path.write_text(f"mine: {entry[:-1]}, {scores}}}\n")
    with pytest.raises(PipelineError, match=key):
        load_specs(path)


def test_words_without_tags_are_no_test_file(tmp_path: Path):
    path = tmp_path / "tasks.yaml"
    test = "test: {file: test.txt, columns: {texts: [1]}, submit: mine.txt}"
    scores = f"scores: {{mine: {{title: Mine, file: dev.txt, metrics: [accuracy], {test}}}}}"
    path.write_text(f"mine: {{kind: tagging, labels: [O], columns: {{texts: [1], label: 2}}, {scores}}}\n")
    with pytest.raises(PipelineError, match="takes no test file"):
        load_specs(path)
