"""Sentences of the page: which are chosen, and their attention."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from pipeline_src.interpret.model import Sentence, SkipMeasure
from pipeline_src.interpret.sentences import choose_sentences, shown_sentences
from tests.unit.interpret.conftest import SENTENCES


def sentence(text: str, document: str) -> Sentence:
    return Sentence(tuple(text.split()), document)


def test_choose_sentences_prefers_short_sentences_of_different_documents(model):
    words, subwords = "a b c d is .", "aa bb ab ba is ."
    sentences = [
        sentence(subwords, "one"),
        sentence(words, "one"),
        sentence("a b c d e is .", "one"),
        sentence(subwords, "two"),
        sentence("a ü c d is .", "three"),
        sentence("a b is .", "four"),
        sentence("a b c d e is", "five"),
        sentence(f"{'a ' * 12}.", "six"),
    ]
    assert choose_sentences(model, sentences) == [sentences[1], sentences[3]]
    for unsuitable in (sentences[4:], []):
        with pytest.raises(SkipMeasure):
            choose_sentences(model, unsuitable)


def test_shown_sentences_weights_decode_to_attention_probabilities(model):
    first, *_ = shown_sentences(model, SENTENCES)
    assert first["words"] == ["[CLS]", "a", "bab", "c", ".", "[SEP]"] and first["marks"] == [1, 1]
    weights = np.frombuffer(base64.b64decode(first["weights"]), np.uint8).reshape(2, 2, 6, 6)
    assert abs(weights.sum(-1, dtype=int) - 255).max() <= 3
