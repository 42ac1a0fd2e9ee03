"""How far a score may be off, and whether two systems on the same examples differ: resampling of examples.

Only the examples of an evaluation set are resampled; how restarts differ is said apart, by their deviation. Examples
taken with others (questions of a paragraph, sentences of a document) are resampled with them. Every metric is a
function of sums (:mod:`pipeline_src.tasks.sums`), and units that add the same are drawn together: how often each kind
of unit comes is multinomial, which is the bootstrap exactly, at a cost that hardly grows with the set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest, norm
from scipy.stats import t as student

from pipeline_src.tasks.sums import Sums

LEVEL = 0.95
RESAMPLED, SWAPPED = 2000, 4999  # sets; Efron and Tibshirani 1993, section 13.3, take 1,000 or more for an interval
AT_ONCE = 1 << 22  # numbers of one step
POWER = 0.8  # Cohen 1988: how likely a set of the size named is to tell the difference
Interval = tuple[float, float]


@dataclass(frozen=True)
class Units:
    """What is resampled, for some systems on the same examples.

    Attributes:
        count: how many units: groups of examples, or examples.
        times: how often each kind of unit occurs, [kinds].
        rows: what a unit of each kind adds, [kinds, sums], for each restart of each system.
        sums: the metric.
        paired: whether each unit is one example.
    """

    count: int
    times: np.ndarray
    rows: list[list[Any]]
    sums: Sums
    paired: bool

    def values(self, system: int, times: np.ndarray) -> np.ndarray:
        """A system's metric, mean over its restarts, where the kinds occur ``times``, [sets, kinds]: [sets]."""
        return np.mean([self.sums.value(times @ rows) for rows in self.rows[system]], axis=0)

    def score(self, system: int) -> float:
        """A system's metric on the set itself."""
        return float(self.values(system, self.times[None].astype(float))[0])


def make_units(sums: Sums, restarts: Sequence[int], groups: Sequence[object]) -> Units:
    """Units of the systems in ``sums.rows``, of which each has as many runs as ``restarts`` says.

    Args:
        sums: of all runs, system after system.
        restarts: how many runs each system has.
        groups: what each example shares with others, None for nothing; where all share one, examples are the units.
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
    ends = np.cumsum([0, *restarts])
    rows = [added[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    return Units(count, times, rows, sums, count == len(of))


def _resampled(units: Units, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """How often each kind occurs in sets of as many units drawn with replacement, [sets, kinds] at a time."""
    step = max(1, AT_ONCE // len(units.times))
    for start in range(0, RESAMPLED, step):
        size = min(step, RESAMPLED - start)
        yield rng.multinomial(units.count, units.times / units.count, size=size).astype(float)


def resampled_values(units: Units, stream: int) -> np.ndarray:
    """The metric of every system on the same resampled sets, [systems, sets]."""
    rng = np.random.default_rng(stream)
    systems = range(len(units.rows))
    return np.concatenate([[units.values(system, times) for system in systems] for times in _resampled(units, rng)], 1)


def interval(values: np.ndarray, count: int, level: float = LEVEL) -> Interval | None:
    """The bootstrap's percentile interval, its tails widened for few units (Hesterberg 2015, section 5.3).

    Args:
        values: of resampled sets, [sets].
        count: how many units they were made of; one unit tells nothing, which gives None.
        level: how often the truth is to lie within.
    """
    if count < 2:
        return None
    tail = norm.cdf(math.sqrt(count / (count - 1)) * student.ppf((1 - level) / 2, count - 1))
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def score_interval(units: Units, system: int, values: np.ndarray) -> Interval | None:
    """The interval of one system's score.

    Where no resampled set differs from a score of 0 or 100, as with no error at all, the bootstrap knows nothing; what
    is left then is the exact interval (Clopper and Pearson 1934) for units of which none, or each, is right. Where the
    metric is no share of them, it ends at what as many mistakes as that allows would make of it, all of the worst way.
    Of a correlation, or where all is wrong, nothing is known then, which gives None.
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


def _with_mistakes(units: Units, system: int, number: float) -> float:
    """The metric of a system that is always right if it made ``number`` mistakes, all of the worst way."""
    assert units.sums.mistakes is not None
    sums, ways = units.times @ units.rows[system][0], units.sums.mistakes
    possible = np.where(ways < 0, sums / np.where(ways < 0, -ways, 1), np.inf).min(1)
    return float(units.sums.value(sums + np.minimum(number, possible)[:, None] * ways).min())


@dataclass(frozen=True)
class Comparison:
    """One system's score less another's on the same examples.

    Attributes:
        difference: in points.
        interval: of the difference; None for a single unit.
        p: how often chance alone makes a difference at least as large.
        told: whether it lies outside the noise: p below 0.05.
        examples_to_tell: of as many such examples, 80 % of all sets would tell the difference; None where this one
            does, or where there is no difference.
    """

    difference: float
    interval: Interval | None
    p: float
    told: bool
    examples_to_tell: int | None


def compare(units: Units, values: np.ndarray, examples: int, stream: int, ours: int = 0, theirs: int = 1) -> Comparison:
    """Compare two systems.

    Args:
        units: of both.
        values: of resampled sets, as :func:`resampled_values` gives them.
        examples: how many the set has.
        stream: keys the swaps.
        ours, theirs: which systems.
    """
    difference = units.score(ours) - units.score(theirs)
    drawn = values[ours] - values[theirs]
    p = _p_value(units, stream, ours, theirs)
    told = p < 1 - LEVEL
    needed = None
    if not told and abs(difference) > 1e-9 and (spread := float(np.std(drawn))) > 0:
        reach = norm.ppf((1 + LEVEL) / 2) + norm.ppf(POWER)
        needed = math.ceil(examples * (reach * spread / difference) ** 2)
    return Comparison(difference, interval(drawn, units.count), p, told, needed)


def _p_value(units: Units, stream: int, ours: int, theirs: int) -> float:
    """Two-sided: McNemar's exact test where answers are right or wrong, else a permutation test.

    If the systems are alike, swapping their answers to any unit changes nothing; the p value is the share of random
    swaps whose difference is as large (Noreen 1989, approximate randomisation), the set as it is counted among them.
    """
    one_run = len(units.rows[ours]) == len(units.rows[theirs]) == 1
    if units.sums.yes_no and units.paired and one_run:
        gained = units.rows[ours][0][:, 0] - units.rows[theirs][0][:, 0]
        more, less = (int(units.times[gained * sign > 0].sum()) for sign in (1, -1))
        return float(binomtest(more, more + less).pvalue) if more + less else 1.0
    # runs begin again until each of either system has come equally often, as it does in its score
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
