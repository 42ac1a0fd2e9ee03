"""Attention probabilities, and the words that show them."""

from __future__ import annotations

import numpy as np
import torch

from pipeline_src.interpretation.attention_maps import attention_maps, merge_tokens, shown_sentences
from tests.unit.interpretation.conftest import SENTENCES, make_model

TEXTS = [[5, 6, 7], [8, 9, 10, 11, 12], [13]]


def test_a_causal_model_looks_at_nothing_that_follows():
    for _, maps in attention_maps(make_model(is_decoder=True), TEXTS):
        assert not maps.triu(1).any()
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))


def test_maps_of_words_keep_all_weight():
    maps = torch.rand(2, 3, 5, 5).softmax(-1)
    words = merge_tokens(maps, [0, 1, 1, 2, 3])
    torch.testing.assert_close(words.sum(-1), torch.ones(2, 3, 4))
    torch.testing.assert_close(words[..., 1, 1], maps[..., 1:3, 1:3].sum(-1).mean(-1))


def test_shown_weights_are_bytes_of_words(model):
    import base64

    shown = shown_sentences(model, SENTENCES)
    assert shown[0]["words"] == ["[CLS]", "a", "bab", "c", ".", "[SEP]"] and shown[0]["marks"] == [1, 1]
    weights = np.frombuffer(base64.b64decode(shown[0]["weights"]), np.uint8).reshape(2, 2, 6, 6)
    assert abs(weights.sum(-1, dtype=int) - 255).max() <= 3
