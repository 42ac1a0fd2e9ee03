"""Sentence pairs by google-research/bert's algorithm, the same for any workers and sharding."""

from pathlib import Path

import numpy as np
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.examples import build_examples as stage
from pipeline_src.examples.build_examples import draw_samples, pass_keys
from pipeline_src.examples.pairs import PAIRS, PairRules, document_pairs
from pipeline_src.examples.token_store import SAMPLE_INDEX, TokenStore, TokenWriter, write_sample_index
from pipeline_src.study.data import ExamplesParams, Lengths

RULES = PairRules(32, 0.1, 0.5, "nsp", 3)


def document_ids(store, start: int, length: int) -> set[int]:
    return set(store.ids[start : start + length].tolist())


def samples_of(folder, seed=1, phase="phase1", passes=2, rules=RULES, workers=1) -> np.ndarray:
    keys = pass_keys(seed, phase, passes)
    return np.concatenate(list(draw_samples(TokenStore(folder, "train"), keys, rules, phase, workers)))


def check_labels(store, samples) -> None:
    """An id names its document, so it tells whether B is of A's document."""
    for a_start, b_start, a_length, b_length, is_random in samples.tolist():
        a = document_ids(store, a_start, a_length)
        b = document_ids(store, b_start, b_length)
        assert len(a) == len(b) == 1
        assert (a != b) == bool(is_random)
        assert is_random or b_start >= a_start + a_length


def test_draw_samples_segments_match_their_label(tmp_path, store):
    samples = samples_of(tmp_path)
    assert len(samples) > 200
    assert samples.dtype == SAMPLE_INDEX
    check_labels(store, samples)


@pytest.mark.parametrize("workers", [1, 2])
def test_draw_samples_any_workers_and_blocks_give_same_examples(tmp_path, store, monkeypatch, workers):
    expected = samples_of(tmp_path)
    monkeypatch.setattr(stage, "TOKENS_PER_BLOCK", 300)
    assert np.array_equal(samples_of(tmp_path, workers=workers), expected)


def test_draw_samples_differ_by_seed_phase_and_pass(tmp_path, store):
    first = samples_of(tmp_path, passes=1)
    assert not np.array_equal(first, samples_of(tmp_path, seed=2, passes=1))
    assert not np.array_equal(first, samples_of(tmp_path, phase="phase2", passes=1))
    samples = set(samples_of(tmp_path, passes=2).tolist())
    assert set(first.tolist()) < samples and len(samples) > 1.7 * len(first)


def test_draw_samples_pair_objective_none_gives_single_segments(tmp_path, store):
    samples = samples_of(tmp_path, passes=1, rules=PairRules(32, 0.0, 0.5, "none", 2))
    assert not samples["b_length"].any()
    assert not samples["is_random"].any()
    assert samples["a_length"].max() == 30
    for a, _, a_length, _, _ in samples.tolist():
        assert len(document_ids(store, a, a_length)) == 1
    # Whole sentences are cut where they overshoot.
    assert samples["a_length"].sum() > 0.8 * len(store.ids)


def test_pairs_has_one_key_per_pair_objective():
    assert set(PAIRS) == set(ExamplesParams.model_fields["pair_objective"].annotation.__args__)


def test_document_pairs_sop_swaps_half_of_the_pairs(tmp_path, documents, make_store):
    """At this length, a document is one chunk, so a document and pass give one example."""
    store = make_store(tmp_path, [document for document in documents if len(document) > 1])
    rules = PairRules(10_000, 0.0, 0.5, "sop", 3)
    passes = list(range(10))
    samples = document_pairs(store, 0, len(store), rules, passes)
    assert len(samples) == len(store) * len(passes)
    swapped = samples["is_random"] == 1
    first = np.where(swapped, samples["b"], samples["a"])
    second = np.where(swapped, samples["a"], samples["b"])
    length = samples["a_length"].astype(np.int64) + samples["b_length"]
    edges = np.repeat(store.sentences[store.documents], len(passes))
    assert np.array_equal(first, edges[: len(first)])
    assert np.array_equal(first + length, edges[len(passes) :])
    assert np.array_equal(second - first, np.where(swapped, samples["b_length"], samples["a_length"]))
    assert 0.4 < swapped.mean() < 0.6


