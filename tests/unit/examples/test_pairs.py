"""Sentence pairs: what google-research/bert's algorithm promises, and independence from sharding."""

import importlib.util
from pathlib import Path

import numpy as np

from pipeline_src.examples.keyed import Draws, key
from pipeline_src.examples.pairs import document_pairs
from pipeline_src.examples.plan import describe, plan_pairs
from pipeline_src.examples.store import TokenStore
from pipeline_src.params.examples import ExamplesParams, Lengths

spec = importlib.util.spec_from_file_location("stores", Path(__file__).with_name("conftest.py"))
stores = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stores)

PARAMS = ExamplesParams(lengths=Lengths(short=32, long=64), duplicates=2, short_seq_prob=0.1)


def owner(store: TokenStore, start: int, stop: int) -> set[int]:
    return set(store.span(start, stop).tolist())


def test_segments_come_from_where_the_label_says(store):
    plan = plan_pairs(store, 1, "short", 32, 2, PARAMS)
    assert len(plan) > 200
    for a_start, a_stop, b_start, b_stop, is_random in plan.tolist():
        a, b = owner(store, a_start, a_stop), owner(store, b_start, b_stop)
        assert len(a) == len(b) == 1
        assert (a != b) == bool(is_random)
        assert a_stop - a_start + b_stop - b_start + 3 <= 32
        if not is_random:
            assert b_start >= a_stop


def test_every_sentence_is_used_as_a_once_put_back_ones_too(store, documents):
    """Without truncation, the A and true B segments of one pass cover each document once, in order."""
    for number in range(store.documents):
        offsets = store.document(number)
        pairs = list(document_pairs(store, number, 10_000, 0.0, 0.5, Draws(7, number)))
        place = offsets[0]
        for a_start, a_stop, _, b_stop, is_random in pairs:
            assert a_start == place
            place = a_stop if is_random else b_stop
        assert place == offsets[-1]


def test_sharding_does_not_change_the_plan(tmp_path, documents, store):
    (tmp_path / "one").mkdir()
    whole = stores.write_store(tmp_path / "one", {"all": documents})
    assert np.array_equal(plan_pairs(store, 1, "short", 32, 2, PARAMS), plan_pairs(whole, 1, "short", 32, 2, PARAMS))


def test_seed_phase_and_pass_change_the_plan(store):
    first = plan_pairs(store, 1, "short", 32, 1, PARAMS)
    assert not np.array_equal(first, plan_pairs(store, 2, "short", 32, 1, PARAMS))
    assert not np.array_equal(first, plan_pairs(store, 1, "long", 32, 1, PARAMS))
    both = plan_pairs(store, 1, "short", 32, 2, PARAMS)
    assert np.array_equal(both[: len(first)], first) and not np.array_equal(both[len(first) :], first)


def test_no_random_next_but_for_single_sentences(store):
    params = PARAMS.model_copy(update={"random_next_prob": 0.0})
    plan = plan_pairs(store, 1, "long", 64, 1, params)
    share = describe(plan, 64)["random_next"]
    assert share < describe(plan_pairs(store, 1, "long", 64, 1, PARAMS), 64)["random_next"]


def test_a_single_document_still_gives_pairs(tmp_path):
    lonely = stores.write_store(tmp_path, {"a": [[[5, 6], [7, 8, 9]]]})
    plan = plan_pairs(lonely, 1, "short", 16, 3, PARAMS)
    assert len(plan) >= 3 and (plan[:, 1] > plan[:, 0]).all() and (plan[:, 3] > plan[:, 2]).all()


def test_draws_are_uniform_and_keyed():
    values = np.asarray([Draws(key("test"), row).random() for row in range(4000)])
    assert abs(values.mean() - 0.5) < 0.02 and values.min() >= 0 and values.max() < 1
    counts = np.bincount([Draws(key("die"), row).integer(1, 6) for row in range(6000)])[1:]
    assert counts.min() > 850 and len(counts) == 6
    one, two = Draws(1, 2), Draws(1, 2)
    assert [one.random() for _ in range(130)] == [two.random() for _ in range(130)]
