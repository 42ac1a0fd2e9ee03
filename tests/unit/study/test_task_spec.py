from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from pipeline_src.base.errors import PipelineError
from pipeline_src.evaluate.submissions import GLUE
from pipeline_src.study.task_spec import Columns, TaskSpec, load_spec, task_names


def test_load_spec_titles_and_submission_files_are_unique():
    eval_sets = {name: eval_set for task in task_names() for name, eval_set in load_spec(task).scores.items()}
    assert sorted(eval_sets) == sorted([*task_names(), "mnli_mm", "ax", "ner_test"])
    assert len({eval_set.title for eval_set in eval_sets.values()}) == len(eval_sets)
    tests = [
        (eval_set.test.submit, eval_set.test.file, eval_set.file) for eval_set in eval_sets.values() if eval_set.test
    ]
    names = [name for name, *_ in tests]
    assert len(set(names)) == len(names) and {f"{name}.tsv" for name in GLUE} <= set(names)
    assert all(test_file != file for _, test_file, file in tests)


def test_task_spec_layout_of_test_file_has_no_label():
    cola, mnli = load_spec("cola"), load_spec("mnli")
    assert (cola.layout().header, cola.layout().columns.required) == (False, (4, 2))
    assert (cola.layout("cola", test=True).header, cola.layout("cola", test=True).columns.required) == (
        True,
        ("sentence",),
    )
    assert mnli.layout("ax").columns.required == ("Premise", "Hypothesis", "Label")
    assert mnli.layout("ax", test=True).columns.required == ("sentence1", "sentence2")
    assert mnli.eval_set("ax").metrics == ("matthews",) and mnli.eval_set(None) == mnli.scores["mnli"]
    assert load_spec("qqp").layout().drop_short and not load_spec("qqp").layout("qqp", test=True).drop_short


