"""Shares of the sources in the examples: by weights or by temperature."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json, write_json
from pipeline_src.examples import build_examples as stage
from pipeline_src.examples.token_store import SAMPLE_INDEX, TokenStore, TokenWriter
from pipeline_src.study.data import ExamplesParams, Lengths

SIZES = {"books": 30, "news": 6, "wiki": 300}  # documents
WEIGHTS = {"books": 0.3, "news": 0.2, "wiki": 0.5}


def params(**more: Any) -> ExamplesParams:
    return ExamplesParams(max_seq_length=Lengths(phase1=32, phase2=64), dupe_factor=3, **more)


@pytest.fixture
def tokens(tmp_path, monkeypatch) -> TokenStore:
    """The training split of three sources end to end; an id tells its source."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data/tokens"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    manifest = {"splits": {}, "marks": {"single": 2, "pair": 3}, "parts": {"train": {}, "validation": {}}}
    for split in ("train", "validation"):
        writer = TokenWriter(folder, split, 1000)
        for number, (source, count) in enumerate(SIZES.items(), 1):
            before = Counter(writer.counts)
            documents = rng.integers(3, 12, count if split == "train" else 4)
            sentences = rng.integers(4, 20, documents.sum())
            writer.add(np.full(sentences.sum(), 100 * number), sentences, documents)
            manifest["parts"][split][source] = dict(Counter(writer.counts) - before)
        manifest["splits"][split] = writer.close()
    write_json(folder / "manifest.json", manifest)
    return TokenStore(folder, "train")


def read_phase(split: str = "train") -> tuple[dict[str, Any], np.ndarray]:
    examples = np.load(f"data/examples/phase1/{split}.npy")
    return read_json("data/examples/manifest.json")["phase1"], examples


def sources_of(store: TokenStore, starts: np.ndarray) -> list[str]:
    return [list(SIZES)[number] for number in store.ids[starts] // 100 - 1]


def test_build_examples_weights_give_exact_shares(tokens):
    stage.run(seed=1, examples=params())
    about, without = read_phase()
    assert "sources" not in about
    assert len(set(sources_of(tokens, without["b"]))) == 3
    stage.run(seed=1, examples=params(weights=WEIGHTS))
    about, examples = read_phase()
    assert examples.dtype == SAMPLE_INDEX
    assert len(examples) == about["train"] == pytest.approx(len(without), rel=0.03)
    counts = Counter(sources_of(tokens, examples["a"]))
    for source, weight in WEIGHTS.items():
        mixed = about["sources"][source]
        assert counts[source] / len(examples) == pytest.approx(weight, abs=0.005)
        assert mixed["examples"] == counts[source]
        assert mixed["share"] == pytest.approx(weight)
        assert mixed["left_out"] >= 0
    # One is repeated, the other thinned.
    assert about["sources"]["news"]["passes"] > 3 > about["sources"]["wiki"]["passes"]


def test_build_examples_weights_pairs_stay_within_a_source(tokens: TokenStore) -> None:
    stage.run(seed=1, examples=params(weights=WEIGHTS, random_next_prob=0.9))
    _, examples = read_phase()
    assert sources_of(tokens, examples["a"]) == sources_of(tokens, examples["b"])
    news = examples[np.array(sources_of(tokens, examples["a"])) == "news"]
    assert len(np.unique(news)) > 0.8 * len(news)  # a repeated text has other pairs
    store = TokenStore("data/tokens", "validation")
    _, examples = read_phase("validation")
    assert sources_of(store, examples["a"]) == sources_of(store, examples["b"])
    assert {*sources_of(store, examples["a"])} == {*SIZES}


def test_build_examples_weights_same_bytes_for_any_workers(tokens, monkeypatch):
    def output_hashes(seed: int) -> dict[str, str]:
        stage.run(seed=seed, examples=params(weights=WEIGHTS))
        return {path.name: hash_file(path) for path in sorted(Path("data/examples").rglob("*")) if path.is_file()}

    monkeypatch.setattr(stage, "TOKENS_PER_BLOCK", 3000)
    expected = output_hashes(seed=1)
    assert len(expected) == 3
    assert output_hashes(seed=2) != expected
    monkeypatch.setenv("PIPELINE_WORKERS", "2")
    assert output_hashes(seed=1) == expected


def test_build_examples_weight_zero_leaves_source_out(tokens: TokenStore) -> None:
    stage.run(seed=1, examples=params(weights={"books": 30, "news": 0, "wiki": 10}))
    about, examples = read_phase()
    assert set(sources_of(tokens, examples["a"])) == {"books", "wiki"}
    assert about["sources"]["books"]["share"] == 0.75 and about["sources"]["news"]["passes"] == 0


@pytest.mark.parametrize("temperature", [1.0, 0.0, 0.7])
def test_build_examples_temperature_weights_sources_by_size(tokens, temperature):
    stage.run(seed=1, examples=params(temperature=temperature))
    about, _ = read_phase()
    counted = read_json("data/tokens/manifest.json")["parts"]["train"]
    powers = {source: counted[source]["tokens"] ** temperature for source in SIZES}
    for source, mixed in about["sources"].items():
        assert mixed["share"] == pytest.approx(powers[source] / sum(powers.values()), abs=1e-6)
    passes = [mixed["passes"] for mixed in about["sources"].values()]
    # Shares by size read every source equally often.
    assert (max(passes) - min(passes) <= 1) == (temperature == 1.0)


@pytest.mark.parametrize(("count", "message"), [(0, "0 examples"), (1, r"\d+ examples in 3 passes")])
def test_build_examples_source_too_small_for_its_weight_is_rejected(tokens, count, message):
    """All examples are of the news, which may be repeated 100 times as often as without weights."""
    weighted = params(weights={"books": 1e-6, "news": 1.0, "wiki": 1e-6})
    stage.run(seed=1, examples=weighted)
    before = hash_file("data/examples/phase1/train.npy")
    manifest = read_json("data/tokens/manifest.json")
    train = manifest["parts"]["train"]
    train["wiki"] = dict(Counter(train["wiki"]) + Counter(train["news"]))
    train["news"] = {"documents": count, "sentences": count, "tokens": count}
    write_json("data/tokens/manifest.json", manifest)
    with pytest.raises(PipelineError, match=f"source news has too little text for its share: {message}"):
        stage.run(seed=1, examples=weighted)
    assert hash_file("data/examples/phase1/train.npy") == before
