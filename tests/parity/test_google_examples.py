"""Our examples against google-research/bert's: its algorithm written out step by step, first proved, then compared.

``published_pairs`` and ``published_masks`` are the algorithm of ``create_pretraining_data.py``, token by token. Fed
with Python's generator they must reproduce the examples that Google's program makes (package bert-tensorflow); fed with
our keyed random numbers they must give the pairs and masks of our vectorised code, to the token.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.examples import google_program
from pipeline_src.base.counter_rng import bits, derive_seed, uniform
from pipeline_src.base.files import write_json
from pipeline_src.examples.masking import MLMCollator
from pipeline_src.examples.pairs import (
    A_END,
    COIN,
    CUTS,
    CUTS_EACH,
    RANDOM_DOCUMENT,
    SHORT,
    SLOTS,
    START,
    TARGET,
    PairRules,
    document_pairs,
)
from pipeline_src.examples.token_store import TokenStore, TokenWriter
from pipeline_src.study.pretrain import Masking

CLS, SEP, MASK, ENTRIES = 101, 102, 103, 30_522
VOCABULARY = [f"w{number}" for number in range(ENTRIES)]
VOCABULARY[CLS], VOCABULARY[SEP], VOCABULARY[MASK] = "[CLS]", "[SEP]", "[MASK]"


class PythonDraws:
    """Draws from one random generator, in the order of the calls."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def chance(self, what: str) -> float:
        return self.rng.random()

    def integer(self, what: str, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def shuffle(self, items: list) -> None:
        self.rng.shuffle(items)

    def next_example(self) -> None:
        pass


class KeyedDraws:
    """This project's keyed random numbers for one document, looked up by their purpose."""

    def __init__(self, stream: int, document: int) -> None:
        self.stream, self.document, self.number = stream, document, 0
        self.tries = self.cuts = 0

    def _uniform(self, column: int) -> float:
        return float(uniform(self.stream, np.asarray([self.document]), column)[0])

    def chance(self, what: str) -> float:
        if what == "phase1":
            return self._uniform(SHORT)
        if what == "coin":
            return self._uniform(SLOTS * self.number + COIN)
        word, bit = divmod(self.cuts, 64)
        self.cuts += 1
        column = CUTS + self.number * CUTS_EACH + word
        return 0.0 if int(bits(self.stream, np.asarray([self.document]), column)[0]) >> bit & 1 else 1.0

    def integer(self, what: str, low: int, high: int) -> int:
        if what == "target":
            draw = self._uniform(TARGET)
        else:
            slot = {"a_end": A_END, "document": RANDOM_DOCUMENT + self.tries, "start": START}[what]
            self.tries += what == "document"
            draw = self._uniform(SLOTS * self.number + slot)
        return low + int(draw * (high - low + 1))

    def next_example(self) -> None:
        self.number += 1
        self.tries = self.cuts = 0


def published_pairs(documents, index, length, short_seq_prob, draws):
    """Yield (tokens of A, tokens of B, is_random) for one document, given as a list of sentences."""
    document, limit = documents[index], length - 3
    target = limit
    if draws.chance("phase1") < short_seq_prob:
        target = draws.integer("target", 2, limit)
    chunk, size, i = [], 0, 0
    while i < len(document):
        chunk.append(document[i])
        size += len(document[i])
        if i == len(document) - 1 or size >= target:
            a_end = draws.integer("a_end", 1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [token for sentence in chunk[:a_end] for token in sentence]
            b = []
            is_random = len(chunk) == 1 or draws.chance("coin") < 0.5
            if is_random:
                for _ in range(10):
                    other = draws.integer("document", 0, len(documents) - 1)
                    if other != index:
                        break
                start = draws.integer("start", 0, len(documents[other]) - 1)
                for sentence in documents[other][start:]:
                    b += sentence
                    if len(b) >= target - len(a):
                        break
                i -= len(chunk) - a_end
            else:
                b = [token for sentence in chunk[a_end:] for token in sentence]
            while len(a) + len(b) > limit:
                longer = a if len(a) > len(b) else b
                if draws.chance("front") < 0.5:
                    del longer[0]
                else:
                    longer.pop()
            yield a, b, is_random
            draws.next_example()
            chunk, size = [], 0
        i += 1


def published_masks(tokens, mask_prob, most, draws, words=None):
    """Return position -> replacement ('mask', 'keep' or a token id) in [CLS] A [SEP] B [SEP]."""
    candidates = []
    for position, token in enumerate(tokens):
        if token in (CLS, SEP):
            continue
        if words is not None and candidates and words[position]:
            candidates[-1].append(position)
        else:
            candidates.append([position])
    draws.shuffle(candidates)
    target = min(most, max(1, int(round(len(tokens) * mask_prob))))
    chosen = {}
    for positions in candidates:
        if len(chosen) >= target:
            break
        if len(chosen) + len(positions) > target:
            continue
        for position in positions:
            if draws.chance("mask") < 0.8:
                chosen[position] = "mask"
            else:
                chosen[position] = "keep" if draws.chance("keep") < 0.5 else draws.integer("word", 0, ENTRIES - 1)
    return chosen


@pytest.fixture(scope="module")
def google() -> ModuleType:
    """Import ``bert.create_pretraining_data``."""
    pytest.importorskip("bert", reason="bert-tensorflow is not installed")
    return google_program()


def googles_instances(google: ModuleType, documents, length: int, passes: int, seed: int) -> list:
    """Return the examples that Google's program makes from documents, in ``dupe_factor`` passes."""
    rng = random.Random(seed)
    return [
        instance
        for _ in range(passes)
        for index in range(len(documents))
        for instance in google.create_instances_from_document(documents, index, length, 0.1, 0.15, 20, VOCABULARY, rng)
    ]


@pytest.mark.parametrize("length", [16, 128])
def test_restated_algorithm_equals_google_program(google, length):
    documents = random_documents(length, 30)
    spelled = [[[VOCABULARY[token] for token in sentence] for sentence in document] for document in documents]
    made = googles_instances(google, spelled, length, 3, 12345)
    draws, instances = PythonDraws(12345), []
    for _ in range(3):
        for index in range(len(documents)):
            for a, b, is_random in published_pairs(documents, index, length, 0.1, draws):
                tokens = [CLS, *a, SEP, *b, SEP]
                instances.append((tokens, len(a), is_random, published_masks(tokens, 0.15, 20, draws)))
    assert len(instances) == len(made) > 200
    for (tokens, a_length, is_random, chosen), result in zip(instances, made, strict=True):
        assert result.is_random_next == is_random
        assert result.segment_ids == [0] * (a_length + 2) + [1] * (len(tokens) - a_length - 2)
        assert result.masked_lm_positions == sorted(chosen)
        assert result.masked_lm_labels == [VOCABULARY[tokens[position]] for position in sorted(chosen)]
        for position, token in enumerate(tokens):
            fate = chosen.get(position, "keep")
            assert result.tokens[position] == VOCABULARY[{"mask": MASK, "keep": token}.get(fate, fate)]


def random_documents(seed: int, count: int) -> list[list[list[int]]]:
    """Return documents of 1 to 40 sentences of 1 to 150 tokens. Token ids count up from 1000."""
    rng = np.random.default_rng(seed)
    sizes = [np.minimum(rng.geometric(0.06, rng.integers(1, 41)), 150) for _ in range(count)]
    flat = iter(range(1000, 1_000_000))
    return [[[next(flat) for _ in range(size)] for size in document] for document in sizes]


def store_of(folder: Path, documents: list[list[list[int]]]) -> TokenStore:
    """Return a store of documents with these sentence lengths. Its token ids do not matter."""
    writer = TokenWriter(folder, "train", ENTRIES)
    for document in documents:
        lengths = np.asarray([len(sentence) for sentence in document])
        writer.add(np.zeros(lengths.sum(), np.uint16), lengths, np.asarray([len(lengths)]))
    write_json(folder / "manifest.json", {"splits": {"train": writer.close()}})
    return TokenStore(folder, "train")


@pytest.mark.parametrize(("length", "short_seq_prob"), [(16, 0.5), (64, 0.1), (128, 0.1), (512, 0.1)])
def test_document_pairs_equal_published_algorithm(tmp_path, length, short_seq_prob):
    documents = random_documents(length, 60)
    store, stream = store_of(tmp_path, documents), derive_seed(5, "pairs", "phase1", 0)
    rules = PairRules(length, short_seq_prob, 0.5, "nsp", 3)
    plan = document_pairs(store, 0, len(documents), rules, [stream])
    ours = [
        (list(range(1000 + a, 1000 + a + a_length)), list(range(1000 + b, 1000 + b + b_length)), bool(is_random))
        for a, b, a_length, b_length, is_random in plan.tolist()
    ]
    expected = [
        pair
        for index in range(len(documents))
        for pair in published_pairs(documents, index, length, short_seq_prob, KeyedDraws(stream, index))
    ]
    assert len(expected) > 100
    assert ours == expected


class KeyedShuffle:
    """This project's shuffle of one example, one swap at a time."""

    def __init__(self, stream: int, example: int) -> None:
        self.stream, self.example = stream, example

    def shuffle(self, items: list) -> None:
        for turn in range(len(items)):
            draw = float(uniform(self.stream, np.asarray([self.example]), turn)[0])
            pick = turn + int(draw * (len(items) - turn))
            items[turn], items[pick] = items[pick], items[turn]

    def chance(self, what: str) -> float:
        return 0.0


@pytest.mark.parametrize("whole_word", [False, True])
@pytest.mark.parametrize("mask_prob", [0.15, 0.4])
def test_masked_positions_equal_published_algorithm(whole_word, mask_prob):
    rng = np.random.default_rng(3)
    inner, special = rng.random(ENTRIES) < 0.3, np.zeros(ENTRIES, bool)
    special[[CLS, SEP]] = True
    masked_lm = MLMCollator(
        mask_prob, Masking(unit="whole_word" if whole_word else "token"), MASK, special, inner, seed=9
    )
    examples = []
    for _ in range(150):
        size = int(rng.integers(5, 129))
        ids = rng.integers(1000, ENTRIES, size)
        ids[[0, size // 2, -1]] = CLS, SEP, SEP
        examples.append(ids)
    numbers = rng.permutation(10_000)[: len(examples)]
    lengths = np.asarray([len(ids) for ids in examples])
    _, chosen = masked_lm.apply(np.concatenate(examples), lengths, numbers)
    cu_seqlens = np.cumsum(lengths) - lengths
    for ids, number, start in zip(examples, numbers, cu_seqlens, strict=True):
        draws = KeyedShuffle(derive_seed(9, "choose"), int(number))
        words = inner[ids] if whole_word else None
        expected = sorted(published_masks(ids.tolist(), mask_prob, 10**9, draws, words))
        ours = chosen[(chosen >= start) & (chosen < start + len(ids))] - start
        assert ours.tolist() == expected
