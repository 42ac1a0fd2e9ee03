"""Confidence intervals of scores and significance tests between systems, by resampling examples.

Only the examples of an evaluation set are resampled. The variation over seeds is reported separately, as a standard
deviation. Examples of one group (questions on a paragraph, sentences of a document) form one unit, which is resampled
as a whole.

Every metric is a function of sums (``tasks/metrics.py``), so units with equal sums are interchangeable: they are of the
same kind. Instead of units, the bootstrap draws the number of units of each kind from a multinomial distribution. The
result is the same, and the cost hardly grows with the size of the set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
from scipy.stats import binomtest, norm
from scipy.stats import t as student

from pipeline_src.tasks.metrics import BootstrapStatistics

LEVEL = 0.95
# An interval needs 1,000 or more resamples (Efron and Tibshirani 1993, section 13.3).
NUM_RESAMPLES = 2000
NUM_PERMUTATIONS = 4999
# Maximum number of random counts (resamples x kinds) that are in memory at once.
BATCH_NUMBERS = 1 << 22
# Statistical power for which Comparison.examples_needed is computed (Cohen 1988).
POWER = 0.8
Interval = tuple[float, float]


@dataclass(frozen=True)
class ResamplingUnits:
    """The units that are resampled, with their sums for several systems on the same examples.

    Attributes:
        count: number of units. A unit is a group of examples, or a single example.
        times: number of units of each kind, [kinds].
        rows: for each system and each of its seeds, the contribution of one unit of each kind to the sums,
            [kinds, sums].
        paired: whether each unit is a single example.
    """

    count: int
    times: np.ndarray
    rows: list[list[Any]]
    statistics: BootstrapStatistics
    paired: bool

    def values(self, system: int, times: np.ndarray) -> np.ndarray:
        # Returns the metric of a system, averaged over seeds, [sets]. `times`: number of units of each kind in each
        # resampled set, [sets, kinds].
        return np.mean([self.statistics.value(times @ rows) for rows in self.rows[system]], axis=0)

    def score(self, system: int) -> float:
        return float(self.values(system, self.times[None].astype(float))[0])


def make_units(statistics: BootstrapStatistics, seeds: Sequence[int], groups: Sequence[object]) -> ResamplingUnits:
    """Build the units of the systems in ``statistics.rows``.

    Args:
        statistics: the statistics of all runs: first the runs of the first system, then those of the second, and so on.
        seeds: number of runs of each system.
        groups: group of each example, or None if the example is a unit by itself. If all examples are in the same
            group, the group is ignored and each example is a unit.
    """
    from scipy.sparse import csr_array, issparse

    # The unit of each example, numbered in order of appearance. Groups a, b, a, None give units 0, 1, 0, 2.
    indices: dict[object, int] = {}
    unit = []
    for example, group in enumerate(groups):
        key = (example,) if group is None else group
        unit.append(indices.setdefault(key, len(indices)))
    if len(indices) == 1:
        unit = list(range(len(groups)))
    count = max(unit) + 1
    rows = list(statistics.rows)
    if count < len(unit):
        # member[u, e] is 1 if example e belongs to unit u, so the matrix product adds up the rows of each unit.
        cells = (unit, range(len(unit)))
        member = csr_array((np.ones(len(unit)), cells), shape=(count, len(unit)))
        rows = [member @ run for run in rows]
    times = np.ones(count, int)
    if not issparse(rows[0]):
        # Units whose sums are equal in all runs are of the same kind.
        kinds, times = np.unique(np.hstack(rows), axis=0, return_counts=True)
        rows = np.split(kinds, len(rows), axis=1)
    runs = iter(rows)
    by_system = [list(islice(runs, number)) for number in seeds]
    return ResamplingUnits(count, times, by_system, statistics, count == len(unit))


def resampled_values(units: ResamplingUnits, seed: int) -> np.ndarray:
    # Returns the metric of every system on sets of units that are drawn with replacement, [systems, sets].
    rng = np.random.default_rng(seed)
    step = max(1, BATCH_NUMBERS // len(units.times))
    probabilities = units.times / units.count
    # The number of units of each kind is drawn instead of single units, since the sums are the same.
    batches = []
    for start in range(0, NUM_RESAMPLES, step):
        size = min(step, NUM_RESAMPLES - start)
        times = rng.multinomial(units.count, probabilities, size=size).astype(float)
        batches.append([units.values(system, times) for system in range(len(units.rows))])
    return np.concatenate(batches, 1)


def interval(values: np.ndarray, count: int) -> Interval | None:
    # Percentile bootstrap interval, widened for small numbers of units (Hesterberg 2015, section 5.3). `values`: the
    # metric on resampled sets of `count` units each. None if there is only one unit.
    if count < 2:
        return None
    tail = norm.cdf(math.sqrt(count / (count - 1)) * student.ppf((1 - LEVEL) / 2, count - 1))
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def score_interval(units: ResamplingUnits, system: int, values: np.ndarray) -> Interval | None:
    """Return the interval of one system's score, or None if it is unknown.

    The bootstrap gives no interval if all resampled sets (``values``) score 0 or all score 100. Then:

    - For a ratio of two sums, the exact binomial interval is used, with no unit or all units correct (Clopper and
      Pearson 1934).
    - For another metric with a score of 100, the lower end is the score with the largest plausible number of errors,
      all of the worst kind.
    - For a score of 0, or for a correlation, the interval is unknown.
    """
    bootstrap = interval(values, units.count)
    if bootstrap is None:
        return None
    low, high = bootstrap
    if low != high or low not in (0.0, 100.0):
        return bootstrap

    correct = round(units.count * low / 100)
    exact = binomtest(correct, units.count).proportion_ci(LEVEL)
    if units.statistics.share:
        return 100.0 * exact.low, 100.0 * exact.high
    mistakes = units.statistics.mistakes
    if low == 0 or mistakes is None or not units.paired:
        return None

    # All answers are correct. Each kind of mistake is added as often as is plausible, but only as long as no sum
    # becomes negative. With 3 true positives, for example, there can be at most 3 false negatives.
    sums = units.times @ units.rows[system][0]
    plausible = units.count * (1 - exact.low)
    lowers = mistakes < 0
    possible = np.where(lowers, sums / np.where(lowers, -mistakes, 1), np.inf).min(1)
    errors = np.minimum(plausible, possible)[:, None]
    lowest = units.statistics.value(sums + errors * mistakes).min()
    return float(lowest), 100.0


@dataclass(frozen=True)
class Comparison:
    """Difference of two systems' scores on the same examples.

    Attributes:
        difference: first score minus second score, in points.
        interval: interval of the difference; None if there is only one unit.
        p: p value, the probability of a difference at least this large if the systems are equally good.
        examples_needed: size of an evaluation set with which the difference would be significant with 80 % power; None
            if it is already significant, or if there is no difference.
    """

    difference: float
    interval: Interval | None
    p: float
    significant: bool
    examples_needed: int | None


def compare(units: ResamplingUnits, values: np.ndarray, examples: int, seed: int, baseline: int = 1) -> Comparison:
    """Compare the first system with the system at index ``baseline``.

    Args:
        values: the metric of each system on resampled sets, from ``resampled_values``.
        examples: number of examples in the evaluation set.
        seed: seed of the permutations.
    """
    difference = units.score(0) - units.score(baseline)
    resampled = values[0] - values[baseline]
    p = _p_value(units, seed, baseline)
    significant = p < 1 - LEVEL

    # The standard error of the difference is proportional to 1 / sqrt(number of examples).
    needed = None
    spread = float(np.std(resampled))
    if not significant and abs(difference) > 1e-9 and spread > 0:
        # With this power, the difference is expected to be this many standard errors away from 0.
        reach = norm.ppf((1 + LEVEL) / 2) + norm.ppf(POWER)
        needed = math.ceil(examples * (reach * spread / difference) ** 2)

    return Comparison(
        difference=difference,
        interval=interval(resampled, units.count),
        p=p,
        significant=significant,
        examples_needed=needed,
    )


def _p_value(units: ResamplingUnits, seed: int, baseline: int) -> float:
    # Two-sided test. If every answer is either correct or wrong and each system has one run, it is McNemar's exact
    # test. Otherwise it is a permutation test (approximate randomisation, Noreen 1989): under the null hypothesis, the
    # two systems may swap their answers to a unit. The p value is the fraction of random swaps, including the one that
    # swaps nothing, with a difference at least as large as the observed difference.
    statistics = units.statistics
    runs = units.rows[0]
    baseline_runs = units.rows[baseline]
    if statistics.yes_no and units.paired and len(runs) == len(baseline_runs) == 1:
        gain = runs[0][:, 0] - baseline_runs[0][:, 0]
        better = int(units.times[gain > 0].sum())
        worse = int(units.times[gain < 0].sum())
        return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0

    # Every run occurs in equally many pairs, since all runs count equally in a system's score. 2 runs against 3 make 6
    # pairs.
    num_pairs = math.lcm(len(runs), len(baseline_runs))
    pairs = list(islice(zip(cycle(runs), cycle(baseline_runs), strict=True), num_pairs))

    def differences(unswapped: np.ndarray) -> np.ndarray:
        # Returns the difference of the mean scores, [sets]. `unswapped`: number of units of each kind that are not
        # swapped, [sets, kinds].
        swapped = units.times - unswapped
        first = [statistics.value(unswapped @ a + swapped @ b) for a, b in pairs]
        second = [statistics.value(swapped @ a + unswapped @ b) for a, b in pairs]
        return np.mean(first, axis=0) - np.mean(second, axis=0)

    # The tolerance ignores differences through rounding errors.
    no_swaps = units.times[None].astype(float)
    observed = abs(differences(no_swaps)[0]) - 1e-9

    rng = np.random.default_rng(seed)
    num_kinds = len(units.times)
    step = max(1, BATCH_NUMBERS // num_kinds)
    as_large = 0
    for start in range(0, NUM_PERMUTATIONS, step):
        size = min(step, NUM_PERMUTATIONS - start)
        unswapped = rng.binomial(units.times, 0.5, size=(size, num_kinds)).astype(float)
        as_large += int(np.sum(np.abs(differences(unswapped)) >= observed))
    return (1 + as_large) / (1 + NUM_PERMUTATIONS)