def test_load_spec_unknown_task_or_eval_set_is_rejected():
    with pytest.raises(PipelineError, match="no such catalogue entry: colla[\\s\\S]*cola, conll_pos"):
        load_spec("colla")
    with pytest.raises(PipelineError, match="no such evaluation set"):
        load_spec("cola").eval_set("ax")


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ("{kind: parsing}", r"kind = 'parsing'"),
        ("{kind: span, typo: 1}", r"(?s)unknown key: typo.*tasks/mine.yaml.*allowed here: name, kind, train"),
        ("{kind: span, columns: {texts: [a]}}", "leave out `columns`"),
        ("{kind: span, labels: [x, y]}", "kind span has no `labels`"),
        ("{kind: choice, labels: [x, y], columns: {texts: [a], label: b}}", "kind choice has no `labels`"),
        ("{kind: classification, columns: {texts: [a], label: b}}", "`labels` is missing: a classification"),
        ("{kind: classification, labels: [x, y], range: [0, 1], columns: {texts: [a], label: b}}", "both are given"),
        ("{kind: classification, labels: [x]}", "`columns` is missing: kind classification"),
        ("{kind: choice, columns: {texts: [a], label: b}}", "`choices` is missing"),
        (
            "{kind: classification, labels: [x, y], columns: {texts: [a], label: b, choices: [c]}}",
            "only kind choice has `choices`",
        ),
        ("{kind: tagging, columns: {texts: [1], label: 2}}", "kind tagging needs the list of `labels`"),
        ("{kind: tagging, labels: [O, B], range: [0, 1], columns: {texts: [1], label: 2}}", "and has no `range`"),
        ("{kind: multilabel, columns: {texts: [a], labels: [b]}}", "kind multilabel needs the list of `labels`"),
        ("{kind: multilabel, labels: [x, y], range: [0, 1], columns: {texts: [a], labels: [b]}}", "has no `range`"),
        ("{kind: multilabel, labels: [x, y], columns: {texts: [a]}}", "one column for each label"),
        ("{kind: multilabel, labels: [x, y], columns: {texts: [a], label: b}}", "in place of `label`"),
        ("{kind: multilabel, labels: [x, y], columns: {texts: [a], label: b, labels: [c]}}", "in place of `label`"),
        ("{kind: multilabel, labels: [x, y, z], columns: {texts: [a], labels: [b, c]}}", "one column for each label"),
        ("{kind: multilabel, labels: [x, y], columns: {texts: [a], labels: [b]}}", "macro_f1, micro_f1, subset_acc"),
        ("{kind: classification, labels: [x, y], columns: {texts: [a], labels: [b]}}", "and no other, has `labels`"),
        ("{kind: retrieval, columns: {texts: [q, p], labels: [b]}}", "and no other, has `labels`"),
        (
            "{kind: classification, labels: [x, y], columns: {text: [a], label: b}}",
            "allowed here: texts, label, choices",
        ),
        ("{kind: classification, labels: [x, y], columns: {label: b}}", "a key is missing: columns.texts"),
        ("{kind: tagging, labels: [O, B-X], columns: {texts: [word], label: tag}}", "numbers \\(from 1\\)"),
        ("{kind: tagging, labels: [O, B-X], columns: {texts: [1, 2], label: 3}}", "one text column"),
        ("{kind: tagging, labels: [O, B-X], format: xml, columns: {texts: [1], label: 2}}", "format = 'xml'"),
        ("{kind: classification, labels: [x, y], columns: {texts: [a]}}", "needs a label column"),
        (
            "{kind: classification, labels: [x, y], header: false, columns: {texts: [a], label: 2}}",
            "columns must be numbers from 1",
        ),
        ("{kind: classification, range: [0, 1], columns: {texts: [a], label: b}}", "pearson, spearman"),
        (
            "{kind: classification, unanswerable: true, labels: [x, y], columns: {texts: [a], label: b}}",
            "kind classification has no questions without an answer; leave out `unanswerable`",
        ),
        ("{kind: tagging, labels: [O, proper noun], columns: {texts: [1], label: 2}}", "'proper noun' has white space"),
        ('{kind: tagging, labels: [O, "a\\u00a0b"], columns: {texts: [1], label: 2}}', "has white space"),
        ('{kind: tagging, labels: [O, "b "], columns: {texts: [1], label: 2}}', "'b ' has white space"),
    ],
)
def test_load_spec_invalid_declaration_is_rejected_with_key(catalogue: Path, entry: str, key: str):
    scores = "scores: {mine: {title: Mine, file: dev.tsv, metrics: [accuracy]}}, train: train.tsv"
    (catalogue / "tasks/mine.yaml").write_text(f"{entry[:-1]}, {scores}}}\n")
    with pytest.raises(PipelineError, match=key):
        load_spec("mine")


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("squad1", {"train": "a.parquet"}, "span does not read Parquet; convert its files to SQuAD's JSON"),
        ("ner", {"train": "a.parquet"}, "tagging does not read Parquet; convert its files to CoNLL"),
        ("ner", {"scores": {"ner": {"file": "a.parquet"}}}, "tagging does not read Parquet"),
        (
            "squad2",
            {"scores": {"squad2": {"test": {"file": "a.parquet", "submit": "s"}}}},
            "span does not read Parquet",
        ),
    ],
)
def test_task_spec_parquet_of_tags_or_spans_is_rejected(task: str, change: dict, message: str):
    entry = load_spec(task).model_dump(exclude_unset=True)
    scores = change.get("scores", {})
    for name, keys in scores.items():
        entry["scores"][name] |= keys
    with pytest.raises(ValidationError, match=message):
        TaskSpec.model_validate(entry | {key: value for key, value in change.items() if key != "scores"})


@pytest.mark.parametrize("column", ["0", "-1", "1.5", "true", "[a]", "null"])
@pytest.mark.parametrize("key", ["texts", "label"])
def test_load_spec_invalid_column_is_rejected_with_readable_message(catalogue: Path, column: str, key: str):
    columns = {"texts": "[1]", "label": "2"} | {key: f"[{column}]" if key == "texts" else column}
    entry = f"kind: tagging\nlabels: [O, B-X]\ncolumns: {{texts: {columns['texts']}, label: {columns['label']}}}\n"
    scores = "scores: {mine: {title: Mine, file: dev.txt, metrics: [accuracy]}}\n"
    (catalogue / "tasks/mine.yaml").write_text(entry + scores)
    with pytest.raises(PipelineError) as caught:
        load_spec("mine")
    assert not re.search(r"\b(int|str)\b|Input|constrained|function|tuple", str(caught.value))
    assert "from 1" in str(caught.value) or "needs a label column" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "column", "metric"), [("tagging", "label: 2", "accuracy"), ("multilabel", "labels: [2]", "micro_f1")]
)
def test_load_spec_test_file_of_kind_without_leaderboard_is_rejected(
    catalogue: Path, kind: str, column: str, metric: str
):
    test = "test: {file: test.txt, columns: {texts: [1]}, submit: mine.txt}"
    scores = f"scores: {{mine: {{title: Mine, file: dev.txt, metrics: [{metric}], {test}}}}}"
    entry = f"{{kind: {kind}, labels: [O, B-X], columns: {{texts: [1], {column}}}, {scores}}}\n"
    (catalogue / "tasks/mine.yaml").write_text(entry)
    with pytest.raises(PipelineError, match="does not support a `test` file"):
        load_spec("mine")


