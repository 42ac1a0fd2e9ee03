"""Error analysis of a task: confusion, classes of lengths, worst examples."""

from __future__ import annotations

import json
from itertools import compress
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.evaluate.errors import NUM_WORST, by_length, class_scores, confusion, error_analysis, worst
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.task import ExampleResult


def result(gold: str = "1", predicted: str = "1", right: float = 1.0, **more) -> ExampleResult:
    fields = {"id": "0", "text": "a", "words": 1, "confidence": None, **more}
    return ExampleResult(gold=gold, predicted=predicted, right=right, **fields)


def test_confusion_labels_keep_order_of_the_task():
    results = [result("neutral", "entailment"), result("neutral", "neutral"), result("neutral", "entailment")]
    assert confusion(load_spec("mnli"), results) == {
        "labels": ["contradiction", "entailment", "neutral"],
        "counts": [[0, 0, 0], [0, 0, 0], [0, 2, 1]],
    }


def test_confusion_tags_are_counted_by_word():
    spec = SimpleNamespace(kind="tagging", labels=("B-PER", "O"), range=None)
    counts = confusion(spec, [result("B-PER O", "O O"), result("O", "O")])
    assert counts == {"labels": ["B-PER", "O"], "counts": [[0, 1], [0, 2]]}


@pytest.mark.parametrize("task", ["stsb", "squad1", "swag"])
def test_confusion_of_task_without_labels_is_none(task: str):
    assert confusion(load_spec(task), [result()]) is None


def test_class_scores_equal_sklearn():
    metrics = pytest.importorskip("sklearn.metrics")
    labels = ("contradiction", "entailment", "neutral")
    gold, predicted = [labels[n * n % 3] for n in range(60)], [labels[n % 2] for n in range(60)]
    pairs = [result(*pair) for pair in zip(gold, predicted, strict=True)]
    rows = error_analysis(load_spec("mnli"), pairs)["classes"]
    expected = metrics.precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0.0)
    for key, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [row[key] or 0.0 for row in rows] == pytest.approx(values if key == "support" else 100 * values), key


def test_label_scores_equal_sklearn():
    metrics = pytest.importorskip("sklearn.metrics")
    labels = ("a, b", 'c"', "d", "e")
    rng = np.random.default_rng(1)
    gold, predicted = rng.random((2, 60, 4)) < (0.5, 0.3, 0.1, 0.0)
    texts = [[json.dumps([*compress(labels, row)]) for row in side] for side in (gold, predicted)]
    spec = SimpleNamespace(kind="multilabel", labels=labels, range=None)
    analysis = error_analysis(spec, [result(*pair) for pair in zip(*texts, strict=True)])
    expected = metrics.precision_recall_fscore_support(gold, predicted, zero_division=0.0)
    for key, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        scores = [row[key] or 0.0 for row in analysis["classes"]]
        assert scores == pytest.approx(values if key == "support" else 100 * values), key
    assert [row["label"] for row in analysis["classes"]] == list(labels) and analysis["confusion"] is None


def test_class_scores_without_examples_or_predictions_are_none():
    rows = class_scores({"labels": ["a", "b", "c"], "counts": [[4, 0, 0], [1, 0, 0], [0, 0, 0]]})
    assert rows[0] == {"label": "a", "support": 4, "precision": 80.0, "recall": 100.0, "f1": pytest.approx(800 / 9)}
    assert rows[1] == {"label": "b", "support": 1, "precision": None, "recall": 0.0, "f1": 0.0}
    assert rows[2] == {"label": "c", "support": 0, "precision": None, "recall": None, "f1": None}


@pytest.mark.parametrize("task", ["ner", "stsb", "squad1"])
def test_error_analysis_has_class_scores_only_for_classification(task: str):
    assert error_analysis(load_spec(task), [result("O", "O")])["classes"] is None


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=200))
def test_by_length_every_example_is_in_one_class(results: list[tuple[int, bool]]):
    classes = by_length([result(words=words, right=float(right)) for words, right in results])
    assert 1 <= len(classes) <= 5
    assert sum(members["examples"] for members in classes) == len(results)
    for members, following in zip(classes, classes[1:], strict=False):
        assert members["from"] <= members["to"] < following["from"]
    right = sum(members["right"] * members["examples"] for members in classes)
    assert right == pytest.approx(sum(right for _, right in results))
    classes = by_length([result(words=words, right=float(words < 20)) for words in range(100)])
    bounds = [(members["from"], members["to"], members["examples"], members["right"]) for members in classes]
    assert bounds == [(start, start + 19, 20, float(start == 0)) for start in (0, 20, 40, 60, 80)]


def test_worst_most_confident_errors_come_first():
    results = [result(id=str(n), right=float(n % 2), confidence=n / 100) for n in range(60)]
    errors = worst(results)
    assert len(errors) == NUM_WORST == 20
    assert [error["id"] for error in errors][:3] == ["58", "56", "54"]
    results = [result(id=name, right=right) for name, right in (("a", 0.9), ("b", 0.1), ("c", 1.0), ("d", 0.1))]
    assert [error["id"] for error in worst(results)] == ["b", "d", "a"]
