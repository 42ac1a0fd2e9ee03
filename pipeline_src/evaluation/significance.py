"""Confidence intervals of scores and significance tests between systems, by resampling examples.

Only the examples of an evaluation set are resampled; the variation over seeds is reported as their standard deviation.
Examples of one group (questions on a paragraph, sentences of a document) are one unit, which is resampled as a whole.
Every metric is a function of sums (``tasks/metrics.py``), so units with equal sums are of the same kind. How often each
kind is drawn is multinomial: this is the exact bootstrap at a cost that hardly grows with the set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from scipy.stats import binomtest, norm
from scipy.stats import t as student

from pipeline_src.tasks.metrics import BootstrapStatistics

LEVEL = 0.95
NUM_RESAMPLES = 2000  # Efron and Tibshirani 1993, section 13.3: 1,000 or more for an interval
NUM_PERMUTATIONS = 4999
BATCH_NUMBERS = 1 << 22  # numbers in memory in one step
POWER = 0.8  # power for which examples_needed is computed (Cohen 1988)
Interval = tuple[float, float]


@dataclass(frozen=True)
class ResamplingUnits:
    """The units that are resampled, with their sums for several systems on the same examples.

    Attributes:
        count: number of units: groups of examples, or examples.
        times: number of units of each kind, [kinds].
        rows: for each system and each of its seeds, the contribution of a unit of each kind to the sums, [kinds, sums].
        paired: whether each unit is a single example.
    """

    count: int
    times: np.ndarray
    rows: list[list[Any]]
    statistics: BootstrapStatistics
    paired: bool

    def values(self, system: int, times: np.ndarray) -> np.ndarray:
        """Return a system's metric, averaged over seeds, [sets]; ``times``: units of each kind, [sets, kinds]."""
        return np.mean([self.statistics.value(times @ rows) for rows in self.rows[system]], axis=0)

    def score(self, system: int) -> float:
        """Return a system's metric on the evaluation set itself."""
        return float(self.values(system, self.times[None].astype(float))[0])


def make_units(statistics: BootstrapStatistics, seeds: Sequence[int], groups: Sequence[object]) -> ResamplingUnits:
    """Build the units of the systems in ``statistics.rows``.

    Args:
        statistics: the statistics of all runs, system after system.
        seeds: number of runs of each system.
        groups: group of each example; None makes the example a unit. If all are in one group, each example is a unit.
    """
    from scipy.sparse import csr_array, issparse

    indices: dict[object, int] = {}
    unit = [
        indices.setdefault((example,) if group is None else group, len(indices)) for example, group in enumerate(groups)
    ]
    if len(indices) == 1:
        unit = list(range(len(groups)))
    count = max(unit) + 1
    rows = list(statistics.rows)
    if count < len(unit):
        member = csr_array((np.ones(len(unit)), (unit, range(len(unit)))), shape=(count, len(unit)))
        rows = [member @ run for run in rows]
    times = np.ones(count, int)
    if not issparse(rows[0]):
        kinds, times = np.unique(np.hstack(rows), axis=0, return_counts=True)
        rows = np.split(kinds, len(rows), axis=1)
    runs = iter(rows)
    by_system = [list(islice(runs, number)) for number in seeds]
    return ResamplingUnits(count, times, by_system, statistics, count == len(unit))


