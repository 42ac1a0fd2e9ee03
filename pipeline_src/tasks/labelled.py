"""Examples with one label each: what classification and multiple choice have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks.files.reading import FETCH_AGAIN
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.metrics import compute_metrics, majority_score
from pipeline_src.tasks.predictions import HasId
from pipeline_src.tasks.sums import SUMS, Sums

UNLABELLED = -1  # label of an example of a test file, which nobody may learn from


class Labelled(HasId, Protocol):
    """An example with the number of its class, or the value of a regression; None in a test file."""

    @property
    def label(self) -> float | None:
        """That number."""

    @property
    def group(self) -> str | None:
        """What its row says it was taken with."""


def label_index(text: str, labels: Sequence[str], where: str) -> int:
    """The number of a class as a file spells it.

    Raises:
        PipelineError: it is none of ``labels``.
    """
    if text not in labels:
        remedy = f"labels are {', '.join(labels)}; {FETCH_AGAIN}"
        raise PipelineError("unknown label", repr(text), where=where, remedy=remedy)
    return list(labels).index(text)


def label_array(examples: Sequence[Labelled], dtype: type[np.generic] = np.int64) -> np.ndarray:
    """The labels, [examples], ``UNLABELLED`` for those of a test file."""
    return np.array([UNLABELLED if example.label is None else example.label for example in examples], dtype)


def gold_labels(examples: Sequence[Labelled]) -> list[float]:
    """The right answers of a labelled file."""
    labels = [example.label for example in examples if example.label is not None]
    assert len(labels) == len(examples)  # a test file is submitted, never scored here
    return labels


def label_scores(
    spec: TaskSpec, eval_set: str, examples: Sequence[Labelled], given: Sequence[float]
) -> dict[str, float]:
    """Each metric of an evaluation set, in percent, of the labels that a system gave."""
    return compute_metrics(spec.eval_set(eval_set).metrics, gold_labels(examples), given)


def label_sums(
    spec: TaskSpec, eval_set: str, examples: Sequence[Labelled], given: Sequence[Sequence[float]]
) -> dict[str, Sums]:
    """What each example adds to each metric of an evaluation set, of the labels that several systems gave."""
    gold = gold_labels(examples)
    return {metric: SUMS[metric](gold, given) for metric in spec.eval_set(eval_set).metrics}


def group(example: Labelled) -> str | None:
    """That of its row, where the task names a column for it."""
    return example.group


def most_probable(examples: Sequence[HasId], outputs: np.ndarray, classes: Sequence[Any]) -> list[dict[str, Any]]:
    """Prediction rows from outputs, float [examples, classes].

    A row holds ``id``, ``prediction`` (the most probable one of ``classes``) and ``outputs`` (one per class, before
    softmax).
    """
    return [
        {"id": example.id, "prediction": classes[int(np.argmax(scores))], "outputs": [float(x) for x in scores]}
        for example, scores in zip(examples, outputs, strict=True)
    ]


def constant_scores(spec: TaskSpec, eval_set: str, examples: Sequence[Labelled]) -> dict[str, float]:
    """What the best constant prediction gets, per metric of an evaluation set, in percent."""
    gold = gold_labels(examples)
    return {metric: majority_score(metric, gold) for metric in spec.eval_set(eval_set).metrics}


def numbered_table(header: str, separator: str, values: Sequence[Any]) -> str:
    """A table for a leaderboard: a header, then the number of each row, counted from 0, and its prediction."""
    return "".join([f"{header}\n", *(f"{index}{separator}{value}\n" for index, value in enumerate(values))])