def test_draw_samples_sop_without_random_equals_nsp(tmp_path, store):
    sop, nsp = (samples_of(tmp_path, rules=PairRules(32, 0.1, 0.0, pairs, 3)) for pairs in ("sop", "nsp"))
    assert np.array_equal(sop, nsp)
    assert 0 < sop["is_random"].mean() < 1


def test_draw_samples_single_document_gives_pairs(tmp_path, make_store):
    make_store(tmp_path, [[[5, 6], [7, 8, 9]]])
    samples = samples_of(tmp_path, passes=3)
    assert len(samples) >= 3 and samples["a_length"].all() and samples["b_length"].all()


@pytest.mark.parametrize("pairs", ["nsp", "nsp_balanced"])
def test_draw_samples_single_sentences_give_random_pairs(tmp_path, make_store, pairs):
    make_store(tmp_path, [[[number] * 9] for number in range(30)])
    samples = samples_of(tmp_path, passes=1, rules=PairRules(32, 0.1, 0.5, pairs, 3))
    assert samples["is_random"].tolist() == [1] * 30


def test_draw_samples_nsp_balanced_makes_half_random(tmp_path, make_store):
    rng = np.random.default_rng(2)
    # Often one sentence fills a chunk.
    lengths = [rng.integers(5, 60, size=rng.integers(2, 8)) for _ in range(400)]
    make_store(tmp_path, [[[i + 100] * n for n in sentences] for i, sentences in enumerate(lengths)])
    nsp = samples_of(tmp_path, passes=4, rules=PairRules(64, 0.1, 0.5, "nsp", 3))
    balanced = samples_of(tmp_path, passes=4, rules=PairRules(64, 0.1, 0.5, "nsp_balanced", 3))
    assert nsp["is_random"].mean() > 0.6
    assert balanced["is_random"].mean() == pytest.approx(0.5, abs=0.02)
    assert len(balanced) > 4000
    check_labels(TokenStore(tmp_path, "train"), balanced)


def test_document_pairs_nsp_balanced_uses_every_last_sentence(tmp_path, make_store):
    store = make_store(tmp_path, [[[number] * 20] * 5 for number in range(200)])
    for number in range(200):
        start, stop = store.sentences[store.documents[number + 1] - 1 :][:2]
        pairs = document_pairs(store, number, number + 1, PairRules(64, 0.0, 0.5, "nsp_balanced", 3), [7])
        ends = [*(pairs["a"] + pairs["a_length"]), *(pairs["b"] + pairs["b_length"])[pairs["is_random"] == 0]]
        assert any(start < end <= stop for end in ends)


def write_tokens(folder: Path, make_store, documents) -> None:
    folder.mkdir(parents=True)
    splits = {}
    for split in ("train", "validation"):
        make_store(folder, documents, split)
        splits |= read_json(folder / "manifest.json")["splits"]
    stage.write_json(folder / "manifest.json", {"splits": splits, "marks": {"single": 2, "pair": 3}})


@pytest.mark.parametrize(("long", "warned"), [(40, False), (80, True)])
def test_build_examples_text_cut_from_long_sentences_is_warned_of(
    tmp_path, make_store, monkeypatch, caplog, long, warned
):
    """Of 29 tokens, an example of 32 has room."""
    monkeypatch.chdir(tmp_path)
    documents = [[[number] * 20, [number] * 10] * 4 + [[number] * long] for number in range(9)]
    write_tokens(tmp_path / "data/tokens", make_store, documents)
    stage.run(seed=1, examples=ExamplesParams(max_seq_length=Lengths(phase1=32, phase2=128)))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == warned
    if warned:
        assert warnings[0].startswith("phase1: of a sentence of more than 29 tokens")
        # 51 tokens of the 80 of a long sentence, among the 200 of a document.
        assert "leaves out 26 % of the training tokens" in warnings[0]


