"""Encoder and heads give the same outputs, losses and gradients as transformers, with equal weights and input."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.finetune.heads import BertForTask, token_loss
from pipeline_src.finetune.task_data import TaskBatch
from pipeline_src.model.bert import BertConfig, BertForPretraining, initialise
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.pretrain.mlm import BertObjective
from pipeline_src.training.trainer import LossTerm
from tests.parity.peers import assert_close, load_in_transformers, randomize, save

ENTRIES, PAD = 500, 0
SIZES = [(1, 64, 1), (2, 128, 2), (4, 256, 4)]
WORDS = "bert.embeddings.word_embeddings.weight"
TIED = "cls.predictions.decoder.bias"  # is cls.predictions.bias there


def config(size: tuple[int, int, int], activation: str = "gelu", causal: bool = False) -> BertConfig:
    layers, hidden, heads = size
    return BertConfig(ENTRIES, hidden, layers, heads, 4 * hidden, 64, 2, 0.0, activation, is_decoder=causal)


def equal_gradients(ours: nn.Module, reference: nn.Module) -> None:
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters()}
    for name, parameter in ours.named_parameters():
        expected = gradients.get({TIED: "cls.predictions.bias"}.get(name, name))
        if parameter.grad is None:
            assert expected is None or not expected.any(), name
        elif name == WORDS:  # transformers does not train the vector of [PAD], google-research/bert does
            assert_close(parameter.grad[PAD + 1 :], expected[PAD + 1 :])
        else:
            assert_close(parameter.grad, expected)


@dataclass(frozen=True)
class Batch:
    """Three sequences, as a padded rectangle and flat."""

    ids: Tensor
    segments: Tensor
    keep: Tensor
    cu_seqlens: Tensor
    attention_mask: Tensor | None

    @property
    def flat(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.ids[self.keep], self.segments[self.keep], self.cu_seqlens

    @property
    def padded(self) -> dict[str, Tensor | None]:
        return {"input_ids": self.ids, "token_type_ids": self.segments, "attention_mask": self.attention_mask}


def make_batch(kind: str) -> Batch:
    """Make sequences of equal lengths, of unequal lengths, or with [PAD] as an ordinary token."""
    lengths = [24, 7, 15] if kind == "unequal" else [24, 24, 24]
    ids = torch.randint(5, ENTRIES, (3, 24), generator=torch.Generator().manual_seed(1))
    if kind == "pad tokens":
        ids[1, 7:] = ids[2, 15:] = PAD
    segments = (torch.arange(24) >= 5).long().expand(3, -1)
    keep = torch.arange(24) < torch.tensor(lengths)[:, None]
    mask = torch.ones_like(ids) if kind == "pad tokens" else keep.long()
    return Batch(ids, segments, keep, torch.tensor([0, *lengths]).cumsum(0), mask)


def terms(
    ours: BertForPretraining, batch: Batch, predicted: Tensor, labels: Tensor, pair_label: Tensor
) -> list[LossTerm]:
    """Return the losses of tokens and of pairs, as training computes them."""
    objective = BertObjective(ours.bert.config, pairs="nsp")
    objective.model = ours
    arrays = (tensor.numpy() for tensor in (*batch.flat, predicted, labels, pair_label))
    result = objective(TensorBatch.of(PretrainingBatch(*arrays, examples=np.arange(len(pair_label)))))
    return [result["mlm"], result["nsp"]]


BATCHES = {kind: make_batch(kind) for kind in ("equal", "unequal", "pad tokens")}


@pytest.fixture(scope="module", params=["gelu", "gelu_tanh"])
def activation(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"L{size[0]}-H{size[1]}")
def both(request, activation, tmp_path_factory) -> tuple[BertForPretraining, Any]:
    sizes, name = config(request.param, activation), "BertForPreTraining"
    model = randomize(BertForPretraining(sizes))
    return model, load_in_transformers(save(tmp_path_factory.mktemp("model"), model, sizes, name), name)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_bert_outputs_losses_and_gradients_equal_transformers(both, batch):
    ours, reference = both
    predicted = (batch.cu_seqlens[:-1, None] + torch.tensor([1, 5])).ravel()
    labels = torch.full((3, 24), -100)
    labels[:, 1], labels[:, 5] = 17, 42
    is_random = torch.tensor([0, 1, 0])

    ours.zero_grad(), reference.zero_grad()
    hidden, pooled = ours.bert(*batch.flat)
    words, pairs = ours(*batch.flat, predicted)
    (of_words, _), (of_pairs, _) = terms(ours, batch, predicted, torch.tensor([17, 42] * 3), is_random)
    loss = of_words / 6 + of_pairs / 3
    loss.backward()
    base = reference.bert(**batch.padded)
    expected = reference(**batch.padded, labels=labels, next_sentence_label=is_random)
    expected.loss.backward()

    assert_close(hidden, base.last_hidden_state[batch.keep])
    assert_close(pooled, base.pooler_output)
    assert_close(words, expected.prediction_logits[labels >= 0])
    assert_close(pairs, expected.seq_relationship_logits)
    assert_close(loss, expected.loss)
    equal_gradients(ours, reference)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"L{size[0]}-H{size[1]}")
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_bert_decoder_logits_loss_and_gradients_equal_transformers(size, batch, tmp_path):
    """The labels are shifted by this project in one case, and by transformers' decoder in the other."""
    sizes = config(size, causal=True)
    ours = randomize(BertForPretraining(sizes))
    reference = load_in_transformers(save(tmp_path, ours, sizes, "BertLMHeadModel"), "BertLMHeadModel")
    predicted = torch.cat([torch.arange(a, b - 1) for a, b in pairwise(batch.cu_seqlens)])
    labels = batch.flat[0][predicted + 1]

    words, _ = ours(*batch.flat, predicted)
    loss = terms(ours, batch, predicted, labels, torch.zeros(3, dtype=torch.int64))[0].loss / len(labels)
    loss.backward()
    expected = reference(**batch.padded, labels=batch.ids.masked_fill(~batch.keep, -100))
    expected.loss.backward()

    assert reference.config.is_decoder
    assert_close(words, expected.logits[batch.keep][predicted])
    assert_close(loss, expected.loss)
    equal_gradients(ours, reference)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_bert_for_task_token_head_equals_transformers(batch, tmp_path):
    sizes = config(SIZES[1])
    ours = randomize(BertForTask(sizes, "token", 7))
    name = "BertForTokenClassification"
    reference = load_in_transformers(save(tmp_path, ours, sizes, name), name, num_labels=7)
    labels = torch.randint(0, 7, batch.ids.shape, generator=torch.Generator().manual_seed(2))
    labels[:, ::3] = -100
    outputs = ours(*batch.flat)
    lengths = batch.cu_seqlens.diff().numpy()
    loss = token_loss(outputs, TaskBatch(*batch.flat, labels[batch.keep], 0, lengths, np.arange(len(lengths))))
    loss.backward()
    expected = reference(**batch.padded, labels=labels.masked_fill(~batch.keep, -100))
    expected.loss.backward()
    assert_close(outputs, expected.logits[batch.keep])
    assert_close(loss, expected.loss)
    equal_gradients(ours, reference)


def test_initialise_bert_weights_are_truncated_normal():
    config = BertConfig(3000, 128, 2, 2, 512)
    model = BertForPretraining(config)
    initialise(model, torch.Generator().manual_seed(0))
    weights = model.bert.embeddings.word_embeddings.weight
    assert weights.abs().max() <= 0.04 and abs(weights.std().item() - 0.0176) < 5e-4  # 0.88 x 0.02
    assert model.bert.encoder.layer[0].output.dense.bias.abs().max() == 0
