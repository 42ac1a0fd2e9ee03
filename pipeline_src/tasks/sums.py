"""Metrics as functions of sums over examples, so that thousands of resampled sets cost one matrix product.

A metric of a set depends on its examples through a few sums: of right answers, of a confusion matrix's cells, of
powers. :class:`Sums` holds what each example adds, for several systems on the same examples, and the function from
sums to percent. A rank correlation needs how often each pair of values occurs, which is a sum too, of sparse rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = Any  # np.ndarray, or a sparse array of scipy where rows are long and nearly empty


@dataclass(frozen=True)
class Sums:
    """One metric of several systems on the same examples.

    Attributes:
        rows: what each example adds, [examples, sums], system by system.
        value: sums, float [sets, sums], to percent, [sets].
        yes_no: whether an example is right or wrong and the metric their share.
        share: whether the metric is what examples got of what there was to get, be they right or wrong or in part.
        mistakes: what changes in the sums when an example that was right is wrong, for each way to be so, [ways, sums];
            None where it does not depend on that alone.
    """

    rows: list[Array]
    value: Callable[[np.ndarray], np.ndarray]
    yes_no: bool = False
    share: bool = False
    mistakes: np.ndarray | None = None


def shares(parts: Sequence[np.ndarray], wholes: np.ndarray | None = None, yes_no: bool = False) -> Sums:
    """What examples got of what there was to get: accuracy, exact match, F1 averaged over questions.

    Args:
        parts: of each system, [examples].
        wholes: what there was, [examples]; 1 each where it is not given.
        yes_no: see :class:`Sums`.
    """
    wholes = np.ones(len(parts[0])) if wholes is None else wholes
    rows = [np.column_stack([np.asarray(part, float), wholes]) for part in parts]
    return Sums(rows, lambda sums: 100.0 * sums[:, 0] / sums[:, 1], yes_no, share=True)


def accuracy(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> Sums:
    """Share of equal labels."""
    return shares([np.equal(gold, predicted) for predicted in systems], yes_no=True)


def overlaps(rows: list[np.ndarray]) -> Sums:
    """F1 over things counted: what both have, what the system has, what the gold has, [examples, 3] of each system."""
    return Sums(rows, lambda sums: 100.0 * 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1e-9))


def f1(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> Sums:
    """F1 of class 1; 0 where neither holds a 1."""
    right = np.asarray(gold) == 1
    guesses = [np.asarray(predicted) == 1 for predicted in systems]
    sums = overlaps([np.column_stack([right & guess, guess, right]).astype(float) for guess in guesses])
    return replace(sums, mistakes=np.array([[-1, -1, 0], [0, 1, 0]]))  # one more is missed, or found where none is


def matthews(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> Sums:
    """Matthews correlation in Gorodkin's form (2004, equation 8), of the confusion matrix; 0 for a constant side."""
    classes = 1 + int(max(*gold, *(max(predicted) for predicted in systems)))
    cells = [np.asarray(gold, int) * classes + np.asarray(predicted, int) for predicted in systems]

    def value(sums: np.ndarray) -> np.ndarray:
        matrix = sums.reshape(-1, classes, classes)
        total, gold_of, given = matrix.sum((1, 2)), matrix.sum(2), matrix.sum(1)
        top = np.trace(matrix, axis1=1, axis2=2) * total - (gold_of * given).sum(1)
        below = (total**2 - (gold_of**2).sum(1)) * (total**2 - (given**2).sum(1))
        return 100.0 * np.where(below > 0, top / np.sqrt(np.where(below > 0, below, 1)), 0.0)

    one = np.eye(classes**2)
    ways = [
        one[gold_is * classes + given] - one[gold_is * classes + gold_is]
        for gold_is in range(classes)
        for given in range(classes)
        if given != gold_is
    ]
    return Sums([one[cell] for cell in cells], value, mistakes=np.array(ways) if ways else None)


def _correlation(moments: np.ndarray) -> np.ndarray:
    """Pearson correlation in percent of sums of 1, x, y, xx, yy and xy, [6, sets]; 0 for a constant side."""
    total, x, y, xx, yy, xy = moments
    spread = (xx / total - (x / total) ** 2) * (yy / total - (y / total) ** 2)
    known = spread > 1e-18
    return 100.0 * np.where(known, (xy / total - x * y / total**2) / np.sqrt(np.where(known, spread, 1)), 0.0)


def pearson(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> Sums:
    """Pearson correlation; 0 for a constant side."""
    x = np.asarray(gold, float) - np.mean(gold)  # about their mean, so that no digits are lost
    shifted = [np.asarray(predicted, float) - np.mean(predicted) for predicted in systems]
    rows = [np.column_stack([np.ones(len(x)), x, y, x * x, y * y, x * y]) for y in shifted]
    return Sums(rows, lambda sums: _correlation(sums.T))


FEW = 256  # distinct pairs, of which a row may hold the count of each


def spearman(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> Sums:
    """Spearman's: Pearson's of the ranks, which each resampled set has of its own; equal values share their mean.

    Its sums are how often each distinct pair (gold, predicted) occurs.
    """
    from scipy.sparse import csr_array

    pairs = np.array([point for predicted in systems for point in zip(gold, predicted, strict=True)], float)
    points, place = np.unique(pairs, axis=0, return_inverse=True)
    count = len(gold)
    places = np.asarray(place).reshape(len(systems), count)
    if len(points) <= FEW:
        rows = [np.eye(len(points))[of] for of in places]
    else:
        rows = [csr_array((np.ones(count), (np.arange(count), of)), shape=(count, len(points))) for of in places]
    columns = [np.unique(column, return_inverse=True)[1] for column in points.T]

    def value(weights: np.ndarray) -> np.ndarray:
        x, y = (_ranks(weights, column) for column in columns)
        return _correlation(
            np.array([(weights * power).sum(1) for power in (np.ones_like(x), x, y, x * x, y * y, x * y)])
        )

    return Sums(rows, value)


def _ranks(weights: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The rank, about the middle and in parts of the whole, of values that occur ``weights``, [sets, points].

    Args:
        order: the number of each point's value among the distinct ones, in their order, [points].
    """
    sort = np.argsort(order, kind="stable")
    times = np.add.reduceat(weights[:, sort], np.searchsorted(order[sort], np.arange(order.max() + 1)), axis=1)
    ranks = np.cumsum(times, 1) - times / 2
    return (ranks / weights.sum(1, keepdims=True) - 0.5)[:, order]


SUMS: dict[str, Callable[[Sequence[float], Sequence[Sequence[float]]], Sums]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}
