"""TinyBERT's losses and gradients equal those of loops over transformers' hidden states."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.family.tinybert.objective import TinyBertObjective
from pipeline_src.model.bert import BertConfig
from tests.parity.peers import (
    KEEP,
    LENGTHS,
    assert_gradients_close,
    flat_batch,
    loaded_again,
    mean_losses,
    random_ids,
    randomize,
)

HEADS = 2


def config(layers: int, hidden: int) -> BertConfig:
    return BertConfig(50, hidden, layers, HEADS, 2 * hidden, 24, hidden_dropout_prob=0.0)


def scores(layer: nn.Module, hidden: Tensor, head: int) -> Tensor:
    """Return one head's attention logits [L, L] of one sequence, from the layer's input [L, H]."""
    width = hidden.shape[1] // HEADS
    part = slice(head * width, (head + 1) * width)
    query, key = (getattr(layer.attention.self, name)(hidden)[:, part] for name in ("query", "key"))
    return query @ key.T / width**0.5


def test_tinybert_losses_and_gradients_equal_transformers(tmp_path):
    teacher = randomize(TinyBertObjective.build_teacher(config(6, 32)), 1, std=0.1).eval().requires_grad_(False)
    objective = TinyBertObjective(config(2, 16), "none")
    objective.set_teacher(teacher)
    student = randomize(objective.model, 2, std=0.1)
    loaded = {
        name: loaded_again(tmp_path / name, module, sizes, "BertModel", add_pooling_layer=False)
        for name, module, sizes in (("teacher", teacher, config(6, 32)), ("student", student.bert, config(2, 16)))
    }
    ids = random_ids(50)
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

    nothing = torch.zeros(0, dtype=torch.int64)
    means, _ = mean_losses(objective, flat_batch(ids, nothing, nothing))
    torch.testing.assert_close(means["scores"], grad_logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(means["states"], of_states, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(student.fit_dense.weight.grad, projected, rtol=1e-5, atol=1e-5)
    gradients = {name: parameter.grad for name, parameter in loaded["student"].named_parameters()}
    assert_gradients_close(dict(student.bert.named_parameters()), gradients)
