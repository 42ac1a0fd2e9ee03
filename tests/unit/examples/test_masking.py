"""Masks: the rate that was asked for, 80/10/10, and the same ones whatever the batch."""

import numpy as np
import pytest

from pipeline_src.examples.masking import MaskedLM
from pipeline_src.params.pretrain import Masking

CLS, SEP, MASK, ENTRIES = 2, 3, 4, 5000


def masked_lm(mask_prob: float, **masking) -> MaskedLM:
    return MaskedLM(mask_prob, Masking(**masking), MASK, (CLS, SEP, 0), ENTRIES, seed=1)


def batch(count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(length // 2, length + 1, count)
    pieces = []
    for size in lengths:
        ids = rng.integers(10, ENTRIES, size)
        ids[0], ids[size // 2], ids[-1] = CLS, SEP, SEP
        pieces.append(ids)
    return np.concatenate(pieces), lengths, np.arange(count) + 77


@pytest.mark.parametrize("mask_prob", [0.15, 0.2, 0.4])
def test_realised_rate_is_the_rate_asked_for(mask_prob):
    ids, lengths, examples = batch(800, 128)
    _, chosen = masked_lm(mask_prob).apply(ids, lengths, examples)
    assert abs(len(chosen) / len(ids) - mask_prob) < 0.005


def test_eighty_ten_ten():
    ids, lengths, examples = batch(2000, 128)
    seen, chosen = masked_lm(0.15).apply(ids, lengths, examples)
    masked = seen[chosen] == MASK
    kept = seen[chosen] == ids[chosen]
    assert abs(masked.mean() - 0.8) < 0.01
    assert abs(kept.mean() - 0.1) < 0.01
    others = np.setdiff1d(np.arange(len(ids)), chosen)
    assert (seen[others] == ids[others]).all()
    replaced = seen[chosen][~masked & ~kept]
    assert replaced.min() < 50 and replaced.max() > ENTRIES - 50  # drawn from the whole vocabulary


def test_special_tokens_are_never_predicted():
    ids, lengths, examples = batch(300, 40)
    _, chosen = masked_lm(0.9).apply(ids, lengths, examples)
    assert not np.isin(ids[chosen], (CLS, SEP)).any()


def test_each_example_gets_its_own_count_and_at_least_one():
    ids, lengths, examples = batch(200, 12)
    _, chosen = masked_lm(0.15).apply(ids, lengths, examples)
    sequence = np.repeat(np.arange(200), lengths)
    assert (np.bincount(sequence[chosen], minlength=200) == np.maximum(1, np.rint(0.15 * lengths))).all()


def test_a_cap_bites_and_without_one_nothing_does():
    ids, lengths, examples = batch(50, 128)
    _, chosen = masked_lm(0.15, max_predictions=5).apply(ids, lengths, examples)
    assert len(chosen) == 5 * 50


def test_masks_do_not_depend_on_the_batch():
    ids, lengths, examples = batch(20, 64)
    seen, _ = masked_lm(0.15).apply(ids, lengths, examples)
    starts = np.cumsum(lengths) - lengths
    for number in (0, 7, 19):
        own = slice(starts[number], starts[number] + lengths[number])
        alone, _ = masked_lm(0.15).apply(ids[own], lengths[number : number + 1], examples[number : number + 1])
        assert np.array_equal(alone, seen[own])


def test_another_seed_or_example_gives_other_masks():
    ids, lengths, examples = batch(1, 128)
    first = masked_lm(0.15).apply(ids, lengths, examples)[1]
    assert not np.array_equal(first, masked_lm(0.15).apply(ids, lengths, examples + 1)[1])
    other = MaskedLM(0.15, Masking(), MASK, (CLS, SEP, 0), ENTRIES, seed=2)
    assert not np.array_equal(first, other.apply(ids, lengths, examples)[1])
