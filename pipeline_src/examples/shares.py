"""Shares of the sources in the training examples: by weights, or by size with an exponent (multilingual BERT).

Without either, every source is read ``dupe_factor`` times. With them, the number of examples stays the same, and each
source has its share of them: it is read more often or less, and what is beyond its share is left out, by a keyed
permutation of its examples. Random numbers are keyed by the source too, and B of a random pair is of A's source, so
that the examples of a source do not depend on the others, and no pair mixes two languages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import TOKENS
from pipeline_src.config.data import ExamplesParams
from pipeline_src.examples.token_store import ROWS_AT_ONCE, read_sample_index, write_sample_index

MOST_REPEATS = 100  # times that a source may be read instead of once

Draw = Callable[[str, int], Iterator[np.ndarray]]


@dataclass(frozen=True)
class Mixed:
    """The examples of one source in the training set.

    Attributes:
        share: fraction of all examples that it was to have.
        examples: number of its examples.
        passes: passes over its text from which they were taken.
        passes_alone: passes over it without shares.
        left_out: examples of these passes beyond its share.
    """

    share: float
    examples: int
    passes: int
    passes_alone: int
    left_out: int

    def __str__(self) -> str:
        change = "repeated" if self.passes > self.passes_alone else "thinned" if self.left_out else "whole"
        return (
            f"{self.share:.1%} of all, {self.examples:,} examples of {self.passes} passes instead of "
            f"{self.passes_alone}: {change}, {self.left_out:,} left out"
        )


def shares_are_set(examples: ExamplesParams) -> bool:
    """Return whether the sources have shares of their own; if not, all text is read equally often."""
    return examples.weights is not None or examples.temperature is not None


def wanted_shares(examples: ExamplesParams, tokens: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each source; empty if none is set."""
    if examples.weights is not None:
        sizes = {source: float(examples.weights[source]) for source in tokens}
    elif examples.temperature is not None:
        sizes = {source: count**examples.temperature if count else 0.0 for source, count in tokens.items()}
    else:
        return {}
    for source, size in sizes.items():
        if size and not tokens[source]:
            raise _too_little(source, 0, 1, "some")
    return {source: size / sum(sizes.values()) for source, size in sizes.items()}


def mix(shares: Mapping[str, float], dupe_factor: int, draw: Draw, seed: int, phase: str, scratch: Path) -> SourceMix:
    """Draw the examples of each source, as many as its share of ``dupe_factor`` passes over all.

    Args:
        dupe_factor: passes over a source without shares.
        draw: yields the examples of a source in a number of passes, in blocks.
        seed, phase: key what is left out.
        scratch: folder for the examples until they are thinned.
    """
    alone = {source: _count(draw(source, dupe_factor)) for source in shares}
    wanted = _whole_numbers(shares, sum(alone.values()))
    mixed = {}
    for source, examples in wanted.items():
        if examples > MOST_REPEATS * alone[source]:
            raise _too_little(source, alone[source], dupe_factor, f"{examples:,}")
        passes = math.ceil(examples * dupe_factor / alone[source]) if examples else 0
        drawn = 0
        while examples and drawn < examples:  # passes are not equally long
            drawn, _ = write_sample_index(scratch / f"{source}.npy", draw(source, passes))
            passes += drawn < examples
        mixed[source] = Mixed(round(shares[source], 6), examples, passes, dupe_factor, drawn - examples)
    return SourceMix(mixed, scratch, seed, phase)


@dataclass(frozen=True)
class SourceMix:
    """What ``mix`` drew.

    Attributes:
        sources: source -> its part.
        scratch: folder of their examples, a file each.
        seed, phase: key what is left out.
    """

    sources: Mapping[str, Mixed]
    scratch: Path
    seed: int
    phase: str

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the examples that are kept, source by source, in blocks."""
        for source, mixed in self.sources.items():
            if not mixed.examples:
                continue
            rows = read_sample_index(self.scratch / f"{source}.npy")
            stream = derive_seed(self.seed, "share", self.phase, source)
            for start in range(0, len(rows), ROWS_AT_ONCE):
                places = np.arange(start, min(start + ROWS_AT_ONCE, len(rows)))
                yield rows[places[permuted(stream, places, len(rows)) < mixed.examples]]

    def counts(self) -> dict[str, dict[str, float]]:
        """Return what is recorded of each source."""
        return {source: asdict(mixed) for source, mixed in self.sources.items()}


def _count(blocks: Iterator[np.ndarray]) -> int:
    return sum(map(len, blocks))


def _whole_numbers(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """Divide ``total`` by shares into whole numbers: the largest remainders are rounded up."""
    floors = {source: math.floor(share * total) for source, share in shares.items()}
    by_remainder = sorted(shares, key=lambda source: (floors[source] - shares[source] * total, source))
    for source in by_remainder[: total - sum(floors.values())]:
        floors[source] += 1
    return floors


def _too_little(source: str, there: int, passes: int, needed: str) -> PipelineError:
    return PipelineError(
        f"too little text of {source} for its share",
        f"{there:,} examples in {passes} passes; {needed} needed",
        where=TOKENS,
        hint=f"give more text of it, or a smaller share: examples.weights, or a higher examples.temperature; a source "
        f"is repeated {MOST_REPEATS} times at most",
    )
