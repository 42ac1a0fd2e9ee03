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
from itertools import cycle, islice
from typing import Any

import numpy as np
from scipy.stats import binomtest, norm
from scipy.stats import t as student

from pipeline_src.tasks.metrics import BootstrapStatistics

LEVEL = 0.95
# Efron and Tibshirani 1993, section 13.3: 1,000 or more for an interval.
NUM_RESAMPLES = 2000
NUM_PERMUTATIONS = 4999
# This many numbers are in memory at once.
BATCH_NUMBERS = 1 << 22
# Comparison.examples_needed is computed for this power (Cohen 1988).
POWER = 0.8
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
        # The metric of a system, averaged over seeds, [sets]. `times`: units of each kind, [sets, kinds].
        return np.mean([self.statistics.value(times @ rows) for rows in self.rows[system]], axis=0)

    def score(self, system: int) -> float:
        return float(self.values(system, self.times[None].astype(float))[0])


def make_units(statistics: BootstrapStatistics, seeds: Sequence[int], groups: Sequence[object]) -> ResamplingUnits:
    """Build the units of the systems in ``statistics.rows``.

    Args:
        statistics: the statistics of all runs, system after system.
        seeds: number of runs of each system.
        groups: group of each example; None makes the example a unit. If all are in one group, each example is a unit.
    """
    from scipy.sparse import csr_array, issparse

    # The unit of each example, numbered as they come: groups a, b, a, None have units 0, 1, 0, 2.
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
        # member[u, e] is 1 if example e belongs to unit u: the product adds up the rows of a unit.
        cells = (unit, range(len(unit)))
        member = csr_array((np.ones(len(unit)), cells), shape=(count, len(unit)))
        rows = [member @ run for run in rows]
    times = np.ones(count, int)
    if not issparse(rows[0]):
        # Units whose sums are equal in all runs are of one kind.
        kinds, times = np.unique(np.hstack(rows), axis=0, return_counts=True)
        rows = np.split(kinds, len(rows), axis=1)
    runs = iter(rows)
    by_system = [list(islice(runs, number)) for number in seeds]
    return ResamplingUnits(count, times, by_system, statistics, count == len(unit))


def resampled_values(units: ResamplingUnits, seed: int) -> np.ndarray:
    # The metric of every system on sets of units that were drawn with replacement, [systems, sets].
    rng = np.random.default_rng(seed)
    step = max(1, BATCH_NUMBERS // len(units.times))
    probabilities = units.times / units.count
    # Numbers of units of each kind are drawn, not the units themselves: the sums are the same.
    batches = []
    for start in range(0, NUM_RESAMPLES, step):
        size = min(step, NUM_RESAMPLES - start)
        times = rng.multinomial(units.count, probabilities, size=size).astype(float)
        batches.append([units.values(system, times) for system in range(len(units.rows))])
    return np.concatenate(batches, 1)


def interval(values: np.ndarray, count: int) -> Interval | None:
    # The percentile bootstrap, widened if units are few (Hesterberg 2015, section 5.3). `values`: the metric on
    # resampled sets of `count` units each. A single unit has no interval.
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

    # All answers are correct. A kind of mistake is made as often as is plausible, but not so often that a sum would be
    # negative: with 3 true positives, there are at most 3 false negatives.
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

    # The spread of the difference shrinks with the root of the number of examples.
    needed = None
    spread = float(np.std(resampled))
    if not significant and abs(difference) > 1e-9 and spread > 0:
        # The difference must be this many standard errors away from 0.
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
    # Two-sided: McNemar's exact test if answers are correct or wrong, else a permutation test. By the null hypothesis,
    # it makes no difference if the two systems swap their answers to a unit. The p value is the proportion of random
    # swaps, including none, with a difference as large (approximate randomisation, Noreen 1989).
    statistics = units.statistics
    runs = units.rows[0]
    baseline_runs = units.rows[baseline]
    if statistics.yes_no and units.paired and len(runs) == len(baseline_runs) == 1:
        gain = runs[0][:, 0] - baseline_runs[0][:, 0]
        better = int(units.times[gain > 0].sum())
        worse = int(units.times[gain < 0].sum())
        return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0

    # Every run is paired equally often, as it counts in its system's score: 2 runs against 3 make 6 pairs.
    num_pairs = math.lcm(len(runs), len(baseline_runs))
    pairs = list(islice(zip(cycle(runs), cycle(baseline_runs), strict=True), num_pairs))

    def differences(unswapped: np.ndarray) -> np.ndarray:
        # Returns the difference of the mean scores, [sets]. `unswapped`: units of each kind, [sets, kinds].
        swapped = units.times - unswapped
        first = [statistics.value(unswapped @ a + swapped @ b) for a, b in pairs]
        second = [statistics.value(swapped @ a + unswapped @ b) for a, b in pairs]
        return np.mean(first, axis=0) - np.mean(second, axis=0)

    # The permutation without a swap counts. A difference by rounding does not.
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
