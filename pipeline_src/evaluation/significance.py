"""Confidence intervals of scores and significance tests between systems, by resampling examples.

Only the examples of an evaluation set are resampled; the variation over seeds is reported separately as their
standard deviation. Examples of one group (questions on a paragraph, sentences of a document) are resampled together.
Every metric is a function of sums (:mod:`pipeline_src.tasks.metrics`), so units with equal sums are sampled together:
the counts of each kind of unit are multinomial, which is the exact bootstrap at a cost that hardly grows with the set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest, norm
from scipy.stats import t as student

from pipeline_src.tasks.metrics import BootstrapStatistics

LEVEL = 0.95
RESAMPLED, SWAPPED = 2000, 4999  # sets; Efron and Tibshirani 1993, section 13.3, advise 1,000 or more for an interval
AT_ONCE = 1 << 22  # numbers in memory in one step
POWER = 0.8  # power for which examples_needed is computed (Cohen 1988)
Interval = tuple[float, float]


@dataclass(frozen=True)
class ResamplingUnits:
    """Resampling units for some systems on the same examples.

    Attributes:
        count: number of units: groups of examples, or examples.
        times: number of units of each kind, [kinds].
        rows: contribution of a unit of each kind, [kinds, sums], for each seed of each system.
        sums: the metric.
        paired: whether each unit is one example.
    """

    count: int
    times: np.ndarray
    rows: list[list[Any]]
    sums: BootstrapStatistics
    paired: bool

    def values(self, system: int, times: np.ndarray) -> np.ndarray:
        """Return a system's metric, mean over seeds, for units of each kind ``times``, [sets, kinds] -> [sets]."""
        return np.mean([self.sums.value(times @ rows) for rows in self.rows[system]], axis=0)

    def score(self, system: int) -> float:
        """Return a system's metric on the set itself."""
        return float(self.values(system, self.times[None].astype(float))[0])


