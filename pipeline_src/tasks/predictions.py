"""Prediction rows: what goes wrong between a model's outputs and a score, caught before it becomes a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pipeline_src.common.errors import PipelineError


class HasId(Protocol):
    """Anything that is scored: an example of any kind."""

    @property
    def id(self) -> str:
        """What a prediction row names it by."""


def check_outputs(task: str, outputs: np.ndarray, shape: tuple[int, ...]) -> None:
    """Refuse outputs of another shape than ``shape``, and NaN or infinity.

    Raises:
        PipelineError: a value is not a number.
        ValueError: wrong shape, which is a programming error and no user's.
    """
    if outputs.shape != shape:
        raise ValueError(f"{task}: outputs are {outputs.shape}, not {shape}")
    if not np.isfinite(outputs).all():
        row = int(np.argwhere(~np.isfinite(outputs))[0][0])
        remedy = "lower the learning rate and train again"
        raise PipelineError("the model's output is not a number", f"row {row}", where=f"task {task}", remedy=remedy)


def align(task: str, examples: Sequence[HasId], predictions: Sequence[dict[str, Any]]) -> list[Any]:
    """The value predicted for each example, in the examples' order; errors as in :func:`align_rows`."""
    return [row["prediction"] for row in align_rows(task, examples, predictions)]


def align_rows(task: str, examples: Sequence[HasId], predictions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The prediction row of each example, in the examples' order.

    Raises:
        PipelineError: an example has no prediction, more than one, or a prediction has no example.
    """
    remedy = f"run `python -m pipeline_src finetune` again for {task}; its predictions belong to other data"
    by_id: dict[str, dict[str, Any]] = {}
    for row in predictions:
        if not isinstance(row, dict) or not {"id", "prediction"} <= row.keys():
            raise PipelineError("a prediction row lacks id or prediction", row, where=f"task {task}", remedy=remedy)
        if row["id"] in by_id:
            raise PipelineError("two predictions for one example", row["id"], where=f"task {task}", remedy=remedy)
        by_id[row["id"]] = row
    wanted = {example.id for example in examples}
    for name, extra in (
        ("no prediction for an example", wanted - by_id.keys()),
        ("a prediction for no example", by_id.keys() - wanted),
    ):
        if extra:
            value = f"{min(extra)} and {len(extra) - 1} more"
            raise PipelineError(name, value, where=f"task {task}", remedy=remedy)
    return [by_id[example.id] for example in examples]


def certainty(row: dict[str, Any]) -> float | None:
    """The probability of a row's most probable class: softmax of its ``outputs``; None where it holds none."""
    if "outputs" not in row:
        return None
    scores = np.asarray(row["outputs"], float)
    return float(1 / np.exp(scores - scores.max()).sum())


def not_a_prediction(task: str, value: Any, allowed: str) -> PipelineError:
    """The error for a value that this task's model cannot have predicted."""
    remedy = f"{allowed}; make the predictions again"
    return PipelineError("not a prediction", repr(value), where=f"task {task}", remedy=remedy)
