"""Nearest neighbours of a word in two senses, and the similarity of its vectors."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch

from pipeline_src.interpret.model import Sentence, SkipMeasure, word_vectors
from pipeline_src.interpret.senses import (
    WordSenses,
    in_two_contexts,
    same_language,
    self_similarity,
    two_contexts,
)
from tests.unit.interpret.conftest import SENTENCES


def test_two_contexts_data_has_equally_many_sentences_per_sense():
    sentences, senses = two_contexts()
    for word, by_sentence in senses.items():
        assert sorted(Counter(by_sentence.values()).values()) == [8, 8]
        for number in by_sentence:
            assert [text.lower() for text in sentences[number].words].count(word) == 1, (word, sentences[number])


def test_in_two_contexts_same_model_twice_has_no_gain(model):
    result = in_two_contexts(model, model, two_contexts(), 1)
    assert len(result["accuracy"]) == len(result["between"]) == 3
    assert result["accuracy"] == result["random"] and result["gain"] == [0, 0]
    for word in result["words"].values():
        assert all(at not in neighbours for layer in word["neighbours"] for at, neighbours in enumerate(layer))


def test_self_similarity_in_equal_contexts_is_1_minus_baseline(model):
    same = [Sentence((word, "b"), word) for word in "acdefg"]
    result = self_similarity(model, same, 1)
    assert result["words"] == 1
    assert result["adjusted"][0] == pytest.approx(1 - result["baseline"][0], abs=2e-4)
    with pytest.raises(SkipMeasure):
        self_similarity(model, SENTENCES, 1)


@pytest.mark.parametrize(("sense_of", "expected"), [(lambda context, _: context, 1.0), (lambda _, number: number, 0.0)])
def test_in_two_contexts_nearest_neighbour_has_the_same_words(model, sense_of, expected):
    """Sentences with equal words are nearest neighbours: all are correct if they share a sense, else none."""
    pairs = [(context, number) for context in "be" for number in "12"]
    sentences = [Sentence(("a", context), f"{context}{number}") for context, number in pairs]
    word_senses = WordSenses(sentences, {"a": {at: sense_of(*pair) for at, pair in enumerate(pairs)}})
    result = in_two_contexts(model, model, word_senses, 1)
    assert result["accuracy"][1:] == result["words"]["a"]["accuracy"][1:] == [expected] * 2
    assert [first for first, *_ in result["words"]["a"]["neighbours"][-1]] == [1, 0, 3, 2]


def test_self_similarity_equals_mean_pair_cosine_minus_baseline(model):
    sentences = [Sentence(("a", word), word) for word in "bcdefg"]
    result = self_similarity(model, sentences, 1)
    for layer, vectors in enumerate(word_vectors(model, sentences).vectors):
        cosines = [torch.cosine_similarity(x, y, 0) for x, y in combinations(vectors[::2], 2)]  # every other word is a
        expected = float(np.mean(cosines)) - result["baseline"][layer]
        assert result["adjusted"][layer] == pytest.approx(expected, abs=2e-4)
    assert result["fall"] == pytest.approx(result["adjusted"][0] - min(result["adjusted"]), abs=2e-4)


def test_in_two_contexts_neighbours_come_from_another_document(model):
    """Documents of four sentences, so that an occurrence has many others of its own document."""
    sentences = [Sentence(("a", "bcde"[number % 4]), str(number // 4)) for number in range(12)]
    senses = {number: str(number % 2) for number in range(12)}
    word = in_two_contexts(model, model, WordSenses(sentences, {"a": senses}), 1)["words"]["a"]
    for layer in word["neighbours"]:
        for number, neighbours in enumerate(layer):
            assert neighbours and number // 4 not in {neighbour // 4 for neighbour in neighbours}


def test_same_language_german_text_is_rejected():
    sentences, _ = two_contexts()
    assert same_language(sentences, sentences[::2])
    assert not same_language(sentences, [Sentence(("Der", "Mann", "ist", "nicht", "hier", ".") * 2, "de")])