def resampled_values(units: ResamplingUnits, seed: int) -> np.ndarray:
    """Sample sets of units with replacement, and return the metric of every system on every set, [systems, sets]."""
    rng, step = np.random.default_rng(seed), max(1, BATCH_NUMBERS // len(units.times))
    batches = []
    for start in range(0, NUM_RESAMPLES, step):
        size = min(step, NUM_RESAMPLES - start)
        times = rng.multinomial(units.count, units.times / units.count, size=size).astype(float)
        batches.append([units.values(system, times) for system in range(len(units.rows))])
    return np.concatenate(batches, 1)


def interval(values: np.ndarray, count: int) -> Interval | None:
    """Return the percentile bootstrap interval, widened if units are few (Hesterberg 2015, section 5.3).

    ``values``: the metric on resampled sets of ``count`` units each. There is no interval (None) for a single unit.
    """
    if count < 2:
        return None
    tail = norm.cdf(math.sqrt(count / (count - 1)) * student.ppf((1 - LEVEL) / 2, count - 1))
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def score_interval(units: ResamplingUnits, system: int, values: np.ndarray) -> Interval | None:
    """Return the interval of one system's score, or None if it is unknown.

    If all resampled sets (``values``) score 0, or all score 100, the bootstrap gives no interval. The exact interval
    for units of which none, or all, are correct is then used (Clopper and Pearson 1934). If the metric is not a
    proportion, the interval of a score of 100 begins at the score with the largest plausible number of errors, all of
    the worst kind; the intervals of a score of 0 and of correlations are unknown.
    """
    bootstrap, statistics = interval(values, units.count), units.statistics
    if bootstrap is None or bootstrap[0] != bootstrap[1] or bootstrap[0] not in (0.0, 100.0):
        return bootstrap
    exact = binomtest(round(units.count * bootstrap[0] / 100), units.count).proportion_ci(LEVEL)
    if statistics.share:
        return 100.0 * exact.low, 100.0 * exact.high
    if bootstrap[0] == 0 or statistics.mistakes is None or not units.paired:
        return None
    sums, mistakes, errors = units.times @ units.rows[system][0], statistics.mistakes, units.count * (1 - exact.low)
    possible = np.where(mistakes < 0, sums / np.where(mistakes < 0, -mistakes, 1), np.inf).min(1)
    return float(statistics.value(sums + np.minimum(errors, possible)[:, None] * mistakes).min()), 100.0


@dataclass(frozen=True)
class Comparison:
    """Difference of two systems' scores on the same examples.

    Attributes:
        difference: first score minus second score, in points.
        interval: interval of the difference; None for a single unit.
        p: probability that chance gives a difference at least this large.
        examples_needed: number of examples with which 80 % of such sets would show a significant difference; None if
            this set does, or if there is no difference.
    """

    difference: float
    interval: Interval | None
    p: float
    significant: bool
    examples_needed: int | None


def compare(units: ResamplingUnits, values: np.ndarray, examples: int, seed: int, baseline: int = 1) -> Comparison:
    """Compare the first system with the system at index ``baseline``.

    Args:
        values: the systems' metric on resampled sets, see ``resampled_values``.
        examples: number of examples in the evaluation set.
        seed: seed of the permutations.
    """
    difference = units.score(0) - units.score(baseline)
    resampled = values[0] - values[baseline]
    p = _p_value(units, seed, baseline)
    significant = p < 1 - LEVEL
    needed = None
    if not significant and abs(difference) > 1e-9 and (spread := float(np.std(resampled))) > 0:
        reach = norm.ppf((1 + LEVEL) / 2) + norm.ppf(POWER)
        needed = math.ceil(examples * (reach * spread / difference) ** 2)
    return Comparison(difference, interval(resampled, units.count), p, significant, needed)


def _p_value(units: ResamplingUnits, seed: int, baseline: int) -> float:
    """Return the two-sided p value: McNemar's exact test if answers are correct or wrong, else a permutation test.

    By the null hypothesis, it makes no difference if the two systems swap their answers to a unit. The p value is the
    proportion of random swaps, including none, with a difference as large (approximate randomisation, Noreen 1989).
    """
    runs, baseline_runs, statistics = units.rows[0], units.rows[baseline], units.statistics
    if statistics.yes_no and units.paired and len(runs) == len(baseline_runs) == 1:
        gain = runs[0][:, 0] - baseline_runs[0][:, 0]
        more, less = (int(units.times[gain * sign > 0].sum()) for sign in (1, -1))
        return float(binomtest(more, more + less).pvalue) if more + less else 1.0
    # runs are cycled until each run of either system occurs equally often, as in its score
    num_pairs = math.lcm(len(runs), len(baseline_runs))
    pairs = [(runs[index % len(runs)], baseline_runs[index % len(baseline_runs)]) for index in range(num_pairs)]

    def differences(unswapped: np.ndarray) -> np.ndarray:
        swapped = units.times - unswapped
        first = [statistics.value(unswapped @ a + swapped @ b) for a, b in pairs]
        second = [statistics.value(swapped @ a + unswapped @ b) for a, b in pairs]
        return np.mean(first, axis=0) - np.mean(second, axis=0)

    observed = abs(differences(units.times[None].astype(float))[0]) - 1e-9
    rng, num_kinds = np.random.default_rng(seed), len(units.times)
    step, as_large = max(1, BATCH_NUMBERS // num_kinds), 0
    for start in range(0, NUM_PERMUTATIONS, step):
        size = (min(step, NUM_PERMUTATIONS - start), num_kinds)
        unswapped = rng.binomial(units.times, 0.5, size=size).astype(float)
        as_large += int(np.sum(np.abs(differences(unswapped)) >= observed))
    return (1 + as_large) / (1 + NUM_PERMUTATIONS)
