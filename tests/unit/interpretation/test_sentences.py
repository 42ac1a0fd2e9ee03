"""Sentences of the page: which are chosen, their attention, and attributions."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from pipeline_src.interpretation.model import Sentence, SkipMeasure
from pipeline_src.interpretation.sentences import choose_sentences, integrated_gradients, shown_sentences
from tests.unit.interpretation.conftest import SENTENCES, make_model, unigram_model


def sentence(text: str, document: str) -> Sentence:
    return Sentence(tuple(text.split()), document)


def test_choose_sentences_takes_short_ones_of_few_subwords_from_many_documents(model):
    words, subwords = "a b c d is .", "aa bb ab ba is ."
    sentences = [
        sentence(subwords, "one"), sentence(words, "one"), sentence("a b c d e is .", "one"),
        sentence(subwords, "two"), sentence("a ü c d is .", "three"), sentence("a b is .", "four"),
        sentence("a b c d e is", "five"), sentence(f"{'a ' * 12}.", "six"),
    ]  # fmt: skip
    assert choose_sentences(model, sentences) == [sentences[1], sentences[3]]
    for unsuitable in (sentences[4:], []):
        with pytest.raises(SkipMeasure):
            choose_sentences(model, unsuitable)


def test_shown_sentences_weights_are_bytes_of_layers_heads_and_words(model):
    first, *_ = shown_sentences(model, SENTENCES)
    assert first["words"] == ["[CLS]", "a", "bab", "c", ".", "[SEP]"] and first["marks"] == [1, 1]
    weights = np.frombuffer(base64.b64decode(first["weights"]), np.uint8).reshape(2, 2, 6, 6)
    assert abs(weights.sum(-1, dtype=int) - 255).max() <= 3


def test_shown_sentences_masks_the_last_word_of_one_token():
    hidden = shown_sentences(unigram_model(c=0.25), SENTENCES)[0]["hidden"]  # not the full stop, nor bab
    assert hidden == {"at": 3, "probability": 0.25, "gain": 0.0, "adds": [0.0] * 6}


def test_integrated_gradients_sum_to_the_gain_and_are_0_for_what_never_changes():
    model = make_model()
    for parameter in model.encoder.parameters():
        parameter.data *= 0.5  # weights of the size that training leaves
    attributions, gain = integrated_gradients(model, [5, 6, model.mask, 8], 2, 7)
    text, baseline = ([5, 6, model.mask, 8], [model.mask] * 4)
    log_probs = [float(model.log_probabilities([ids], [[2]])[0][0, 7]) for ids in (text, baseline)]
    assert gain == pytest.approx(log_probs[0] - log_probs[1], abs=1e-5) and abs(gain) > 1e-3
    assert float(attributions.sum()) == pytest.approx(gain, abs=1e-4)
    assert attributions[0] == attributions[-1] == attributions[3] == 0.0  # special tokens and the mask
    assert attributions[[1, 2, 4]].abs().min() > 0