def test_load_spec_test_file_with_label_columns_is_rejected(catalogue: Path):
    test = "test: {file: test.tsv, columns: {texts: [a], labels: [b]}, submit: mine.txt}"
    scores = f"scores: {{mine: {{title: Mine, file: dev.tsv, metrics: [accuracy], {test}}}}}"
    entry = f"{{kind: classification, labels: [x, y], columns: {{texts: [a], label: b}}, {scores}}}\n"
    (catalogue / "tasks/mine.yaml").write_text(entry)
    with pytest.raises(PipelineError, match="a test file has no label column"):
        load_spec("mine")


def test_task_spec_dump_has_label_columns_only_of_multilabel():
    """A dump is in the config.json of every fine-tuned model, and in the keys of cached features."""
    assert not any('"labels":[]' in columns.model_dump_json() for columns in map(columns_of, task_names()) if columns)
    columns = Columns(texts=("a",), labels=("b",))
    assert Columns.model_validate(columns.model_dump()) == columns and columns.without_labels().required == ("a",)


def columns_of(task: str) -> Columns | None:
    return load_spec(task).columns


@pytest.mark.parametrize(
    ("change", "score_change", "message"),
    [
        ({"columns": None}, {}, "needs two text columns"),
        ({"columns": {"texts": ["q"]}}, {}, "needs two text columns"),
        ({"columns": {"texts": ["q", "p"], "choices": ["c"]}}, {}, "needs two text columns"),
        ({"columns": {"texts": ["q", "p"], "label": "l"}}, {}, "needs `labels`"),
        ({}, {"columns": {"texts": ["q"]}}, "dev.tsv: retrieval needs"),
        ({}, {"corpus": "corpus.jsonl"}, "need each other"),
        ({}, {"metrics": ["accuracy"]}, "use one of mrr_at_10, ndcg_at_10, recall_at_100"),
        ({}, {"test": {"file": "test.tsv", "submit": "x.tsv"}}, "does not support a `test` file"),
        ({"kind": "classification", "range": [0, 1]}, {"metrics": ["pearson"]}, "only kind `retrieval` has negatives"),
    ],
)
def test_task_spec_impossible_retrieval_is_rejected(change: dict, score_change: dict, message: str):
    score = {"title": "x", "file": "dev.tsv", "metrics": ["ndcg_at_10"], **score_change}
    columns = {"texts": ["q", "p"], "negatives": ["n"]}
    task = {"name": "mine", "kind": "retrieval", "columns": columns, "scores": {"mine": score}}
    with pytest.raises(ValidationError, match=message):
        TaskSpec.model_validate(task | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["bad", "bad"]}, "listed once"),
        ({"labels": ["only"]}, "two or more"),
        ({"labels": [], "range": [3, 3]}, "lowest, highest"),
        ({"labels": [], "range": [float("-inf"), float("inf")]}, "both between"),
        ({"scores": {"": {"title": "x", "file": "a.tsv", "metrics": ["accuracy"]}}}, "a name has only"),
        ({"scores": {"mine": {"title": "x", "file": "a.tsv", "metrics": ["f1", "em"]}}}, "does not fit"),
        ({"columns": {"texts": [0], "label": 1}, "header": False}, "a number from 1; not 0"),
        ({"scores": {"mine": {"title": "x", "file": "a.tsv", "metrics": ["accuracy"], "labels": ["c"]}}}, "1 labels"),
    ],
)
def test_task_spec_impossible_value_is_rejected(change: dict, message: str):
    score = {"title": "x", "file": "a.tsv", "metrics": ["pearson" if "range" in change else "accuracy"]}
    task = {"name": "mine", "kind": "classification", "columns": {"texts": [1], "label": 2}, "labels": ["a", "b"]}
    with pytest.raises(ValidationError, match=message):
        TaskSpec.model_validate(task | {"scores": {"mine": score}} | change)


