"""Attention probabilities, by token and by word."""

from __future__ import annotations

import pytest
import torch

from pipeline_src.interpret.attention_maps import attention_maps, merge_tokens, unit_of_tokens
from pipeline_src.interpret.model import SkipMeasure
from pipeline_src.model.bert import Block, Encoder, SelfAttention
from tests.unit.interpret.conftest import make_model

TEXTS = [[5, 6, 7], [8, 9, 10, 11, 12], [13]]


def test_attention_maps_causal_model_has_no_weight_on_later_tokens():
    for _, maps in attention_maps(make_model(is_decoder=True), TEXTS):
        assert not maps.triu(1).any()
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))


def test_merge_tokens_two_subwords_equal_hand_computed_values():
    maps = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.6, 0.2], [0.4, 0.2, 0.4]])
    torch.testing.assert_close(merge_tokens(maps, [0, 1, 1]), torch.tensor([[0.5, 0.5], [0.3, 0.7]]))


def test_unit_of_tokens_numbers_tokens_in_order(model):
    assert unit_of_tokens(model, [0, 2, 2, 3]) == [0, 1, 2, 2, 3, 4]  # [CLS], three words, [SEP]


def test_attention_maps_forward_overridden_without_probabilities_is_skipped():
    class Attention(SelfAttention):
        def forward(self, *inputs):
            return super().forward(*inputs)

    model = make_model()
    encoder = type("CustomEncoder", (Encoder,), {"Block": type("CustomBlock", (Block,), {"Attention": Attention})})
    model.encoder.encoder = encoder(model.config)
    with pytest.raises(SkipMeasure):
        list(attention_maps(model, TEXTS))
