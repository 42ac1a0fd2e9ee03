"""Metrics in percent (0 to 100), their majority baselines, and the sums that the bootstrap resamples.

A metric is a function of a few sums over the examples: the number of correct answers, the cells of a confusion matrix,
or sums of x, y, x², y² and xy. ``BootstrapStatistics`` holds each example's contribution to these sums, and the
function from sums to percent. So scoring thousands of resampled sets takes one matrix product. For a rank correlation,
the sums are the number of times that each pair of values occurs.

The metrics are implemented here because scikit-learn, scipy and seqeval take seconds to import. Tests compare the
metrics with theirs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# np.ndarray or a scipy.sparse array.
Array = Any


def majority_score(metric: str, gold: Sequence[Any]) -> float:
    # Returns the metric of the best constant prediction. It is 0 for correlations and entity F1.
    if np.ndim(gold) == 2:
        constant = (METRICS[metric](gold, [[labels] * len(gold)]) for labels in _frequent_sets(gold))
        return max(statistics.score() for statistics in constant)
    if metric == "accuracy":
        return 100.0 * max(Counter(gold).values()) / len(gold)
    if metric == "f1":
        # The constant prediction is 1. A constant prediction of 0 would have an F1 of 0.
        positives = sum(label == 1 for label in gold)
        return 100.0 * 2 * positives / (len(gold) + positives)
    if metric == "macro_f1":
        # The most frequent class is predicted. The F1 of every other class is 0.
        counts = Counter(gold)
        largest = max(counts.values())
        return 100.0 * 2 * largest / (len(gold) + largest) / len(counts)
    return 0.0


def _frequent_sets(gold: Sequence[tuple[bool, ...]]) -> list[tuple[bool, ...]]:
    # Returns the sets of labels among which every metric has its best constant prediction: for subset accuracy the most
    # frequent set, for micro F1 the most frequent labels, of any number, and for macro F1 all labels.
    (most_frequent, _), *_ = Counter(map(tuple, gold)).most_common(1)
    rank = np.argsort(np.argsort(-np.sum(gold, axis=0), kind="stable"))
    return [most_frequent, *(tuple(rank < size) for size in range(1, len(rank) + 1))]


@dataclass(frozen=True)
class BootstrapStatistics:
    """One metric of several systems on the same examples.

    Attributes:
        rows: for each system, the contribution of each example to the sums, [examples, sums].
        value: function from the sums of resampled sets, float [sets, sums], to percent, [sets].
        yes_no: whether every example is either correct or wrong, and the metric is the fraction of correct examples.
        share: whether the metric is a ratio of two sums, points divided by possible points.
        mistakes: changes of the sums when a correct example becomes wrong, one row for each kind of mistake,
            [kinds, sums]; None if a mistake changes the sums by an amount that depends on the example.
    """

    rows: list[Array]
    value: Callable[[np.ndarray], np.ndarray]
    yes_no: bool = False
    share: bool = False
    mistakes: np.ndarray | None = None

    def score(self, system: int = 0) -> float:
        return float(self.value(self.rows[system].sum(0)[None])[0])


def ratio_statistics(
    points: Sequence[np.ndarray], max_points: np.ndarray | None = None, yes_no: bool = False
) -> BootstrapStatistics:
    """Return the statistics of an average over examples, such as accuracy or the mean F1 of questions.

    Args:
        points: for each system, the points of each example, [examples].
        max_points: possible points of each example, [examples]; 1 by default.
    """
    max_points = np.ones(len(points[0])) if max_points is None else max_points
    rows = [np.column_stack([np.asarray(system, float), max_points]) for system in points]
    return BootstrapStatistics(rows, lambda sums: 100.0 * sums[:, 0] / sums[:, 1], yes_no, share=True)


def _accuracy_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    return ratio_statistics([np.equal(gold, predicted) for predicted in systems], yes_no=True)


def overlap_f1_statistics(rows: list[np.ndarray]) -> BootstrapStatistics:
    # `rows`: for each system, the numbers of true positives, predictions and gold items of each example, [examples, 3].
    # If all three sums are 0, F1 is 0.
    return BootstrapStatistics(rows, lambda sums: 100.0 * 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1e-9))


def _f1_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    positive = np.asarray(gold) == 1
    predicted_positive = [np.asarray(predicted) == 1 for predicted in systems]
    rows = [np.column_stack([positive & system, system, positive]).astype(float) for system in predicted_positive]
    # The two kinds of mistake are a false negative and a false positive.
    return replace(overlap_f1_statistics(rows), mistakes=np.array([[-1, -1, 0], [0, 1, 0]]))


def _count_classes(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> int:
    return 1 + int(max(map(max, (gold, *systems))))


def _mean_f1_statistics(gold: Any, systems: Any, with_absent: bool) -> BootstrapStatistics:
    # The mean F1 of the classes. The sums are the true positives, predictions and gold labels of each class.
    # `gold` and each system: 1 if the example has the class, else 0, [examples, classes].
    # `with_absent`: whether a class that occurs neither in the gold labels nor in predictions counts, with an F1 of 0.
    rows = [np.hstack([np.multiply(gold, predicted), predicted, gold]).astype(float) for predicted in systems]

    def value(sums: np.ndarray) -> np.ndarray:
        true_positives, predicted, in_gold = np.split(sums, 3, axis=1)
        total = predicted + in_gold
        counts = (total > 0) | with_absent
        f1 = 2 * true_positives / np.where(total > 0, total, 1)
        return 100.0 * f1.sum(1) / counts.sum(1)

    return BootstrapStatistics(rows, value)


def _macro_f1_statistics(gold: Sequence[Any], systems: Sequence[Sequence[Any]]) -> BootstrapStatistics:
    # As in scikit-learn, absent classes are left out of the mean, but absent labels of label sets count.
    if np.ndim(gold) == 2:
        return _mean_f1_statistics(gold, systems, with_absent=True)
    classes = _count_classes(gold, systems)
    one_hot = np.eye(classes)
    of_gold = one_hot[np.asarray(gold, int)]
    of_systems = [one_hot[np.asarray(predicted, int)] for predicted in systems]

    # Each kind of mistake predicts the class `prediction` for an example of the class `label`.
    mistakes = []
    for label, prediction in itertools.permutations(range(classes), 2):
        gained = one_hot[prediction] - one_hot[label]
        change = np.concatenate([-one_hot[label], gained, np.zeros(classes)])
        mistakes.append(change)
    statistics = _mean_f1_statistics(of_gold, of_systems, with_absent=False)
    return replace(statistics, mistakes=np.array(mistakes) if mistakes else None)


def _micro_f1_statistics(gold: Any, systems: Any) -> BootstrapStatistics:
    # The sums of all labels are added up, as if they were one.
    rows = []
    for predicted in systems:
        rows.append(np.sum([np.logical_and(gold, predicted), predicted, gold], axis=2, dtype=float).T)
    return overlap_f1_statistics(rows)


def _subset_accuracy_statistics(gold: Any, systems: Any) -> BootstrapStatistics:
    # A prediction is correct if all of its labels are.
    return ratio_statistics([np.equal(gold, predicted).all(1) for predicted in systems], yes_no=True)


def _matthews_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    # Multi-class form (Gorodkin 2004, equation 8). The sums are the cells of the confusion matrix. If all labels or all
    # predictions are equal, the correlation is undefined, and 0 is returned.
    classes = _count_classes(gold, systems)
    one_hot = np.eye(classes**2)
    rows = []
    for predicted in systems:
        cell = np.asarray(gold, int) * classes + np.asarray(predicted, int)
        rows.append(one_hot[cell])

    def value(sums: np.ndarray) -> np.ndarray:
        matrix = sums.reshape(-1, classes, classes)
        total = matrix.sum((1, 2))
        gold_counts = matrix.sum(2)
        predicted_counts = matrix.sum(1)
        correct = np.trace(matrix, axis1=1, axis2=2)
        numerator = correct * total - (gold_counts * predicted_counts).sum(1)
        gold_spread = total**2 - (gold_counts**2).sum(1)
        predicted_spread = total**2 - (predicted_counts**2).sum(1)
        # If a spread is 0, the correlation is undefined, and 0 is returned.
        squared = gold_spread * predicted_spread
        known = squared > 0
        return 100.0 * np.where(known, numerator / np.sqrt(np.where(known, squared, 1)), 0.0)

    mistakes = []
    for label, prediction in itertools.permutations(range(classes), 2):
        change = one_hot[label * classes + prediction] - one_hot[label * classes + label]
        mistakes.append(change)
    return BootstrapStatistics(rows, value, mistakes=np.array(mistakes) if mistakes else None)


def _correlation_of_moments(moments: np.ndarray) -> np.ndarray:
    # Returns Pearson's correlation in percent, [sets]; 0 if x or y is constant. `moments` are the sums of
    # 1, x, y, xx, yy and xy, [6, sets]. The threshold below assumes that x and y are scaled to a range of about 1.
    total, x, y, xx, yy, xy = moments
    # Variance is the mean of squares minus the squared mean.
    x_spread = xx / total - (x / total) ** 2
    y_spread = yy / total - (y / total) ** 2
    spread = x_spread * y_spread
    # A constant may have a tiny spread through rounding errors. It counts as 0.
    known = spread > 1e-14
    covariance = xy / total - x * y / total**2
    return 100.0 * np.where(known, covariance / np.sqrt(np.where(known, spread, 1)), 0.0)


def _pearson_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    x, *scaled = (_scaled(np.asarray(side, float)) for side in (gold, *systems))
    rows = [np.column_stack([np.ones(len(x)), x, y, x * x, y * y, x * y]) for y in scaled]
    return BootstrapStatistics(rows, lambda sums: _correlation_of_moments(sums.T))


def _scaled(values: np.ndarray) -> np.ndarray:
    # Scale values to mean 0 and range 1. The correlation stays the same and has smaller rounding errors.
    span = np.ptp(values)
    return (values - values.mean()) / span if span else np.zeros(len(values))


# Spearman's rows are sparse arrays if there are more distinct (gold, predicted) pairs than this.
MAX_DENSE_PAIRS = 256


def _spearman_statistics(gold: Sequence[float], systems: Sequence[Sequence[float]]) -> BootstrapStatistics:
    # Spearman's correlation is Pearson's correlation of the ranks. Equal values share their mean rank. The ranks differ
    # in each resampled set, so the sums are the number of times that each distinct pair (gold, predicted) occurs.
    from scipy.sparse import csr_array

    pairs = np.concatenate([np.column_stack([gold, predicted]) for predicted in systems]).astype(float)
    points, inverse = np.unique(pairs, axis=0, return_inverse=True)
    count = len(gold)
    # The point of each example: [systems, examples].
    indices = np.asarray(inverse).reshape(len(systems), count)
    if len(points) <= MAX_DENSE_PAIRS:
        rows = [np.eye(len(points))[index] for index in indices]
    else:
        rows = []
        for index in indices:
            cells = (np.arange(count), index)
            rows.append(csr_array((np.ones(count), cells), shape=(count, len(points))))
    # For the gold and the predicted value of each point, the index among the sorted distinct values.
    columns = [np.unique(column, return_inverse=True)[1] for column in points.T]

    def value(weights: np.ndarray) -> np.ndarray:
        x, y = (_ranks(weights, column) for column in columns)
        powers = (np.ones_like(x), x, y, x * x, y * y, x * y)
        moments = [(weights * power).sum(1) for power in powers]
        return _correlation_of_moments(np.array(moments))

    return BootstrapStatistics(rows, value)


def _ranks(weights: np.ndarray, order: np.ndarray) -> np.ndarray:
    # Returns the ranks of points in resampled sets, divided by the set's size and centred, [sets, points].
    # `weights`: how often each point occurs in each set, [sets, points].
    # `order`: for each point, the index of its value among the sorted distinct values, [points].

    # How often each distinct value occurs, in ascending order of the values: [sets, values].
    sort = np.argsort(order, kind="stable")
    first_of_value = np.searchsorted(order[sort], np.arange(order.max() + 1))
    times = np.add.reduceat(weights[:, sort], first_of_value, axis=1)
    # Example: three equal values that follow two smaller values share the rank 2 + 3 / 2.
    ranks = np.cumsum(times, 1) - times / 2
    centred = ranks / weights.sum(1, keepdims=True) - 0.5
    return centred[:, order]


# Metric -> function from gold labels and the predictions of each system to the statistics. For sets of labels, both are
# 0 or 1 for each label, [examples, labels].
METRICS: dict[str, Callable[[Any, Sequence[Any]], BootstrapStatistics]] = {
    "accuracy": _accuracy_statistics,
    "f1": _f1_statistics,
    "micro_f1": _micro_f1_statistics,
    "macro_f1": _macro_f1_statistics,
    "subset_accuracy": _subset_accuracy_statistics,
    "matthews": _matthews_statistics,
    "pearson": _pearson_statistics,
    "spearman": _spearman_statistics,
}