CLASSES = {"kind": "classification", "columns": {"texts": ["a"], "label": "y"}, "labels": ["no", "yes"]}
PAIRS = CLASSES | {"columns": {"texts": ["a", "b"], "label": "y"}}
CHOICES = {"kind": "choice", "columns": {"texts": ["a"], "choices": ["x", "z"], "label": "y"}}
WORDS = {"kind": "tagging", "columns": {"texts": [1], "label": 2}, "labels": ["no", "yes"]}
NUMBERED = CLASSES | {"columns": {"texts": [1], "label": 2}, "header": False}


def make_spec(task: dict, change: dict) -> TaskSpec:
    score = {"title": "x", "file": "dev.tsv", "metrics": ["accuracy"], **change}
    return TaskSpec.model_validate({"name": "mine", **task, "scores": {"mine": score}})


def with_test(**keys: object) -> dict:
    return {"test": {"file": "test.tsv", "submit": "x", **keys}}


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        (NUMBERED, {"columns": {"texts": ["a"], "label": "y"}}, "dev.tsv: without a header, columns must be numbers"),
        (NUMBERED, with_test(columns={"texts": ["a"]}), "test.tsv: without a header, columns must be numbers"),
        (CLASSES, with_test(header=False), "test.tsv: without a header, columns must be numbers"),
        (CHOICES, {"columns": {"texts": ["a"], "label": "y"}}, "`choices` is missing"),
        (CHOICES, with_test(columns={"texts": ["a"]}), "`choices` is missing"),
        (CLASSES, {"columns": {"texts": ["a"], "choices": ["x"], "label": "y"}}, "only kind choice has `choices`"),
        (CLASSES, with_test(columns={"texts": ["a"], "choices": ["x"]}), "only kind choice has `choices`"),
        (CLASSES, with_test(columns={"texts": ["a"], "negatives": ["x"]}), "only kind `retrieval` has negatives"),
        (PAIRS, {"columns": {"texts": ["a"], "label": "y"}}, "some `texts` have one column and others two"),
        (PAIRS, with_test(columns={"texts": ["a"]}), "some `texts` have one column and others two"),
        (CLASSES, {"labels": ["no", "no"]}, "each listed once"),
        (CLASSES, {"labels": ["no", ""]}, "none empty"),
        (WORDS, {"labels": ["0", "1"]}, "mine: tags are spelled alike in all files of a task; leave out its `labels`"),
        (WORDS, {"columns": {"texts": ["word"], "label": "tag"}}, "tagging needs the numbers"),
        ({"kind": "span"}, {"metrics": ["f1"], "columns": {"texts": ["a"]}}, "leave out `columns`"),
        ({"kind": "span"}, {"metrics": ["f1"], **with_test(columns={"texts": ["a"]})}, "leave out `columns`"),
    ],
)
def test_task_spec_impossible_evaluation_or_test_file_is_rejected(task: dict, change: dict, message: str):
    make_spec(task, {"metrics": change.get("metrics", ["accuracy"])})
    with pytest.raises(ValidationError, match=message):
        make_spec(task, change)


@pytest.mark.parametrize(
    ("task", "change"),
    [
        (NUMBERED, {"file": "dev.jsonl", "columns": {"texts": ["a"], "label": "y"}}),
        (NUMBERED, with_test(header=True, columns={"texts": ["a"]})),
        (CLASSES, with_test(header=False, columns={"texts": [1]})),
        (CLASSES, {"labels": ["0", "1"]}),
        (CHOICES, with_test()),
    ],
)
def test_task_spec_evaluation_or_test_file_of_another_layout_is_valid(task: dict, change: dict):
    assert make_spec(task, change).scores["mine"].file.startswith("dev")


@pytest.mark.parametrize("label", ["PERSON", "L-PER", "U-PER", "M-PER", "B-", "b-PER", "B_PER", "o"])
def test_task_spec_tags_without_entities_are_rejected_for_entity_f1(label: str):
    words = WORDS | {"labels": ["O", "B-PER", label]}
    assert make_spec(words, {}).labels[2] == label
    with pytest.raises(ValidationError, match=f"not {label}; write the L- and U- of BILOU as E- and S-, and the M-"):
        make_spec(words, {"metrics": ["accuracy", "entity_f1"]})


@pytest.mark.parametrize("prefixes", ["I", "BI", "BIES"])
def test_task_spec_tags_with_entities_are_valid_for_entity_f1(prefixes: str):
    words = WORDS | {"labels": ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "a-b"))]}
    assert make_spec(words, {"metrics": ["entity_f1"]}).kind == "tagging"
