"""Handler of multiple choice: which ending follows the context (SWAG; paper, section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.errors import PipelineError
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.metrics import chance_level, judge
from pipeline_src.tasks.predictions import align, check_outputs, not_a_prediction
from pipeline_src.tasks.reading import FETCH_AGAIN, comma_separated, read_columns
from pipeline_src.tasks.sequences import Specials, encode, pair_features
from pipeline_src.tasks.spec import TaskSpec

head = "choice"


@dataclass(frozen=True)
class Example:
    """One row: its number counted from 0, the context, the second segment once per choice, the right choice."""

    id: str
    context: str
    endings: tuple[str, ...]
    label: int


def outputs(spec: TaskSpec) -> int:
    """Width of the head: one score per choice, from one vector (paper, section 4.4)."""
    return 1


def read(spec: TaskSpec, path: str | Path, row: str | None = None) -> list[Example]:
    """Read a quoted CSV file; the second text column is the beginning that each ending completes.

    Raises:
        PipelineError: an empty file, a missing column, an unclosed quote or an unknown label; file and line are named.
    """
    path = Path(path)
    columns = (spec.row(row).columns if row is not None else None) or spec.columns
    assert columns is not None  # TaskSpec has checked it
    examples = []
    for index, (number, fields) in enumerate(read_columns(spec, path, columns, comma_separated)):
        label = fields[columns.label]
        if label not in map(str, range(len(columns.choices))):
            remedy = f"labels are 0 to {len(columns.choices) - 1}; {FETCH_AGAIN}"
            raise PipelineError("unknown label", repr(label), where=f"{path}:{number}", remedy=remedy)
        context, *beginning = (fields[column] for column in columns.texts)
        endings = tuple(" ".join([*beginning, fields[column]]).strip() for column in columns.choices)
        examples.append(Example(str(index), context, endings, int(label)))
    return examples


def features(spec: TaskSpec, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> Features:
    """One sequence per choice, those of an example in a row: [CLS] context [SEP] ending [SEP]."""
    contexts = encode(tokenizer, [example.context for example in examples])
    endings = encode(tokenizer, [ending for example in examples for ending in example.endings])
    choices = len(examples[0].endings)
    pairs = ((contexts[index // choices], ending) for index, ending in enumerate(endings))
    labels = np.array([example.label for example in examples], np.int64)
    return pair_features(spec.name, pairs, labels, Specials.of(tokenizer), max_length, per_item=choices)


def predict(
    spec: TaskSpec, examples: Sequence[Example], features: Features, outputs: np.ndarray
) -> list[dict[str, Any]]:
    """Prediction rows from outputs, float [items, choices]: ``id``, ``prediction`` (a choice from 0), ``outputs``.

    Raises:
        PipelineError: an output is NaN or infinite.
    """
    check_outputs(spec.name, outputs, (features.items, features.per_item))
    return [
        {"id": example.id, "prediction": int(np.argmax(scores)), "outputs": [float(x) for x in scores]}
        for example, scores in zip(examples, outputs, strict=True)
    ]


def score(
    spec: TaskSpec, row: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Each metric of a score row, in percent.

    Raises:
        PipelineError: predictions and examples do not belong together, or a prediction is not a choice.
    """
    values = align(spec.name, examples, predictions)
    for example, value in zip(examples, values, strict=True):
        if type(value) is not int or not 0 <= value < len(example.endings):
            raise not_a_prediction(spec.name, value, f"choices are 0 to {len(example.endings) - 1}")
    return judge(spec.row(row).metrics, [example.label for example in examples], values)


def chance(spec: TaskSpec, row: str, examples: Sequence[Example]) -> dict[str, float]:
    """What always picking the same place gets, per metric, in percent."""
    gold = [example.label for example in examples]
    return {metric: chance_level(metric, gold) for metric in spec.row(row).metrics}
