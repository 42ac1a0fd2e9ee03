"""The examples of each kind of task, read from its files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks.readers import FETCH_AGAIN, read_columns, read_questions, read_sentences
from pipeline_src.tasks.spec import TaskSpec


def read_examples(
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    test: bool = False,
    counts: Counter[str] | None = None,
) -> list[Any]:
    """Read the examples of a data file, in the file's order.

    Args:
        eval_set: the evaluation set that it belongs to, whose layout may differ; None for the training file.
        test: whether it is the set's file without labels.
        counts: filled with the number of dropped or doubtful rows, by reason.

    Returns:
        :class:`TextExample`, :class:`ChoiceExample`, ``Question`` or ``TaggedSentence``, by the task's kind.
    """
    path = Path(path)
    if spec.kind == "span":
        return read_questions(spec, path, test, counts)
    if spec.kind == "tagging":
        return read_sentences(spec, path, eval_set, counts)
    return (_read_choices if spec.kind == "choice" else _read_texts)(spec, path, eval_set, test, counts)


def labelled_part(task: str, seed: object, training: Sequence[Any], count: int) -> list[Any]:
    """Return ``count`` of a task's training examples in their order, drawn by the seed; fewer are among more."""
    draw = np.random.Generator(np.random.Philox(key=derive_seed("labels", task, str(seed))))
    return [training[number] for number in np.sort(draw.permutation(len(training))[:count])]


@dataclass(frozen=True)
class TextExample:
    """A row of a classification or regression file.

    Attributes:
        id: the row's number, counted from 0.
        texts: one or two segments.
        label: the class's number or the regression's value; None in a test file.
        group: value of the group column, if the task has one.
    """

    id: str
    texts: tuple[str, ...]
    label: float | None
    group: str | None = None


@dataclass(frozen=True)
class ChoiceExample:
    """A row of a multiple-choice file.

    Attributes:
        context: the first segment.
        endings: the second segment of each choice.
        label: number of the correct choice; None in a test file.
    """

    id: str
    context: str
    endings: tuple[str, ...]
    label: int | None
    group: str | None = None


def _read_texts(
    spec: TaskSpec, path: Path, eval_set: str | None, test: bool, counts: Counter[str] | None
) -> list[TextExample]:
    layout = spec.layout(eval_set, test)
    columns = layout.columns
    return [
        TextExample(
            id=str(index),
            texts=tuple(fields[column] for column in columns.texts),
            label=None
            if columns.label is None
            else _label(spec, layout.labels, fields[columns.label], f"{path}:{number}"),
            group=fields[columns.group] or None if columns.group else None,
        )
        for index, (number, fields) in enumerate(read_columns(spec.name, path, layout, counts))
    ]


def _read_choices(
    spec: TaskSpec, path: Path, eval_set: str | None, test: bool, counts: Counter[str] | None
) -> list[ChoiceExample]:
    """The second text column is the beginning that each ending completes."""
    layout = spec.layout(eval_set, test)
    columns = layout.columns
    numbers = [str(number) for number in range(len(columns.choices))]
    examples = []
    for index, (number, fields) in enumerate(read_columns(spec.name, path, layout, counts)):
        label = None if columns.label is None else _label_index(fields[columns.label], numbers, f"{path}:{number}")
        context, *beginning = (fields[column] for column in columns.texts)
        endings = tuple(" ".join([*beginning, fields[column]]).strip() for column in columns.choices)
        group = fields[columns.group] or None if columns.group else None
        examples.append(ChoiceExample(str(index), context, endings, label, group))
    return examples


def _label(spec: TaskSpec, labels: tuple[str, ...], text: str, where: str) -> float:
    """Return a class's number, or a regression's value."""
    if spec.range is None:
        return _label_index(text, labels, where)
    low, high = spec.range
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        hint = f"scores lie between {low:g} and {high:g}; {FETCH_AGAIN}"
        raise PipelineError("unknown label", repr(text), where=where, hint=hint)
    return value


def _label_index(text: str, labels: Sequence[str], where: str) -> int:
    """Return the number of a class from its spelling in a file."""
    if text not in labels:
        hint = f"labels are {', '.join(labels)}; {FETCH_AGAIN}"
        raise PipelineError("unknown label", repr(text), where=where, hint=hint)
    return list(labels).index(text)
