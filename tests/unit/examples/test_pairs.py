"""Sentence pairs: what google-research/bert's algorithm promises, and independence from workers and shards."""

import numpy as np
import pytest

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.config.data import ExamplesParams, Lengths
from pipeline_src.examples import build_examples as stage
from pipeline_src.examples.build_examples import draw_samples, pass_keys
from pipeline_src.examples.pairs import PAIRS, PairRules, document_pairs
from pipeline_src.examples.token_store import SAMPLE_INDEX, TokenStore, write_sample_index

RULES = PairRules(32, 0.1, 0.5, "nsp", 3)


def owner(store, start: int, length: int) -> set[int]:
    return set(store.ids[start : start + length].tolist())


def samples_of(
    folder, seed: int = 1, phase: str = "phase1", passes: int = 2, rules: PairRules = RULES, workers: int = 1
):
    keys = pass_keys(seed, phase, passes)
    return np.concatenate(list(draw_samples(TokenStore(folder, "train"), keys, rules, phase, workers)))


def test_segments_come_from_where_the_label_says(tmp_path, store):
    samples = samples_of(tmp_path)
    assert len(samples) > 200 and samples.dtype == SAMPLE_INDEX
    for a_start, b_start, a_length, b_length, is_random in samples.tolist():
        a, b = owner(store, a_start, a_length), owner(store, b_start, b_length)
        assert len(a) == len(b) == 1
        assert (a != b) == bool(is_random)
        assert a_length + b_length + 3 <= 32
        if not is_random:
            assert b_start >= a_start + a_length


def test_every_sentence_is_used_as_a_once_put_back_ones_too(store):
    """Without truncation, the A and true B segments of one pass cover each document once, in order."""
    rules = PairRules(10_000, 0.0, 0.5, "nsp", 3)
    for number in range(len(store)):
        offsets = store.sentences[store.documents[number : number + 2]]
        place = offsets[0]
        for a, b, a_length, b_length, is_random in document_pairs(store, number, number + 1, rules, [7]).tolist():
            assert a == place
            place = a + a_length if is_random else b + b_length
        assert place == offsets[-1]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_and_blocks_do_not_change_the_samples(tmp_path, store, monkeypatch, workers):
    whole = samples_of(tmp_path)
    monkeypatch.setattr(stage, "TOKENS_AT_ONCE", 300)  # a block of few documents
    assert np.array_equal(samples_of(tmp_path, workers=workers), whole)


def test_sharding_does_not_change_the_samples(tmp_path, documents, store, make_store):
    (tmp_path / "other").mkdir()
    make_store(tmp_path / "other", documents, at_once=1)
    assert np.array_equal(samples_of(tmp_path), samples_of(tmp_path / "other"))


def test_seed_phase_and_pass_change_the_samples(tmp_path, store):
    first = samples_of(tmp_path, passes=1)
    assert not np.array_equal(first, samples_of(tmp_path, seed=2, passes=1))
    assert not np.array_equal(first, samples_of(tmp_path, phase="phase2", passes=1))
    both = samples_of(tmp_path, passes=2).tolist()
    assert set(first.tolist()) < set(both) and len(set(both)) > 1.7 * len(first)  # the first pass's, and others


def test_no_random_next_but_for_single_sentences(tmp_path, store):
    never = samples_of(tmp_path, rules=PairRules(64, 0.1, 0.0, "nsp", 3))
    fair = samples_of(tmp_path, rules=PairRules(64, 0.1, 0.5, "nsp", 3))
    assert never["is_random"].mean() < fair["is_random"].mean()


def test_single_segments_without_next_sentences(tmp_path, store):
    samples = samples_of(tmp_path, passes=1, rules=PairRules(32, 0.0, 0.5, "none", 2))
    assert not samples["b_length"].any() and not samples["is_random"].any()
    assert samples["a_length"].max() == 30  # [CLS] and [SEP] apart
    for a, _, a_length, _, _ in samples.tolist():
        assert len(owner(store, a, a_length)) == 1
    assert samples["a_length"].sum() > 0.8 * len(store.ids)  # whole sentences, cut where they overshoot


def test_every_way_of_pairing_has_its_parameter():
    assert set(PAIRS) == set(ExamplesParams.model_fields["pair_objective"].annotation.__args__)


def test_sentence_order_swaps_half_of_the_pairs(tmp_path, documents, make_store):
    """Both segments are of one document and side by side, B first where the label says so; nothing is left out."""
    store = make_store(tmp_path, [document for document in documents if len(document) > 1])
    rules = PairRules(10_000, 0.0, 0.5, "sop", 3)
    labels = []
    for stream in range(10):
        for number in range(len(store)):
            (a, b, a_length, b_length, swapped), *more = document_pairs(store, number, number + 1, rules, [stream])
            first, second = ((b, b_length), (a, a_length)) if swapped else ((a, a_length), (b, b_length))
            assert not more and first[0] + first[1] == second[0]  # a document is one chunk at this length
            assert (first[0], sum(second)) == tuple(store.sentences[store.documents[number : number + 2]])
            labels.append(swapped)
    assert 0.4 < np.mean(labels) < 0.6


