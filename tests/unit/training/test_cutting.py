"""Where batches are cut: within the memory, in order, and evenly."""

import itertools

import numpy as np
import pytest

from pipeline_src.training.cutting import cut_evenly, cut_in_order


@pytest.mark.parametrize("tokens", [1, 20, 1000])
@pytest.mark.parametrize("cut", [cut_in_order, cut_evenly])
def test_pieces_keep_the_order_and_the_budget(cut, tokens):
    lengths = np.asarray([5, 12, 1, 3, 8, 25])
    pieces = cut(lengths, tokens)
    assert np.concatenate([lengths[piece] for piece in pieces]).tolist() == lengths.tolist()
    assert all(lengths[piece].sum() <= tokens or len(lengths[piece]) == 1 for piece in pieces)


def test_what_is_left_over_is_shared_out():
    """A batch of BERT-base on one GPU: 217 sequences of 128 tokens, of which 128 fit at once."""
    sums = [[int(lengths[piece].sum()) for piece in cut(lengths, 16_384)] for cut in (cut_in_order, cut_evenly)
            for lengths in [np.full(217, 128)]]  # fmt: skip
    assert sums == [[16_384, 11_392], [13_952, 13_824]]


def test_the_largest_of_even_pieces_is_as_small_as_can_be():
    rng = np.random.default_rng(0)
    for _ in range(30):
        lengths, tokens = rng.integers(1, 20, 9), int(rng.integers(20, 60))
        pieces, fewest = cut_evenly(lengths, tokens), len(cut_in_order(lengths, tokens))
        smallest = min(
            max(part.sum() for part in np.split(lengths, edges))
            for edges in itertools.combinations(range(1, len(lengths)), fewest - 1)
        )
        assert len(pieces) <= fewest and max(lengths[piece].sum() for piece in pieces) == smallest


def test_what_fits_is_not_cut():
    assert cut_evenly(np.full(8, 16), 128) == cut_evenly(np.full(8, 16), None) == [slice(0, 8)]
