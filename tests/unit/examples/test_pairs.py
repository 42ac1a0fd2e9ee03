"""Sentence pairs: what google-research/bert's algorithm promises, and independence from workers and shards."""

import numpy as np
import pytest

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.examples import build_examples as stage
from pipeline_src.examples.build_examples import plan_blocks, write_plan
from pipeline_src.examples.pairs import PLAN, PairRules, document_pairs
from pipeline_src.params.examples import ExamplesParams, Lengths

RULES = PairRules(32, 0.1, 0.5, next_sentence=True)


def owner(store, start: int, length: int) -> set[int]:
    return set(store.ids[start : start + length].tolist())


def plan_of(folder, seed: int = 1, phase: str = "short", passes: int = 2, rules: PairRules = RULES, workers: int = 1):
    return np.concatenate(list(plan_blocks(folder, "train", seed, phase, passes, rules, workers)))


def test_segments_come_from_where_the_label_says(tmp_path, store):
    plan = plan_of(tmp_path)
    assert len(plan) > 200 and plan.dtype == PLAN
    for a_start, b_start, a_length, b_length, is_random in plan.tolist():
        a, b = owner(store, a_start, a_length), owner(store, b_start, b_length)
        assert len(a) == len(b) == 1
        assert (a != b) == bool(is_random)
        assert a_length + b_length + 3 <= 32
        if not is_random:
            assert b_start >= a_start + a_length


def test_every_sentence_is_used_as_a_once_put_back_ones_too(store):
    """Without truncation, the A and true B segments of one pass cover each document once, in order."""
    rules = PairRules(10_000, 0.0, 0.5, next_sentence=True)
    for number in range(len(store)):
        offsets = store.sentences[store.documents[number : number + 2]]
        place = offsets[0]
        for a, b, a_length, b_length, is_random in document_pairs(store, number, number + 1, rules, [7]).tolist():
            assert a == place
            place = a + a_length if is_random else b + b_length
        assert place == offsets[-1]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_and_blocks_do_not_change_the_plan(tmp_path, store, monkeypatch, workers):
    whole = plan_of(tmp_path)
    monkeypatch.setattr(stage, "BLOCK", 300)  # a block of few documents
    assert np.array_equal(plan_of(tmp_path, workers=workers), whole)


def test_sharding_does_not_change_the_plan(tmp_path, documents, store, make_store):
    (tmp_path / "other").mkdir()
    make_store(tmp_path / "other", documents, at_once=1)
    assert np.array_equal(plan_of(tmp_path), plan_of(tmp_path / "other"))


def test_seed_phase_and_pass_change_the_plan(tmp_path, store):
    first = plan_of(tmp_path, passes=1)
    assert not np.array_equal(first, plan_of(tmp_path, seed=2, passes=1))
    assert not np.array_equal(first, plan_of(tmp_path, phase="long", passes=1))
    both = plan_of(tmp_path, passes=2).tolist()
    assert set(first.tolist()) < set(both) and len(set(both)) > 1.7 * len(first)  # the first pass's, and others


def test_no_random_next_but_for_single_sentences(tmp_path, store):
    never = plan_of(tmp_path, rules=PairRules(64, 0.1, 0.0, next_sentence=True))
    fair = plan_of(tmp_path, rules=PairRules(64, 0.1, 0.5, next_sentence=True))
    assert never["is_random"].mean() < fair["is_random"].mean()


def test_single_segments_without_next_sentences(tmp_path, store):
    plan = plan_of(tmp_path, passes=1, rules=PairRules(32, 0.0, 0.5, next_sentence=False))
    assert not plan["b_length"].any() and not plan["is_random"].any()
    assert plan["a_length"].max() == 30  # [CLS] and [SEP] apart
    for a, _, a_length, _, _ in plan.tolist():
        assert len(owner(store, a, a_length)) == 1
    assert plan["a_length"].sum() > 0.8 * len(store.ids)  # whole sentences, cut where they overshoot


