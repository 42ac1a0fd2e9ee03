"""TinyBERT's two losses against loops over transformers' hidden states, and their gradients."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import Tensor, nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.family.tinybert.objective import TinyBertObjective
from pipeline_src.model.bert import BertConfig
from pipeline_src.model.hub import save_tensors
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from tests.parity.peers import randomize

LENGTHS = (9, 4, 6)
KEEP = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
HEADS = 2


def config(layers: int, hidden: int) -> BertConfig:
    return BertConfig(50, hidden, layers, HEADS, 2 * hidden, 12, hidden_dropout_prob=0.0)


def scores(layer: nn.Module, hidden: Tensor, head: int) -> Tensor:
    """Of one head and one sequence before the softmax [L, L], from what the layer reads [L, H]."""
    width = hidden.shape[1] // HEADS
    part = slice(head * width, (head + 1) * width)
    query, key = (getattr(layer.attention.self, name)(hidden)[:, part] for name in ("query", "key"))
    return query @ key.T / width**0.5


def test_tinybert_losses_and_gradients_equal_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    teacher = randomize(TinyBertObjective.build_teacher(config(6, 32)), 1, std=0.1).eval().requires_grad_(False)
    objective = TinyBertObjective(config(2, 16), "none")
    objective.set_teacher(teacher)
    student = randomize(objective.model, 2, std=0.1)
    loaded = {}
    for name, module, sizes in (("teacher", teacher, config(6, 32)), ("student", student.bert, config(2, 16))):
        (tmp_path / name).mkdir()
        tensors = {f"bert.{key}": tensor for key, tensor in module.state_dict().items()}
        save_tensors(tmp_path / name, tensors, sizes, "BertModel")
        loaded[name] = transformers.BertModel.from_pretrained(tmp_path / name, attn_implementation="eager").eval()
    ids = torch.randint(5, 50, KEEP.shape, generator=torch.Generator().manual_seed(1)) * KEEP
    inputs = {"input_ids": ids, "attention_mask": KEEP.long(), "output_hidden_states": True}
    own, reference = (loaded[name](**inputs).hidden_states for name in ("student", "teacher"))

    grad_logits = of_states = torch.zeros(())
    squares, tokens = sum(length**2 for length in LENGTHS), sum(LENGTHS)
    for row, length in enumerate(LENGTHS):
        for layer, block in enumerate(loaded["student"].encoder.layer):
            imitated = loaded["teacher"].encoder.layer[3 * layer + 2]
            for head in range(HEADS):
                result = scores(block, own[layer][row, :length], head)
                target = scores(imitated, reference[3 * layer + 2][row, :length], head).detach()
                grad_logits = grad_logits + (result - target).square().sum() / (HEADS * squares)
        for layer in range(3):
            fitted = student.fit_dense(own[layer][row, :length])
            difference = fitted - reference[3 * layer][row, :length].detach()
            of_states = of_states + difference.square().sum() / (32 * tokens)
    (grad_logits + of_states).backward()
    projected = student.fit_dense.weight.grad.clone()
    student.zero_grad()

    flat, starts = ids[KEEP].numpy(), np.array([0, *np.cumsum(LENGTHS)])
    nothing = np.zeros(0, np.int64)
    batch = TensorBatch.of(
        PretrainingBatch(flat, flat * 0, starts, nothing, nothing, np.zeros(3, np.int64), np.arange(3))
    )
    terms, counts = objective(batch), objective.loss_counts(batch.workload)
    means = {name: term.loss / counts[name] for name, term in terms.items()}
    sum(means.values()).backward()
    torch.testing.assert_close(means["scores"], grad_logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(means["states"], of_states, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(student.fit_dense.weight.grad, projected, rtol=1e-5, atol=1e-5)
    gradients = {name: parameter.grad for name, parameter in loaded["student"].named_parameters()}
    for name, parameter in student.bert.named_parameters():
        expected = gradients[name]
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-5, atol=1e-5 * max(1, expected.abs().max()))
