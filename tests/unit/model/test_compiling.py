"""A compiled model equals the uncompiled one, on the code paths of a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from pipeline_src.model.bert import BertConfig, BertForPretraining, compile_parts, initialise
from tests.unit.training.fake_gpu import gpu_branches

CONFIG = BertConfig(90, 32, 2, 2, 64, 24, hidden_dropout_prob=0.0, attention="flash_varlen")


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


@pytest.fixture
def aot_eager() -> Iterator[None]:
    """Return a compiler that traces and differentiates, but makes no kernels."""
    with gpu_branches("aot_eager"):
        yield


@pytest.mark.usefixtures("aot_eager")
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
