"""Handler of multiple choice: which ending follows the context (SWAG; paper, section 4.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks.example_result import ExampleResult
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.files.reading import read_columns
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
from pipeline_src.tasks.predictions import align, certainty, check_outputs, not_a_prediction
from pipeline_src.tasks.sequences import encode, pair_features
from pipeline_src.tasks.sums import Sums
from pipeline_src.tokenizer.frame import read_frames

head = "choice"


@dataclass(frozen=True)
class Example:
    """One row: its number (counted from 0), the context, the second segment once per choice, the right one, its group.

    Examples of a test file have no label.
    """

    id: str
    context: str
    endings: tuple[str, ...]
    label: int | None
    group: str | None = None


def outputs(spec: TaskSpec) -> int:
    """Width of the head: one score per choice, from one vector (paper, section 4.4)."""
    return 1


def read(
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    test: bool = False,
    counts: Counter[str] | None = None,
) -> list[Example]:
    """Read a table; the second text column is the beginning that each ending completes.

    Arguments and errors as in :func:`classification.read`.
    """
    path = Path(path)
    layout = spec.layout(eval_set, test)
    columns = layout.columns
    places = [str(place) for place in range(len(columns.choices))]
    examples = []
    for index, (number, fields) in enumerate(read_columns(spec.name, path, layout, counts)):
        label = None if columns.label is None else label_index(fields[columns.label], places, f"{path}:{number}")
        context, *beginning = (fields[column] for column in columns.texts)
        endings = tuple(" ".join([*beginning, fields[column]]).strip() for column in columns.choices)
        group = fields[columns.group] or None if columns.group else None
        examples.append(Example(str(index), context, endings, label, group))
    return examples


def features(spec: TaskSpec, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> Features:
    """One sequence per choice, those of an example in a row: [CLS] context [SEP] ending [SEP].

    Examples of a test file get the label -1, which nobody may learn from.
    """
    contexts = encode(tokenizer, [example.context for example in examples])
    endings = encode(tokenizer, [ending for example in examples for ending in example.endings])
    choices = len(examples[0].endings)
    pairs = ((contexts[index // choices], ending) for index, ending in enumerate(endings))
    labels = label_array(examples)
    return pair_features(spec.name, pairs, labels, read_frames(tokenizer), max_length, per_item=choices)


def predict(
    spec: TaskSpec, examples: Sequence[Example], features: Features, outputs: np.ndarray
) -> list[dict[str, Any]]:
    """Prediction rows from outputs, float [items, choices]: ``id``, ``prediction`` (a choice from 0), ``outputs``.

    Raises:
        PipelineError: an output is NaN or infinite.
    """
    check_outputs(spec.name, outputs, (features.items, features.per_item))
    return most_probable(examples, outputs, range(features.per_item))


def score(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Each metric of an evaluation set, in percent.

    Raises:
        PipelineError: predictions and examples do not belong together, or a prediction is not a choice.
    """
    return label_scores(spec, eval_set, examples, _choices(spec, examples, predictions))


def _choices(spec: TaskSpec, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> list[int]:
    values = align(spec.name, examples, predictions)
    for example, value in zip(examples, values, strict=True):
        if type(value) is not int or not 0 <= value < len(example.endings):
            raise not_a_prediction(spec.name, value, f"choices are 0 to {len(example.endings) - 1}")
    return values


def sums(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], systems: Sequence[Sequence[dict[str, Any]]]
) -> dict[str, Sums]:
    """What each example adds to each metric; errors as :func:`score`."""
    return label_sums(spec, eval_set, examples, [_choices(spec, examples, predictions) for predictions in systems])


def majority_baseline(spec: TaskSpec, eval_set: str, examples: Sequence[Example]) -> dict[str, float]:
    """What always picking the same place gets, per metric, in percent."""
    return constant_scores(spec, eval_set, examples)


def example_results(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> list[ExampleResult]:
    """One per example; answers are the endings' texts, words those of the context and the right ending.

    Raises:
        PipelineError: as :func:`score`.
    """
    choices = _choices(spec, examples, predictions)
    confidence = {given["id"]: certainty(given) for given in predictions}
    return [
        ExampleResult(
            example.id,
            example.context,
            len(example.context.split()) + len(example.endings[gold].split()),
            example.endings[gold],
            example.endings[choice],
            float(choice == gold),
            confidence[example.id],
        )
        for example, gold, choice in zip(examples, map(int, gold_labels(examples)), choices, strict=True)
    ]


def submission(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> dict[str, str]:
    """The file that the leaderboard wants, by name: CSV whose first column, without a name, counts rows from 0.

    As rowanz/swagaf writes its own predictions (``csv_predict.py``: an index and ``pred``). Nothing for a set that has
    no test file.

    Raises:
        PipelineError: as :func:`score`.
    """
    test = spec.eval_set(eval_set).test
    if test is None:
        return {}
    return {test.submit: numbered_table(",pred", ",", _choices(spec, examples, predictions))}
