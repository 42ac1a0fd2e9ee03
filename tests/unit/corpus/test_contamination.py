"""Shared runs of 13 words: found where they are, and nowhere else."""

import random

import numpy as np
import pytest

from pipeline_src.common.files import write_json
from pipeline_src.corpus import contamination
from pipeline_src.corpus.contamination import RUN_WORDS, Words, end_to_end, measure_overlap
from pipeline_src.examples.token_store import TokenStore, TokenWriter

VOCAB_SIZE = 1000
CONTINUES = np.arange(VOCAB_SIZE) >= 700  # continue a word
IS_WORD = np.arange(VOCAB_SIZE) >= 20  # the first twenty are punctuation
WORDS = Words(CONTINUES, IS_WORD)


def text(seed: int, words: int) -> list[int]:
    """Words of one to three pieces, a stop after every seventh."""
    rng = random.Random(seed)
    ids = []
    for number in range(words):
        ids += [rng.randrange(20, 700), *(rng.randrange(700, VOCAB_SIZE) for _ in range(rng.randrange(3)))]
        ids += [5] if number % 7 == 6 else []
    return ids


def word_starts(ids: list[int]) -> list[int]:
    return [position for position, number in enumerate(ids) if 20 <= number < 700]


@pytest.fixture
def corpus(tmp_path) -> TokenStore:
    writer = TokenWriter(tmp_path, "train", 100)
    for seed in range(20):
        ids = np.asarray(text(seed, 200))
        writer.add(ids, np.asarray([len(ids) - 10, 10]), np.asarray([2]))
    write_json(tmp_path / "manifest.json", {"splits": {"train": writer.close()}})
    return TokenStore(tmp_path, "train")


def measure(corpus, texts: list[list[int]], **more):
    return measure_overlap(corpus, WORDS, {"set": end_to_end(texts)}, **more)["set"]


def test_measure_overlap_copy_of_thirteen_words_is_counted(corpus):
    start = word_starts(text(4, 200))
    copied = text(4, 200)[start[30] : start[30 + RUN_WORDS]]
    almost = text(4, 200)[start[30] : start[30 + RUN_WORDS - 1]]  # twelve words of it
    strangers = [text(seed, 50) for seed in range(100, 110)]
    result = measure(corpus, [copied, almost + text(99, 30), *strangers])
    assert (result["texts"], result["found"]) == (12, 1)
    assert result["share"] == round(1 / 12, 4) and 0 < result["share_of_runs"] < 0.01


def test_measure_overlap_punctuation_is_ignored(corpus):
    ids = text(7, 60)
    without = [number for number in ids if number >= 20]
    assert measure(corpus, [without])["share_of_runs"] == 1.0
    other = [number + 1 if 700 <= number < 999 else number for number in ids]
    assert measure(corpus, [other])["found"] == 0


def test_measure_overlap_run_across_two_texts_is_not_counted(corpus):
    start = word_starts(text(3, 200))
    halves = [text(3, 200)[start[10] : start[17]], text(3, 200)[start[17] : start[24]]]
    result = measure(corpus, halves)
    assert result == {"texts": 0, "found": 0, "share": None, "runs": 0, "share_of_runs": None}


def test_measure_overlap_same_for_any_blocks_and_workers(corpus, monkeypatch):
    texts = [text(seed, 40) for seed in (1, 2, 300, 301)]
    whole = measure(corpus, texts)
    monkeypatch.setattr(contamination, "BLOCK_TOKENS", 500)
    assert measure(corpus, texts, workers=2) == whole == measure(corpus, texts, workers=1)
    assert whole["found"] == 2


def test_measure_overlap_equals_search_in_sets_of_words(corpus):
    def runs(ids):
        words, word = [], []
        for number in [*(n for n in ids if n >= 20), 20]:
            if number < 700 and word:
                words.append(tuple(word))
                word = []
            word.append(number)
        return {tuple(words[i : i + RUN_WORDS]) for i in range(len(words) - RUN_WORDS + 1)}

    known = set().union(*(runs(text(seed, 200)) for seed in range(20)))
    mixed = [text(seed, 30) + text(seed + 500, 30) for seed in range(10)]
    result = measure(corpus, mixed)
    shared = sum(len(runs(ids) & known) for ids in mixed)
    total = sum(len(runs(ids)) for ids in mixed)
    assert (result["runs"], result["share_of_runs"]) == (total, round(shared / total, 4))
