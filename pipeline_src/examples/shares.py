"""Give each source a share of the training examples, by weight or by size (as multilingual BERT).

Without ``examples.weights`` and ``examples.temperature``, every source is read ``dupe_factor`` times. With one of them,
the total number of examples stays the same, but a source is read more or less often, and a pseudo-random permutation
selects its share of examples. Random numbers depend on the source, and a random segment B comes from the source of A.
So the examples of a source do not depend on other sources, and no pair mixes two languages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline_src.base.counter_rng import derive_seed, permuted
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.paths import TOKENS
from pipeline_src.examples.token_store import EXAMPLES_PER_BLOCK, read_sample_index, write_sample_index
from pipeline_src.study.data import ExamplesParams

# A source may get at most this many times its number of examples without shares.
MAX_REPEATS = 100

Sample = Callable[[str, int], Iterator[np.ndarray]]


@dataclass(frozen=True)
class Mixed:
    """The examples of one source in the training set.

    Attributes:
        share: fraction of all examples that come from the source.
        examples: number of examples from the source.
        passes: number of passes over the source's text.
        passes_alone: number of passes if no shares were set.
        left_out: number of examples that the passes gave beyond ``examples``, which were not selected.
    """

    share: float
    examples: int
    passes: int
    passes_alone: int
    left_out: int

    def __str__(self) -> str:
        if self.passes > self.passes_alone:
            change = "repeated"
        else:
            change = "thinned" if self.left_out else "complete"
        return (
            f"{self.share:.1%} of all, {self.examples:,} examples of {self.passes} passes instead of "
            f"{self.passes_alone}: {change}, {self.left_out:,} left out"
        )


def shares_are_set(examples: ExamplesParams) -> bool:
    return examples.weights is not None or examples.temperature is not None


def source_shares(examples: ExamplesParams, tokens: Mapping[str, int]) -> dict[str, float]:
    # Return source -> share. `tokens` has the number of tokens of each source, which `examples.temperature` needs.
    if examples.weights is not None:
        sizes = {source: float(examples.weights[source]) for source in tokens}
    elif examples.temperature is not None:
        sizes = {source: count**examples.temperature if count else 0.0 for source, count in tokens.items()}
    else:
        return {}
    for source, size in sizes.items():
        if size and not tokens[source]:
            raise _too_little(source, 0, 1, "some")
    total = sum(sizes.values())
    return {source: size / total for source, size in sizes.items()}


def sample_sources(shares: Mapping[str, float], dupe_factor: int, sample: Sample, scratch: Path) -> dict[str, Mixed]:
    """Sample as many examples from each source as its share requires.

    The total number of examples is that of ``dupe_factor`` passes over all sources.

    Args:
        sample: function that yields the examples of a source in a number of passes, in blocks.
        scratch: folder to which the examples are written. ``select_examples`` reads them.
    """
    # Number of examples that each source gives without shares.
    alone = {}
    for source in shares:
        alone[source] = sum(len(block) for block in sample(source, dupe_factor))
    mixed = {}
    for source, examples in _whole_numbers(shares, sum(alone.values())).items():
        if examples > MAX_REPEATS * alone[source]:
            raise _too_little(source, alone[source], dupe_factor, f"{examples:,}")
        passes = math.ceil(examples * dupe_factor / alone[source]) if examples else 0
        sampled = 0
        # Passes differ in their number of examples, so the estimated number of passes may be too low by one.
        while sampled < examples:
            sampled, _ = write_sample_index(scratch / f"{source}.npy", sample(source, passes))
            if sampled < examples:
                passes += 1
        mixed[source] = Mixed(round(shares[source], 6), examples, passes, dupe_factor, sampled - examples)
    return mixed


def select_examples(mixed: Mapping[str, Mixed], seed: int, phase: str, scratch: Path) -> Iterator[np.ndarray]:
    # Yield the selected examples of each source, in blocks, from the files that `sample_sources` wrote to `scratch`.
    for source, counts in mixed.items():
        if not counts.examples:
            continue
        examples = read_sample_index(scratch / f"{source}.npy")
        stream = derive_seed(seed, "share", phase, source)
        for start in range(0, len(examples), EXAMPLES_PER_BLOCK):
            positions = np.arange(start, min(start + EXAMPLES_PER_BLOCK, len(examples)))
            # Select the examples that a pseudo-random permutation puts first.
            selected = permuted(stream, positions, len(examples)) < counts.examples
            yield examples[positions[selected]]


def _whole_numbers(shares: Mapping[str, float], total: int) -> dict[str, int]:
    # Divide `total` in proportion to the shares. The largest remainders are rounded up.
    floors = {source: math.floor(share * total) for source, share in shares.items()}
    by_remainder = sorted(shares, key=lambda source: (floors[source] - shares[source] * total, source))
    for source in by_remainder[: total - sum(floors.values())]:
        floors[source] += 1
    return floors


def _too_little(source: str, examples: int, passes: int, needed: str) -> PipelineError:
    return PipelineError(
        f"source {source} has too little text for its share",
        f"{examples:,} examples in {passes} passes; {needed} needed",
        where=TOKENS,
        hint="add text to the source, lower its weight in examples.weights, or raise examples.temperature; a source "
        f"is repeated at most {MAX_REPEATS} times",
    )
