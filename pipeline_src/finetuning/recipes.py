"""The recipe of a task, and the grid of runs that it asks for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from pipeline_src.params.finetune import FinetuneParams, Recipe


class Point(NamedTuple):
    """One point of a recipe's grid."""

    learning_rate: float
    epochs: int
    batch: int


def recipe_of(finetune: FinetuneParams, task: str) -> Recipe:
    """The recipe in force for one task: its own, completed by ``finetune.default``."""
    own = finetune.tasks.get(task)
    if own is None:
        return finetune.default
    return finetune.default.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


def grid_points(recipe: Recipe) -> Iterator[Point]:
    """Every point, learning rates running fastest; of equal scores the first point wins."""
    for epochs, batch, rate in itertools.product(recipe.epochs, recipe.batches, recipe.learning_rates):
        yield Point(rate, epochs, batch)
