"""Where a model goes wrong, counted by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.evaluation.scores import WORST, by_length, confusion, worst
from pipeline_src.tasks.spec import load_spec
from pipeline_src.tasks.task import ExampleResult


def result(gold: str = "1", predicted: str = "1", right: float = 1.0, **more) -> ExampleResult:
    given = {"id": "0", "text": "a", "words": 1, "confidence": None, **more}
    return ExampleResult(gold=gold, predicted=predicted, right=right, **given)


def test_confusion_has_every_label_in_the_order_of_the_task():
    found = [result("neutral", "entailment"), result("neutral", "neutral"), result("neutral", "entailment")]
    assert confusion(load_spec("mnli"), found) == {
        "labels": ["contradiction", "entailment", "neutral"],
        "counts": [[0, 0, 0], [0, 0, 0], [0, 2, 1]],
    }


def test_tags_are_counted_word_by_word():
    spec = SimpleNamespace(kind="tagging", labels=(), range=None)
    found = confusion(spec, [result("B-PER O", "O O"), result("O", "O")])
    assert found == {"labels": ["B-PER", "O"], "counts": [[0, 1], [0, 2]]}


@pytest.mark.parametrize("task", ["stsb", "squad1", "swag"])
def test_what_has_no_labels_has_no_matrix(task: str):
    assert confusion(load_spec(task), [result()]) is None


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=200))
def test_every_example_is_in_one_class_of_lengths(found: list[tuple[int, bool]]):
    classes = by_length([result(words=words, right=float(right)) for words, right in found])
    assert 1 <= len(classes) <= 5
    assert sum(members["examples"] for members in classes) == len(found)
    for members, following in zip(classes, classes[1:], strict=False):
        assert members["from"] <= members["to"] < following["from"]
    right = sum(members["right"] * members["examples"] for members in classes)
    assert right == pytest.approx(sum(right for _, right in found))


def test_classes_of_lengths_are_of_equal_size():
    classes = by_length([result(words=words, right=float(words < 20)) for words in range(100)])
    assert [(members["from"], members["to"], members["examples"], members["right"]) for members in classes] == [
        (0, 19, 20, 1.0),
        (20, 39, 20, 0.0),
        (40, 59, 20, 0.0),
        (60, 79, 20, 0.0),
        (80, 99, 20, 0.0),
    ]


def test_the_worst_are_the_surest_errors():
    found = [result(id=str(n), right=float(n % 2), confidence=n / 100) for n in range(60)]
    errors = worst(found)
    assert len(errors) == WORST == 20
    assert [error["id"] for error in errors][:3] == ["58", "56", "54"]


def test_without_confidence_the_least_right_come_first():
    found = [result(id=name, right=right) for name, right in (("a", 0.9), ("b", 0.1), ("c", 1.0), ("d", 0.1))]
    assert [error["id"] for error in worst(found)] == ["b", "d", "a"]
