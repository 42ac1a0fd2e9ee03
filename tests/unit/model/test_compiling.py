"""A compiled model with the branches of a GPU on the CPU; tests/unit/training/test_gpu_rehearsal.py counts graphs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from pipeline_src.model import bert
from pipeline_src.model.bert import BertConfig, BertForPretraining, compile_parts, initialise
from pipeline_src.model.losses import aligned_logits, summed_cross_entropy
from tests.flash_on_cpu import flash_on_cpu

CONFIG = BertConfig(90, 32, 2, 2, 64, 24, hidden_dropout_prob=0.0, attention="flash_varlen")


@pytest.fixture(autouse=True)
def gpu_branches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Flash attention, the loss over aligned logits; the compiler traces and differentiates, and makes no kernels."""
    monkeypatch.setattr(bert, "linear_cross_entropy", gpu_cross_entropy)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    with flash_on_cpu():
        yield
    torch._dynamo.reset()


def gpu_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return summed_cross_entropy(aligned_logits(hidden, weight, bias), labels)


def step(model: BertForPretraining, lengths: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Return a loss over random tokens and its gradients, as the objective computes them."""
    generator, tokens = torch.Generator().manual_seed(1), sum(lengths)
    ids, labels = (torch.randint(5, 90, (size,), generator=generator) for size in (tokens, max(1, tokens // 7)))
    predicted = torch.randperm(tokens, generator=generator)[: len(labels)].sort().values
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, pooled = model.bert(ids, ids % 2, torch.tensor([0, *lengths]).cumsum(0), max(lengths))
        loss, _ = model.cls["predictions"].loss(hidden.index_select(0, predicted), labels)
        loss = loss + model.cls["seq_relationship"](pooled).float().square().sum()
    return loss, list(torch.autograd.grad(loss, list(model.parameters())))


def test_compile_parts_keeps_losses_gradients_and_names():
    eager, compiled = BertForPretraining(CONFIG).train(), BertForPretraining(CONFIG).train()
    for model in (eager, compiled):
        initialise(model, torch.Generator().manual_seed(1))
    compile_parts(compiled)
    assert list(compiled.state_dict()) == list(eager.state_dict())
    for lengths in ([22, 24, 9, 23], [24, 24, 24, 24], [24], [6]):  # the last with one prediction
        (loss, gradients), (expected, others) = step(compiled, lengths), step(eager, lengths)
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
        for first, second in zip(gradients, others, strict=True):
            torch.testing.assert_close(first, second, rtol=2e-2, atol=2e-2)
