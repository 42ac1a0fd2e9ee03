"""Keyed random numbers and permutations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.base.counter_rng import bits, derive_seed, integers, permuted, uniform


def test_uniform_numbers_depend_on_row_column_and_stream():
    rows, columns = np.arange(300)[:, None], np.arange(40)
    values = uniform(derive_seed("a"), rows, columns)
    assert values.shape == (300, 40) and values.min() >= 0 and values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01 and len(np.unique(values)) == values.size
    assert not np.isin(values, uniform(derive_seed("b"), rows, columns)).any()
    assert abs(np.corrcoef(values[:, 0], values[:, 1])[0, 1]) < 0.15
    assert abs(np.bitwise_count(bits(derive_seed("a"), rows, columns)).mean() - 32) < 0.3
    assert uniform(3, np.asarray([7, 1, 9]), 5)[2] == uniform(3, np.asarray([9]), 5)[0]


def test_integers_are_uniform_below_high():
    counts = np.bincount(integers(derive_seed("die"), np.arange(6000), 0, 6), minlength=6)
    assert len(counts) == 6 and counts.min() > 850


@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_permuted_any_size_is_a_permutation(size, stream):
    assert np.array_equal(np.sort(permuted(stream, np.arange(size), size)), np.arange(size))


def test_permuted_subset_equals_subset_of_full_permutation():
    shuffled = permuted(1, np.arange(1000), 1000)
    assert not np.array_equal(shuffled, permuted(2, np.arange(1000), 1000))
    assert np.array_equal(permuted(1, np.arange(300, 310), 1000), shuffled[300:310])
    assert abs(np.corrcoef(shuffled, np.arange(1000))[0, 1]) < 0.1
    assert permuted(5, np.asarray([10**12]), 10**13)[0] < 10**13


@pytest.mark.parametrize(("size", "orders"), [(2, 2), (3, 6), (5, 120)])
def test_permuted_small_size_reaches_every_order(size, orders):
    seeds = map(derive_seed, range(2000))
    assert len({tuple(permuted(seed, np.arange(size), size).tolist()) for seed in seeds}) == orders
