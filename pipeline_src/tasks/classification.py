"""Handler of classification and regression over one or two segments: the GLUE tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks.example_result import ExampleResult
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.files.reading import FETCH_AGAIN, read_columns
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.labelled import (
    constant_scores,
    gold_labels,
    label_array,
    label_index,
    label_scores,
    label_sums,
    most_probable,
    numbered_table,
)
from pipeline_src.tasks.labelled import group as group  # a handler has one
from pipeline_src.tasks.predictions import align, align_rows, certainty, check_outputs, not_a_prediction
from pipeline_src.tasks.sequences import encode, pair_features
from pipeline_src.tasks.sums import Sums
from pipeline_src.tokenizer.frame import read_frames

head = "sequence"


@dataclass(frozen=True)
class Example:
    """One row: its number (counted from 0), one or two texts, the class's number or the regression's value, its group.

    Examples of a test file have no label.
    """

    id: str
    texts: tuple[str, ...]
    label: float | None
    group: str | None = None


def outputs(spec: TaskSpec) -> int:
    """Width of the head: the classes, or 1 for a regression."""
    return len(spec.labels) or 1


def read(
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    test: bool = False,
    counts: Counter[str] | None = None,
) -> list[Example]:
    """Read a table in the task's layout, or in that of an evaluation set or of its test file where these differ.

    Args:
        spec: the task.
        path: the file; its suffix tells the format, see :mod:`reading`.
        eval_set: the evaluation set it belongs to; None for the training file.
        test: whether it is the set's file without labels.
        counts: filled with what was dropped, by reason.

    Raises:
        PipelineError: an empty file, a missing column, a short row or an unknown label; file and line are named.
    """
    path = Path(path)
    layout = spec.layout(eval_set, test)
    label = layout.columns.label
    return [
        Example(
            id=str(index),
            texts=tuple(fields[column] for column in layout.columns.texts),
            label=None if label is None else _label(spec, layout.labels, fields[label], f"{path}:{number}"),
            group=fields[layout.columns.group] or None if layout.columns.group else None,
        )
        for index, (number, fields) in enumerate(read_columns(spec.name, path, layout, counts))
    ]


def _label(spec: TaskSpec, labels: tuple[str, ...], text: str, where: str) -> float:
    if spec.range is None:
        return label_index(text, labels, where)
    low, high = spec.range
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        remedy = f"scores lie between {low:g} and {high:g}; {FETCH_AGAIN}"
        raise PipelineError("unknown label", repr(text), where=where, remedy=remedy)
    return value


def features(spec: TaskSpec, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> Features:
    """One sequence per example, the longer segment cut first; see :func:`sequences.pair_features`.

    Examples of a test file get the label -1, which nobody may learn from.
    """
    segments = [
        encode(tokenizer, [example.texts[place] for example in examples]) for place in range(len(examples[0].texts))
    ]
    pairs = zip(segments[0], segments[1] if len(segments) == 2 else [None] * len(examples), strict=True)
    labels = label_array(examples, np.float32 if spec.range else np.int64)
    return pair_features(spec.name, pairs, labels, read_frames(tokenizer), max_length)


def predict(
    spec: TaskSpec, examples: Sequence[Example], features: Features, outputs: np.ndarray
) -> list[dict[str, Any]]:
    """Prediction rows from outputs, float [items, classes] or [items, 1].

    A row holds ``id``, ``prediction`` (a label as the task spells it, or a number within the range) and, for classes,
    ``outputs`` (one per class, before softmax).

    Raises:
        PipelineError: an output is NaN or infinite.
    """
    check_outputs(spec.name, outputs, (features.items, len(spec.labels) or 1))
    if spec.range is not None:
        values = np.clip(outputs[:, 0].astype(float), *spec.range)
        return [{"id": example.id, "prediction": float(value)} for example, value in zip(examples, values, strict=True)]
    return most_probable(examples, outputs, spec.labels)


def score(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Each metric of an evaluation set, in percent.

    Raises:
        PipelineError: predictions and examples do not belong together, or a prediction is not a label.
    """
    return label_scores(spec, eval_set, examples, _numbers(spec, examples, predictions))


def _numbers(spec: TaskSpec, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> list[float]:
    return [_number(spec, value) for value in align(spec.name, examples, predictions)]


def _number(spec: TaskSpec, value: Any) -> float:
    if spec.range is None and value in spec.labels:
        return spec.labels.index(value)
    if spec.range is not None and isinstance(value, int | float) and math.isfinite(value):
        return value
    allowed = ", ".join(spec.labels) or "finite numbers"
    raise not_a_prediction(spec.name, value, f"allowed: {allowed}")


def sums(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], systems: Sequence[Sequence[dict[str, Any]]]
) -> dict[str, Sums]:
    """What each example adds to each metric; errors as :func:`score`."""
    return label_sums(spec, eval_set, examples, [_numbers(spec, examples, predictions) for predictions in systems])


def majority_baseline(spec: TaskSpec, eval_set: str, examples: Sequence[Example]) -> dict[str, float]:
    """What the best constant prediction gets, per metric, in percent."""
    return constant_scores(spec, eval_set, examples)


def example_results(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> list[ExampleResult]:
    """One per example: right or wrong for a class, the share of the range that was not missed for a number.

    Raises:
        PipelineError: as :func:`score`.
    """
    results = []
    rows = align_rows(spec.name, examples, predictions)
    for example, gold, given in zip(examples, gold_labels(examples), rows, strict=True):
        value = _number(spec, given["prediction"])
        if spec.range is None:
            right, spelt = float(value == gold), (spec.labels[int(gold)], given["prediction"])
        else:
            right = 1 - abs(value - gold) / (spec.range[1] - spec.range[0])
            spelt = f"{gold:.3f}", f"{value:.3f}"
        text = "\n".join(example.texts)
        results.append(ExampleResult(example.id, text, len(text.split()), *spelt, right, certainty(given)))
    return results


def submission(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> dict[str, str]:
    """The file that a leaderboard wants, by name, in GLUE's layout: a header and ``index``, ``prediction`` per row.

    Labels as the task spells them, scores with three digits and within the range: as nyu-mll/GLUE-baselines writes
    them (``src/main.py``). Nothing for a set that has no test file.

    Raises:
        PipelineError: as :func:`score`.
    """
    test = spec.eval_set(eval_set).test
    if test is None:
        return {}
    values = align(spec.name, examples, predictions)
    numbers = [_number(spec, value) for value in values]
    shown = values if spec.range is None else [f"{value:.3f}" for value in np.clip(numbers, *spec.range)]
    return {test.submit: numbered_table("index\tprediction", "\t", shown)}
