"""Metrics in percent (0 to 100), their majority baselines, and the sums that the bootstrap resamples.

A metric of a set depends on its examples through a few sums: of correct answers, of a confusion matrix's cells, of
powers. :class:`BootstrapStatistics` holds the contribution of each example, for several systems on the same examples,
and the function from sums to percent: so a score is computed, and so are those of thousands of resampled sets, at the
cost of one matrix product. A rank correlation depends on how often each pair of values occurs, which is a sum too, of
sparse rows. Tests compare with scikit-learn, scipy and seqeval, which take seconds to import.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = Any  # np.ndarray, or a sparse array of scipy if rows are long and nearly empty


def majority_score(metric: str, gold: Sequence[float]) -> float:
    """Return the score of the best constant prediction: majority class, the better one's F1, or 0 for correlations."""
    if metric == "accuracy":
        return 100.0 * max(Counter(gold).values()) / len(gold)
    if metric == "f1":  # of 1 throughout; 0 throughout gets 0
        positives = sum(label == 1 for label in gold)
        return 100.0 * 2 * positives / (len(gold) + positives)
    return 0.0


@dataclass(frozen=True)
class BootstrapStatistics:
    """One metric of several systems on the same examples.

    Attributes:
        rows: contribution of each example, [examples, sums], system by system.
        value: converts sums, float [sets, sums], to percent, [sets].
        yes_no: whether each example is right or wrong and the metric is the fraction of right ones.
        share: whether the metric is a ratio of two sums, of what examples earned and what they could earn.
        mistakes: change of the sums if a correct example becomes wrong, for each way to be wrong, [ways, sums]; None if
            it depends on more than that.
    """

    rows: list[Array]
    value: Callable[[np.ndarray], np.ndarray]
    yes_no: bool = False
    share: bool = False
    mistakes: np.ndarray | None = None

    def score(self, system: int = 0) -> float:
        """Return a system's metric on the whole set."""
        return float(self.value(self.rows[system].sum(0)[None])[0])


def ratio_statistics(
    parts: Sequence[np.ndarray], wholes: np.ndarray | None = None, yes_no: bool = False
) -> BootstrapStatistics:
    """Return the statistics of accuracy, exact match, or F1 averaged over questions.

    Args:
        parts: of each system, what each example earned, [examples].
        wholes: what each example could earn, [examples]; 1 by default.
        yes_no: see :class:`BootstrapStatistics`.
    """
    wholes = np.ones(len(parts[0])) if wholes is None else wholes
    rows = [np.column_stack([np.asarray(part, float), wholes]) for part in parts]
    return BootstrapStatistics(rows, lambda sums: 100.0 * sums[:, 0] / sums[:, 1], yes_no, share=True)


def _accuracy_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    return ratio_statistics([np.equal(gold, predicted) for predicted in systems], yes_no=True)


def overlap_f1_statistics(rows: list[np.ndarray]) -> BootstrapStatistics:
    """Return the statistics of F1 from each system's counts of true positives, predictions and gold, [examples, 3].

    It is 0 if there are neither predictions nor gold.
    """
    return BootstrapStatistics(rows, lambda sums: 100.0 * 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1e-9))


def _f1_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    positive = np.asarray(gold) == 1
    predicted_positive = [np.asarray(predicted) == 1 for predicted in systems]
    rows = [np.column_stack([positive & each, each, positive]).astype(float) for each in predicted_positive]
    # one more false negative, or one more false positive
    return replace(overlap_f1_statistics(rows), mistakes=np.array([[-1, -1, 0], [0, 1, 0]]))


def _matthews_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    """Statistics of the Matthews correlation in Gorodkin's form (2004, equation 8): the confusion matrix's cells.

    It is 0 for a constant side, where it is not defined.
    """
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
    return BootstrapStatistics([one[cell] for cell in cells], value, mistakes=np.array(ways) if ways else None)


def _correlation_of_moments(moments: np.ndarray) -> np.ndarray:
    """Pearson correlation in percent from sums of 1, x, y, xx, yy and xy, [6, sets]; 0 for a constant side.

    x and y have a range of about 1.
    """
    total, x, y, xx, yy, xy = moments
    spread = (xx / total - (x / total) ** 2) * (yy / total - (y / total) ** 2)
    known = spread > 1e-14
    return 100.0 * np.where(known, (xy / total - x * y / total**2) / np.sqrt(np.where(known, spread, 1)), 0.0)


def _pearson_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    x, *scaled = (_scaled(np.asarray(side, float)) for side in (gold, *systems))
    rows = [np.column_stack([np.ones(len(x)), x, y, x * x, y * y, x * y]) for y in scaled]
    return BootstrapStatistics(rows, lambda sums: _correlation_of_moments(sums.T))


def _scaled(values: np.ndarray) -> np.ndarray:
    """Shift values to mean 0 and scale them to range 1, which changes no correlation but loses fewer digits."""
    return (values - values.mean()) / np.ptp(values) if np.ptp(values) else np.zeros(len(values))


MAX_DENSE_PAIRS = 256  # distinct pairs up to which rows are dense


def _spearman_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    """Statistics of Spearman's correlation: the number of times that each distinct pair (gold, predicted) occurs.

    It is Pearson's correlation of the ranks, which differ in each resampled set; equal values share their mean rank.
    """
    from scipy.sparse import csr_array

    pairs = np.array([point for predicted in systems for point in zip(gold, predicted, strict=True)], float)
    points, place = np.unique(pairs, axis=0, return_inverse=True)
    count = len(gold)
    places = np.asarray(place).reshape(len(systems), count)
    if len(points) <= MAX_DENSE_PAIRS:
        rows = [np.eye(len(points))[of] for of in places]
    else:
        rows = [csr_array((np.ones(count), (np.arange(count), of)), shape=(count, len(points))) for of in places]
    columns = [np.unique(column, return_inverse=True)[1] for column in points.T]

    def value(weights: np.ndarray) -> np.ndarray:
        x, y = (_ranks(weights, column) for column in columns)
        return _correlation_of_moments(
            np.array([(weights * power).sum(1) for power in (np.ones_like(x), x, y, x * x, y * y, x * y)])
        )

    return BootstrapStatistics(rows, value)


def _ranks(weights: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Centred ranks, as fractions of the set's size, of values that occur ``weights`` times, [sets, points].

    Args:
        order: number of each point's value among the sorted distinct ones, [points].
    """
    sort = np.argsort(order, kind="stable")
    times = np.add.reduceat(weights[:, sort], np.searchsorted(order[sort], np.arange(order.max() + 1)), axis=1)
    ranks = np.cumsum(times, 1) - times / 2
    return (ranks / weights.sum(1, keepdims=True) - 0.5)[:, order]


METRICS: dict[str, Callable[[Sequence[float], Sequence[Sequence[float]]], BootstrapStatistics]] = {
    "accuracy": _accuracy_statistics,
    "f1": _f1_statistics,
    "matthews": _matthews_statistics,
    "pearson": _pearson_statistics,
    "spearman": _spearman_statistics,
}