def test_a_single_document_still_gives_pairs(tmp_path, make_store):
    make_store(tmp_path, [[[5, 6], [7, 8, 9]]])
    plan = plan_of(tmp_path, passes=3, rules=PairRules(16, 0.1, 0.5, next_sentence=True))
    assert len(plan) >= 3 and plan["a_length"].all() and plan["b_length"].all()


def test_documents_of_one_sentence_give_random_pairs(tmp_path, make_store):
    make_store(tmp_path, [[[number] * 9] for number in range(30)])
    plan = plan_of(tmp_path, passes=1)
    assert len(plan) == 30 and plan["is_random"].all()


def test_very_long_sentences_are_cut_to_length(tmp_path, make_store):
    store = make_store(tmp_path, [[[number] * 700, [number] * 5, [number] * 300] for number in range(30)])
    for length in (16, 128, 512):
        plan = plan_of(tmp_path, rules=PairRules(length, 0.1, 0.5, next_sentence=True))
        total = plan["a_length"].astype(int) + plan["b_length"] + 3
        assert total.max() == length and plan["a_length"].all() and plan["b_length"].all()
        for a, b, a_length, b_length, _ in plan.tolist():
            assert len(owner(store, a, a_length)) == len(owner(store, b, b_length)) == 1


def test_truncation_takes_from_front_and_back_alike(tmp_path, make_store):
    """A of 80 tokens and B of 20, 13 too many: all from A, by fair coins."""
    store = make_store(tmp_path, [[[1] * 80, [2] * 20] for _ in range(400)])
    plan = document_pairs(store, 0, 400, PairRules(90, 0.0, 0.0, next_sentence=True), [derive_seed(1)])
    front = plan["a"] - store.sentences[store.documents[:-1]]
    assert (plan["a_length"] == 67).all() and (plan["b_length"] == 20).all()
    assert abs(front.mean() - 6.5) < 0.4 and front.min() < 4 and front.max() > 9


def test_the_stage_writes_plans_that_load(tmp_path, store, documents, make_store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/tokens").mkdir(parents=True)
    rows = {}
    for split in ("train", "validation"):
        make_store(tmp_path / "data/tokens", documents[:20], split)
        rows |= read_json("data/tokens/manifest.json")["splits"]
    stage.write_json("data/tokens/manifest.json", {"splits": rows})
    params = ExamplesParams(lengths=Lengths(short=32, long=64), duplicates=3)
    stage.run(seed=1, examples=params)
    manifest = read_json("data/examples/manifest.json")
    plan = np.load("data/examples/short/train.npy", mmap_mode="r")
    assert len(plan) == manifest["short"]["train"] and plan.dtype == PLAN and manifest["next_sentence"]
    expected = list(plan_blocks(tmp_path / "data/tokens", "train", 1, "short", 3, RULES, 1))
    assert np.array_equal(plan, np.concatenate(expected))


def test_no_pairs_is_one_clear_error(tmp_path, make_store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/tokens").mkdir(parents=True)
    row = {"documents": 0, "sentences": 0, "tokens": 0}
    for kind, size in (("ids", 0), ("sentences", 8), ("documents", 8)):
        for split in ("train", "validation"):
            (tmp_path / f"data/tokens/{split}.{kind}").write_bytes(bytes(size))
    stage.write_json(tmp_path / "data/tokens/manifest.json", {"splits": {"train": row, "validation": row}})
    with pytest.raises(PipelineError, match="no sentence pairs"):
        stage.run(seed=1, examples=ExamplesParams(lengths=Lengths(short=32, long=64)))
    assert not (tmp_path / "data/examples").exists()


def test_a_plan_is_written_block_by_block(tmp_path):
    block = np.zeros(5, PLAN)
    block["a"] = np.arange(5)
    assert write_plan(tmp_path / "p.npy", iter([block, block[:2]]))[0] == 7
    assert np.load(tmp_path / "p.npy")["a"].tolist() == [0, 1, 2, 3, 4, 0, 1]
