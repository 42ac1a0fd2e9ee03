"""The examples of each kind of task, read from its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks.readers import FETCH_AGAIN, read_columns, read_queries, read_questions, read_sentences
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
        eval_set: the evaluation set that the file belongs to, since its layout may differ; None for the training file.
        test: whether the file is the set's test file, without labels.
        counts: filled with the number of dropped or doubtful rows, by reason.

    Returns:
        ``TextExample``, ``ChoiceExample``, ``Question``, ``TaggedSentence`` or ``Query``, by the task's kind.
    """
    path = Path(path)
    if spec.kind == "span":
        return read_questions(spec, path, test, counts)
    if spec.kind == "tagging":
        return read_sentences(spec, path, eval_set, counts)
    if spec.kind == "retrieval":
        return read_queries(spec, path, eval_set, counts)
    layout = spec.layout(eval_set, test)
    columns, labels = layout.columns, layout.labels
    if spec.kind == "choice":
        labels = tuple(str(index) for index in range(len(columns.choices)))
    examples: list[TextExample | ChoiceExample] = []
    for index, (line, fields) in enumerate(read_columns(spec.name, path, layout, counts)):
        label = None if columns.label is None else _label(spec, labels, fields[columns.label], f"{path}:{line}")
        texts = tuple(fields[column] for column in columns.texts)
        group = fields[columns.group] or None if columns.group else None
        if spec.kind == "classification":
            examples.append(TextExample(str(index), texts, label, group))
        else:  # the second text column is the beginning that each ending completes
            endings = tuple(" ".join([*texts[1:], fields[column]]).strip() for column in columns.choices)
            examples.append(ChoiceExample(str(index), texts[0], endings, label, group))
    return examples


def labelled_part(task: str, seed: object, training: Sequence[Any], count: int) -> list[Any]:
    """Sample ``count`` of the ``training`` examples, in file order; a smaller sample is contained in a larger one."""
    rng = np.random.Generator(np.random.Philox(key=derive_seed("labels", task, str(seed))))
    return [training[index] for index in np.sort(rng.permutation(len(training))[:count])]


@dataclass(frozen=True)
class TextExample:
    """A row of a classification or regression file.

    Attributes:
        id: the row's index.
        texts: one or two segments.
        label: index of the class, or value of the regression; None in a test file.
    """

    id: str
    texts: tuple[str, ...]
    label: float | None
    group: str | None = None


@dataclass(frozen=True)
class ChoiceExample:
    """A row of a multiple-choice file.

    Attributes:
        endings: for each choice, the segment that follows the context.
        label: index of the correct choice; None in a test file.
    """

    id: str
    context: str
    endings: tuple[str, ...]
    label: float | None
    group: str | None = None


def _label(spec: TaskSpec, labels: tuple[str, ...], text: str, where: str) -> float:
    if spec.range is None:
        if text in labels:
            return labels.index(text)
        allowed = f"labels are {', '.join(labels)}"
    else:
        low, high = spec.range
        with suppress(ValueError):
            if low <= float(text) <= high:
                return float(text)
        allowed = f"scores lie between {low:g} and {high:g}"
    raise PipelineError("unknown label", repr(text), where=where, hint=f"{allowed}; {FETCH_AGAIN}")