@pytest.mark.parametrize(("pairs", "warned"), [("nsp", True), ("none", False)])
def test_build_examples_single_document_is_warned_of(tmp_path, make_store, monkeypatch, caplog, pairs, warned):
    monkeypatch.chdir(tmp_path)
    write_tokens(tmp_path / "data/tokens", make_store, [[[5] * 9] * 8])
    lengths = Lengths(phase1=32, phase2=32)
    stage.run(seed=1, examples=ExamplesParams(max_seq_length=lengths, pair_objective=pairs))
    warnings = [record.getMessage() for record in caplog.records if "has one document" in record.getMessage()]
    assert any(warning.startswith("phase1: train has one document") for warning in warnings) == warned


def test_build_examples_writes_the_sample_index(tmp_path, documents, make_store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data/tokens"
    write_tokens(folder, make_store, documents[:20])
    stage.run(seed=1, examples=ExamplesParams(max_seq_length=Lengths(phase1=32, phase2=64), dupe_factor=3))
    manifest = read_json("data/examples/manifest.json")
    samples = np.load("data/examples/phase1/train.npy")
    assert manifest["pairs"] == "nsp"
    assert manifest["phase1"]["train"] == len(samples)
    assert np.array_equal(samples, samples_of(folder, passes=3))


def test_document_pairs_objective_none_short_document_is_one_example(store):
    """Documents are not cut below the length."""
    starts = store.sentences[store.documents]
    lengths = np.diff(starts)
    limit = int(np.median(lengths))
    samples = document_pairs(store, 0, len(store), PairRules(limit + 2, 0, 0.5, "none", 2), [1])
    length_at = dict(zip(samples["a"].tolist(), samples["a_length"].tolist(), strict=True))
    fitting = lengths <= limit
    assert 0 < fitting.sum() < len(store)
    assert [length_at[start] for start in starts[:-1][fitting].tolist()] == lengths[fitting].tolist()


@pytest.mark.parametrize(("share", "short"), [(0.5, 4), (0.9, 0), (0.3, 9), (0.01, 9)])
def test_with_full_length_drops_short_examples_down_to_share(share, short):
    index = np.zeros(13, SAMPLE_INDEX)
    index["a"] = np.arange(13)
    index["a_length"] = [30, 30, 8, 9, 30, 7, 8, 9, 30, 7, 8, 9, 1]
    rules = PairRules(32, 0, 0, "none", 2)
    result = stage.with_full_length(index, share, rules, 1)
    assert (result["a_length"] == 30).sum() == 4
    assert len(result) == 4 + short
    assert (np.diff(result["a"]) > 0).all()
    with pytest.raises(PipelineError, match="no document is long enough for a full-length example: 32"):
        stage.with_full_length(index[2:4], share, rules, 1)


def test_build_examples_no_pairs_is_rejected_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/tokens").mkdir(parents=True)
    splits = {split: TokenWriter(Path("data/tokens"), split, 9).close() for split in ("train", "validation")}
    stage.write_json("data/tokens/manifest.json", {"splits": splits, "marks": {"single": 2, "pair": 3}})
    with pytest.raises(PipelineError, match="no examples could be made"):
        stage.run(seed=1, examples=ExamplesParams(max_seq_length=Lengths(phase1=32, phase2=64)))
    assert not (tmp_path / "data/examples").exists()


def test_write_sample_index_blocks_equal_numpy_save(tmp_path):
    block = np.zeros(5, SAMPLE_INDEX)
    block["a"] = np.arange(5)
    assert write_sample_index(tmp_path / "p.npy", iter([block, block[:2]]))[0] == 7
    np.save(tmp_path / "q.npy", np.concatenate([block, block[:2]]))
    assert (tmp_path / "p.npy").read_bytes() == (tmp_path / "q.npy").read_bytes()