def make_units(sums: BootstrapStatistics, seeds: Sequence[int], groups: Sequence[object]) -> ResamplingUnits:
    """Build the units of the systems in ``sums.rows``.

    Args:
        sums: sums of all runs, system after system.
        seeds: number of runs of each system.
        groups: group of each example, None for none; if all examples are in one group, examples are the units.
    """
    from scipy.sparse import csr_array, issparse

    numbers: dict[object, int] = {}
    of = [numbers.setdefault((place,) if group is None else group, len(numbers)) for place, group in enumerate(groups)]
    if len(numbers) == 1:
        of = list(range(len(groups)))
    count = max(of) + 1
    added = list(sums.rows)
    if count < len(of):
        member = csr_array((np.ones(len(of)), (of, range(len(of)))), shape=(count, len(of)))
        added = [member @ rows for rows in added]
    times = np.ones(count, int)
    if not issparse(added[0]):
        kinds, times = np.unique(np.hstack(added), axis=0, return_counts=True)
        added = np.split(kinds, len(added), axis=1)
    ends = np.cumsum([0, *seeds])
    rows = [added[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    return ResamplingUnits(count, times, rows, sums, count == len(of))


def _resampled(units: ResamplingUnits, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield counts of each kind in sets of units sampled with replacement, [sets, kinds] at a time."""
    step = max(1, AT_ONCE // len(units.times))
    for start in range(0, RESAMPLED, step):
        size = min(step, RESAMPLED - start)
        yield rng.multinomial(units.count, units.times / units.count, size=size).astype(float)


def resampled_values(units: ResamplingUnits, stream: int) -> np.ndarray:
    """Return the metric of every system on the same resampled sets, [systems, sets]."""
    rng = np.random.default_rng(stream)
    systems = range(len(units.rows))
    return np.concatenate([[units.values(system, times) for system in systems] for times in _resampled(units, rng)], 1)


def interval(values: np.ndarray, count: int, level: float = LEVEL) -> Interval | None:
    """Return the percentile bootstrap interval, its tails widened for few units (Hesterberg 2015, section 5.3).

    Args:
        values: metric of the resampled sets, [sets].
        count: number of units in a set; None is returned for a single unit.
        level: confidence level.
    """
    if count < 2:
        return None
    tail = norm.cdf(math.sqrt(count / (count - 1)) * student.ppf((1 - level) / 2, count - 1))
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def score_interval(units: ResamplingUnits, system: int, values: np.ndarray) -> Interval | None:
    """Return the interval of one system's score, or None if it is unknown.

    If all resampled sets score 0 or 100, as without any error, the bootstrap gives no interval. The exact interval
    (Clopper and Pearson 1934) for units of which none, or all, are correct is used instead. For a metric that is not a
    proportion, it ends at the value that the largest plausible number of errors, all of the worst kind, would give. It
    is unknown for correlations and for a score of 0.
    """
    found = interval(values, units.count)
    if found is None or found[0] != found[1] or found[0] not in (0.0, 100.0):
        return found
    exact = binomtest(round(units.count * found[0] / 100), units.count).proportion_ci(LEVEL)
    if units.sums.share:
        return 100.0 * exact.low, 100.0 * exact.high
    if found[0] == 0 or units.sums.mistakes is None or not units.paired:
        return None
    return _with_mistakes(units, system, units.count * (1 - exact.low)), 100.0


def _with_mistakes(units: ResamplingUnits, system: int, number: float) -> float:
    """Metric of a perfect system after ``number`` errors, all of the worst kind."""
    assert units.sums.mistakes is not None
    sums, ways = units.times @ units.rows[system][0], units.sums.mistakes
    possible = np.where(ways < 0, sums / np.where(ways < 0, -ways, 1), np.inf).min(1)
    return float(units.sums.value(sums + np.minimum(number, possible)[:, None] * ways).min())


@dataclass(frozen=True)
class Comparison:
    """Difference of two systems' scores on the same examples.

    Attributes:
        difference: in points.
        interval: interval of the difference; None for a single unit.
        p: probability of a difference at least as large by chance.
        significant: p below 0.05.
        examples_needed: number of such examples with which 80 % of sets would show a significant difference; None if
            this one does, or if there is no difference.
    """

    difference: float
    interval: Interval | None
    p: float
    significant: bool
    examples_needed: int | None


def compare(
    units: ResamplingUnits, values: np.ndarray, examples: int, stream: int, ours: int = 0, theirs: int = 1
) -> Comparison:
    """Compare two systems.

    Args:
        values: metric of resampled sets, see :func:`resampled_values`.
        stream: random stream of the swaps.
        ours, theirs: indices of the systems.
    """
    difference = units.score(ours) - units.score(theirs)
    resampled = values[ours] - values[theirs]
    p = _p_value(units, stream, ours, theirs)
    significant = p < 1 - LEVEL
    needed = None
    if not significant and abs(difference) > 1e-9 and (spread := float(np.std(resampled))) > 0:
        reach = norm.ppf((1 + LEVEL) / 2) + norm.ppf(POWER)
        needed = math.ceil(examples * (reach * spread / difference) ** 2)
    return Comparison(difference, interval(resampled, units.count), p, significant, needed)


def _p_value(units: ResamplingUnits, stream: int, ours: int, theirs: int) -> float:
    """Two-sided p value: McNemar's exact test if answers are correct or not, else a permutation test.

    Under the null hypothesis, swapping the systems' answers to any unit changes nothing; the p value is the proportion
    of random swaps with a difference as large, counting the set itself (approximate randomisation, Noreen 1989).
    """
    one_run = len(units.rows[ours]) == len(units.rows[theirs]) == 1
    if units.sums.yes_no and units.paired and one_run:
        gained = units.rows[ours][0][:, 0] - units.rows[theirs][0][:, 0]
        more, less = (int(units.times[gained * sign > 0].sum()) for sign in (1, -1))
        return float(binomtest(more, more + less).pvalue) if more + less else 1.0
    # runs are cycled until each run of either system occurs equally often, as in its score
    most = math.lcm(len(units.rows[ours]), len(units.rows[theirs]))
    pairs = [[rows[run % len(rows)] for rows in (units.rows[ours], units.rows[theirs])] for run in range(most)]

    def differences(kept: np.ndarray) -> np.ndarray:
        gone = units.times - kept
        ones = [units.sums.value(kept @ own + gone @ other) for own, other in pairs]
        others = [units.sums.value(gone @ own + kept @ other) for own, other in pairs]
        return np.mean(ones, axis=0) - np.mean(others, axis=0)

    least = abs(differences(units.times[None].astype(float))[0]) - 1e-9
    rng, kinds = np.random.default_rng(stream), len(units.times)
    step, as_large = max(1, AT_ONCE // kinds), 0
    for start in range(0, SWAPPED, step):
        kept = rng.binomial(units.times, 0.5, size=(min(step, SWAPPED - start), kinds)).astype(float)
        as_large += int(np.sum(np.abs(differences(kept)) >= least))
    return (1 + as_large) / (1 + SWAPPED)
