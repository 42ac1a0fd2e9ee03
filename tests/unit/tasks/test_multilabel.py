"""Texts with any number of labels: their files, predictions, threshold and scores."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.examples import TextExample, read_unlabelled
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.task import Task
from tests.unit.tasks.conftest import write

LABELS = ["sport", "money", "music"]
METRICS = ["micro_f1", "macro_f1", "subset_accuracy"]
LISTS = {"texts": ["text"], "labels": ["topics"]}
STATES = {"texts": ["text"], "labels": ["a", "b", "c"]}
SPORT, BOTH, NONE = (True, False, False), (True, True, False), (False, False, False)


def make(columns: dict[str, Any], main: str = "micro_f1", **keys: Any) -> Task:
    metrics = [main, *(metric for metric in METRICS if metric != main)]
    score = {"title": "Topics", "file": "dev.jsonl", "metrics": metrics}
    spec = {"name": "topics", "kind": "multilabel", "labels": LABELS, "columns": columns, "scores": {"topics": score}}
    return make_task(TaskSpec.model_validate(spec | keys))


TASK = make(LISTS)


def examples_of(*sets: tuple[bool, ...]) -> list[TextExample]:
    return [TextExample(str(number), ("w1 w2",), labels) for number, labels in enumerate(sets)]


def logits(*probabilities: list[float]) -> np.ndarray:
    shares = np.array(probabilities)
    return np.log(shares / (1 - shares)).astype(np.float32)


def test_read_lists_of_labels(tmp_path: Path):
    lines = ['{"text": "x", "topics": ["money", "sport", "money"], "more": 1}', '{"text": "y", "topics": []}']
    path = write(tmp_path / "train.jsonl", "\n".join(lines))
    assert [example.label for example in TASK.read(path)] == [BOTH, NONE]


def test_read_parquet_lists_and_states(tmp_path: Path):
    path = tmp_path / "train.parquet"
    columns = {"text": ["x", "y"], "topics": [["money", "sport"], []], "a": [1, 0], "b": [True, False], "c": [0, 1]}
    parquet.write_table(pyarrow.table(columns), path)
    assert [example.label for example in TASK.read(path)] == [BOTH, NONE]
    assert [example.label for example in make(STATES).read(path)] == [BOTH, (False, False, True)]


def test_read_labels_that_are_numbers(tmp_path: Path):
    path = write(tmp_path / "train.jsonl", '{"text": "x", "topics": [3, 1]}')
    (example,) = make(LISTS, labels=["1", "2", "3"]).read(path)
    assert example.label == (True, False, True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.tsv", "text\ta\tb\tc\nx\t1\t1\t0\ny\t0\t0\t0\n"),
        ("train.csv", "text,a,b,c\nx,True,True,False\ny,false,false,false\n"),
        (
            "train.jsonl",
            '{"text": "x", "a": true, "b": 1, "c": "0"}\n{"text": "y", "a": false, "b": 0, "c": "false"}\n',
        ),
    ],
)
def test_read_column_for_each_label(tmp_path: Path, name: str, content: str):
    examples = make(STATES).read(write(tmp_path / name, content))
    assert [(example.texts, example.label) for example in examples] == [(("x",), BOTH), (("y",), NONE)]


@pytest.mark.parametrize(
    ("columns", "name", "content", "message"),
    [
        (LISTS, "a.jsonl", '{"text": "x", "topics": ["sport", "art"]}', r"unknown label: 'art'[\s\S]*a.jsonl:1\n"),
        (LISTS, "a.jsonl", '{"text": "x", "topics": [["sport"]]}', r"unknown label: \['sport'\]"),
        (LISTS, "a.jsonl", '{"text": "x", "topics": "sport"}', r"not a list of labels: 'sport'[\s\S]*a.jsonl:1\n"),
        (LISTS, "a.jsonl", '{"text": "x", "topics": null}', "not a list of labels: None"),
        (LISTS, "a.tsv", "text\ttopics\nx\tsport\n", r"not a list of labels: 'sport'[\s\S]*a.tsv:2\n"),
        (LISTS, "a.jsonl", '{"text": ["x"], "topics": []}', "not a text or a number: text"),
        (LISTS, "a.jsonl", '{"text": "x"}', "no value for a column: topics"),
        (STATES, "a.tsv", "text\ta\tb\tc\nx\t1\t2\t0\n", r"unknown label: '2'[\s\S]*a.tsv:2, column b\n"),
        (STATES, "a.jsonl", '{"text": "x", "a": 1, "b": 0, "c": null}', r"unknown label: 'none'[\s\S]*column c\n"),
    ],
)
def test_read_wrong_labels_are_rejected_with_file_and_line(tmp_path: Path, columns, name, content, message):
    with pytest.raises(PipelineError, match=message) as caught:
        make(columns).read(write(tmp_path / name, content))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("columns", "name", "content", "texts"),
    [
        (LISTS, "a.txt", "one\ntwo\n", [("one",), ("two",)]),
        (LISTS, "a.jsonl", '{"text": "one", "topics": "wrong"}', [("one",)]),
        (STATES, "a.tsv", "text\none\n", [("one",)]),
        ({"texts": ["q", "p"], "labels": ["topics"]}, "a.txt", "one\ttwo\n", [("one", "two")]),
        ({"texts": ["q", "p"], "labels": ["topics"]}, "a.jsonl", '{"text1": "one", "text2": "two"}', [("one", "two")]),
    ],
)
def test_read_unlabelled_ignores_labels(tmp_path: Path, columns, name, content, texts):
    examples = read_unlabelled(make(columns).spec, write(tmp_path / name, content))
    assert [example.texts for example in examples] == texts and {example.label for example in examples} == {None}


def test_features_have_a_number_for_each_label(tokenizer):
    examples = examples_of(BOTH, NONE)
    features = TASK.features(examples, tokenizer, 16)
    assert features.labels.dtype == np.float32 and features.labels.tolist() == [[1, 1, 0], [0, 0, 0]]
    assert TASK.num_outputs == 3 and TASK.features([TextExample("0", ("w1",))], tokenizer, 16).items == 1


def test_predict_keeps_labels_from_threshold_on():
    outputs = logits([0.9, 0.5, 0.1], [0.2, 0.1, 0.31])
    for threshold, expected in ((None, [["sport", "money"], []]), (0.3, [["sport", "money"], ["music"]])):
        rows = TASK.answers(examples_of(BOTH, NONE), None, outputs, threshold)
        assert [row["prediction"] for row in rows] == expected
        assert {row["threshold"] for row in rows} == {threshold or 0.5}
    assert rows[0]["probabilities"] == pytest.approx({"sport": 0.9, "money": 0.5, "music": 0.1})
    assert json.loads(json.dumps(rows)) == rows
    extreme = TASK.predict(examples_of(NONE), None, np.array([[-1e30, 0, 1e30]], np.float32))
    assert extreme[0]["probabilities"] == {"sport": 0.0, "money": 0.5, "music": 1.0}
    with pytest.raises(PipelineError, match="NaN or infinite"):
        TASK.predict(examples_of(NONE), None, np.array([[0.0, np.nan, 0.0]]))


def test_decide_applies_threshold_of_first_set_to_all_sets():
    gold = examples_of(BOTH, SPORT, NONE)
    first = TASK.predict(gold, None, logits([0.4, 0.351, 0.1], [0.38, 0.2, 0.1], [0.2, 0.1, 0.05]))
    other = TASK.predict(gold[:1], None, logits([0.36, 0.34, 0.4]))
    decided = TASK.decide(gold, {"topics": first, "more": other})
    # Thresholds from 0.21 to 0.35 are right for all three texts; the nearest to 0.5 is taken.
    assert {row["threshold"] for rows in decided.values() for row in rows} == {0.35}
    assert [row["prediction"] for row in decided["topics"]] == [["sport", "money"], ["sport"], []]
    assert decided["more"][0]["prediction"] == ["sport", "music"]
    scores = TASK.score("topics", gold, decided["topics"])
    assert scores == {
        "micro_f1": 100.0,
        "macro_f1": pytest.approx(200 / 3),  # no text has or gets the third label
        "subset_accuracy": 100.0,
        "threshold": 0.35,
        "micro_f1_at_half": 0.0,
        "macro_f1_at_half": 0.0,
        "subset_accuracy_at_half": pytest.approx(100 / 3),
    }


@given(data=st.data(), main=st.sampled_from(METRICS))
def test_decide_no_hundredth_has_better_main_metric(data: st.DataObject, main: str):
    task = make(LISTS, main)
    number = data.draw(st.integers(1, 8))
    gold = examples_of(*(data.draw(st.tuples(*3 * [st.booleans()])) for _ in range(number)))
    outputs = np.array([data.draw(st.lists(st.floats(-4, 4), min_size=3, max_size=3)) for _ in range(number)])
    (decided,) = task.decide(gold, {"topics": task.predict(gold, None, outputs)}).values()
    best = task.score("topics", gold, decided)[main]
    for threshold in np.arange(1, 100) / 100:
        assert task.score("topics", gold, task.answers(gold, None, outputs, threshold))[main] <= best


def test_score_of_predictions_without_probabilities():
    rows = [{"id": "0", "prediction": ["money", "sport"]}, {"id": "1", "prediction": ["music"]}]
    assert TASK.score("topics", examples_of(BOTH, NONE), rows) == {
        "micro_f1": pytest.approx(80.0),
        "macro_f1": pytest.approx(200 / 3),
        "subset_accuracy": 50.0,
    }


@pytest.mark.parametrize("prediction", ["sport", None, ["sport", "art"], [["sport"]]])
def test_score_wrong_prediction_is_rejected(prediction: object):
    with pytest.raises(PipelineError, match="invalid prediction"):
        TASK.score("topics", examples_of(SPORT), [{"id": "0", "prediction": prediction}])


@given(st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=12))
def test_majority_baseline_is_the_best_set_of_labels_for_all_texts(sets: list[tuple[bool, ...]]):
    examples = examples_of(*sets)
    best = TASK.majority_baseline("topics", examples)
    for metric in METRICS:
        constant = []
        for labels in itertools.product([False, True], repeat=3):
            answer = [label for label, given_to_all in zip(LABELS, labels, strict=True) if given_to_all]
            rows = [{"id": example.id, "prediction": answer} for example in examples]
            constant.append(TASK.score("topics", examples, rows)[metric])
        assert best[metric] == pytest.approx(max(constant))


def test_example_results_show_lists_of_labels():
    rows = TASK.predict(examples_of(BOTH, NONE), None, logits([0.9, 0.2, 0.1], [0.1, 0.1, 0.1]))
    first, second = TASK.example_results("topics", examples_of(BOTH, NONE), rows)
    assert (first.gold, first.predicted, first.right) == ('["sport", "money"]', '["sport"]', 0.0)
    assert (second.gold, second.predicted, second.right, second.words) == ("[]", "[]", 1.0, 2)