def test_sentence_order_goes_through_the_text_as_next_sentence_does(tmp_path, store):
    """With no coin the pairs are those of next-sentence prediction without one, single sentences included."""
    ordered, following = (samples_of(tmp_path, rules=PairRules(32, 0.1, 0.0, pairs, 3)) for pairs in ("sop", "nsp"))
    assert np.array_equal(ordered, following)
    alone = ordered["is_random"] == 1
    assert alone.any() and not alone.all()
    for a, b, a_length, b_length, is_random in ordered.tolist():
        assert (owner(store, a, a_length) != owner(store, b, b_length)) == bool(is_random)


def test_a_single_document_still_gives_pairs(tmp_path, make_store):
    make_store(tmp_path, [[[5, 6], [7, 8, 9]]])
    samples = samples_of(tmp_path, passes=3, rules=PairRules(16, 0.1, 0.5, "nsp", 3))
    assert len(samples) >= 3 and samples["a_length"].all() and samples["b_length"].all()


def test_documents_of_one_sentence_give_random_pairs(tmp_path, make_store):
    make_store(tmp_path, [[[number] * 9] for number in range(30)])
    samples = samples_of(tmp_path, passes=1)
    assert len(samples) == 30 and samples["is_random"].all()


def test_very_long_sentences_are_cut_to_length(tmp_path, make_store):
    store = make_store(tmp_path, [[[number] * 700, [number] * 5, [number] * 300] for number in range(30)])
    for length in (16, 128, 512):
        samples = samples_of(tmp_path, rules=PairRules(length, 0.1, 0.5, "nsp", 3))
        total = samples["a_length"].astype(int) + samples["b_length"] + 3
        assert total.max() == length and samples["a_length"].all() and samples["b_length"].all()
        for a, b, a_length, b_length, _ in samples.tolist():
            assert len(owner(store, a, a_length)) == len(owner(store, b, b_length)) == 1


def test_truncation_takes_from_front_and_back_alike(tmp_path, make_store):
    """A of 80 tokens and B of 20, 13 too many: all from A, by fair coins."""
    store = make_store(tmp_path, [[[1] * 80, [2] * 20] for _ in range(400)])
    samples = document_pairs(store, 0, 400, PairRules(90, 0.0, 0.0, "nsp", 3), [derive_seed(1)])
    front = samples["a"] - store.sentences[store.documents[:-1]]
    assert (samples["a_length"] == 67).all() and (samples["b_length"] == 20).all()
    assert abs(front.mean() - 6.5) < 0.4 and front.min() < 4 and front.max() > 9


def test_the_stage_writes_an_index_that_loads(tmp_path, store, documents, make_store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/tokens").mkdir(parents=True)
    rows = {}
    for split in ("train", "validation"):
        make_store(tmp_path / "data/tokens", documents[:20], split)
        rows |= read_json("data/tokens/manifest.json")["splits"]
    stage.write_json("data/tokens/manifest.json", {"splits": rows, "marks": {"single": 2, "pair": 3}})
    params = ExamplesParams(max_seq_length=Lengths(phase1=32, phase2=64), dupe_factor=3)
    stage.run(seed=1, examples=params)
    manifest = read_json("data/examples/manifest.json")
    samples = np.load("data/examples/phase1/train.npy", mmap_mode="r")
    assert len(samples) == manifest["phase1"]["train"] and samples.dtype == SAMPLE_INDEX and manifest["pairs"] == "nsp"
    expected = list(
        draw_samples(TokenStore(tmp_path / "data/tokens", "train"), pass_keys(1, "phase1", 3), RULES, "", 1)
    )
    assert np.array_equal(samples, np.concatenate(expected))


def test_no_pairs_is_one_clear_error(tmp_path, make_store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/tokens").mkdir(parents=True)
    row = {"documents": 0, "sentences": 0, "tokens": 0, "id_type": "uint16"}
    for kind, size in (("ids", 0), ("sentences", 8), ("documents", 8)):
        for split in ("train", "validation"):
            (tmp_path / f"data/tokens/{split}.{kind}").write_bytes(bytes(size))
    splits = {"train": row, "validation": row}
    manifest = {"splits": splits, "marks": {"single": 2, "pair": 3}}
    stage.write_json(tmp_path / "data/tokens/manifest.json", manifest)
    with pytest.raises(PipelineError, match="no sentence pairs"):
        stage.run(seed=1, examples=ExamplesParams(max_seq_length=Lengths(phase1=32, phase2=64)))
    assert not (tmp_path / "data/examples").exists()


def test_an_index_is_written_block_by_block(tmp_path):
    block = np.zeros(5, SAMPLE_INDEX)
    block["a"] = np.arange(5)
    assert write_sample_index(tmp_path / "p.npy", iter([block, block[:2]]))[0] == 7
    assert np.load(tmp_path / "p.npy")["a"].tolist() == [0, 1, 2, 3, 4, 0, 1]
    np.save(tmp_path / "q.npy", np.concatenate([block, block[:2]]))
    assert (tmp_path / "p.npy").read_bytes() == (tmp_path / "q.npy").read_bytes()
