"""The made-up Wikipedia of a benchmark: laws of its words, spelling, and blocks of wikitext."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._made_wikipedia import HEAD_RANKS, TAIL, draw_ranks, spelled, split_blocks


def test_draw_ranks_frequency_falls_as_zipf_and_mandelbrot_say() -> None:
    counts = np.bincount(np.minimum(draw_ranks(np.random.default_rng(1), 1_000_000), HEAD_RANKS))
    assert counts[9] / counts[99] == pytest.approx((100 + 2.7) / (10 + 2.7), rel=0.1)
    low, high = (counts[rank : 2 * rank].sum() for rank in (100, 1_000))
    assert low == pytest.approx(high, rel=0.05)


def test_draw_ranks_distinct_words_grow_as_heaps_says() -> None:
    ranks = draw_ranks(np.random.default_rng(1), 4_000_000)
    few, many = (len(np.unique(part)) for part in (ranks[:500_000], ranks))
    assert np.log(many / few) / np.log(8) == pytest.approx(1 / TAIL, abs=0.06)


def test_spelled_numbers_have_distinct_words() -> None:
    words = {spelled(number) for number in [*range(1, 200_000), *range(10**9, 10**9 + 1000)]}
    assert len(words) == 200_999 and all(word.isalpha() and word.islower() for word in words)


def test_split_blocks_template_table_or_reference_is_one_block() -> None:
    blocks = [
        "A line.\n",
        "{{Infobox\n| a = {{b}}\n}}\n",
        "{|\n| cell\n|}\n",
        "Said so.&lt;ref&gt;First\nsecond.&lt;/ref&gt; More.\n",
        "== Heading ==\n",
        "{{unclosed\nto the end",
    ]
    assert list(split_blocks("".join(blocks))) == blocks
