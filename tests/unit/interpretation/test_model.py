"""Vectors of words: means of subwords, in any batch."""

from dataclasses import replace

import torch

from pipeline_src.interpretation.model import Sentence, tokenize_words, word_vectors
from tests.unit.interpretation.conftest import SENTENCES


def test_a_words_vector_is_the_mean_of_its_subwords_in_every_layer(model):
    found = word_vectors(model, SENTENCES)
    assert found.vectors.shape == (3, 9, 16) and found.left_out == 0
    assert found.sentence.tolist() == [0] * 4 + [1] * 2 + [2] * 3
    assert found.position.tolist() == [*range(4), *range(2), *range(3)]
    subwords = tokenize_words(model, SENTENCES)
    assert subwords.words[0] == [0, 1, 1, 1, 2, 3]
    states, _ = model.hidden_states([subwords.ids[0]])
    for layer, state in enumerate(states):
        torch.testing.assert_close(found.vectors[layer, 1], state[2:5].mean(0))


def test_batches_change_nothing(model):
    whole = word_vectors(model, SENTENCES).vectors
    torch.testing.assert_close(
        word_vectors(replace(model, batch_tokens=1), SENTENCES).vectors, whole, rtol=1e-5, atol=1e-6
    )


def test_what_does_not_fit_is_counted_and_no_word_is_cut(model):
    long = Sentence((*"abcdefghij" * 3, "e", "f", "g", "h", "i", "j", "a", "bab", "c"), "long")
    found = tokenize_words(model, [long, Sentence(("",), "nothing")])
    assert len(found.ids[0]) == 37 and found.words[0][-1] == 36 and found.left_out == 3 and found.ids[1] == []
