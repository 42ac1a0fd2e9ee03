"""The parts of a model to the compiler, with the branches of a GPU on the CPU: few graphs, whatever the batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from pipeline_src.models import bert
from pipeline_src.models.bert import BertConfig, BertForPretraining, compile_parts, initialise
from pipeline_src.models.losses import aligned_logits, summed_cross_entropy
from tests.flash_on_cpu import flash_on_cpu

ENTRIES, LONGEST = 90, 24
CONFIG = BertConfig(ENTRIES, 32, 2, 2, 64, LONGEST, attention="flash_varlen")
Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, int]


@pytest.fixture(autouse=True)
def gpu_branches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Flash attention, the loss over aligned scores; the compiler traces and differentiates, and makes no kernels."""
    monkeypatch.setattr(bert, "linear_cross_entropy", gpu_cross_entropy)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    counters.clear()
    with flash_on_cpu():
        yield
    torch._dynamo.reset()


def gpu_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return summed_cross_entropy(aligned_logits(hidden, weight, bias), labels)


def make_batch(rng: np.random.Generator, lengths: np.ndarray) -> Batch:
    tokens = int(lengths.sum())
    predicted = np.sort(rng.choice(tokens, max(1, round(0.15 * tokens)), replace=False))
    arrays = (
        rng.integers(5, ENTRIES, tokens), rng.integers(0, 2, tokens), np.concatenate([[0], np.cumsum(lengths)]),
        predicted, rng.integers(5, ENTRIES, len(predicted)),
    )  # fmt: skip
    return *map(torch.from_numpy, arrays), int(lengths.max())


def batches(count: int) -> Iterator[Batch]:
    """So many of a study, most of their sequences nearly full; then five at the edges."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        sequences = int(rng.integers(3, 9))
        nearly_full = LONGEST - rng.integers(0, 3, sequences)
        yield make_batch(rng, np.where(rng.random(sequences) < 0.3, rng.integers(8, LONGEST, sequences), nearly_full))
    yield make_batch(rng, np.full(4, LONGEST))  # no padding anywhere
    yield make_batch(rng, np.full(4, 9))
    yield make_batch(rng, np.array([LONGEST]))  # one sequence alone
    yield make_batch(rng, np.array([9]))
    yield make_batch(rng, np.array([6]))  # with one prediction


def build(config: BertConfig) -> BertForPretraining:
    model = BertForPretraining(config)
    initialise(model, torch.Generator().manual_seed(1))
    return model.train()


def step(model: BertForPretraining, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    """A loss and its gradients, as the objective has them."""
    ids, segments, cu_seqlens, predicted, labels, longest = batch
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, pooled = model.bert(ids, segments, cu_seqlens, longest)
        loss, _ = model.cls["predictions"].loss(hidden.index_select(0, predicted), labels)
        loss = loss + model.cls["seq_relationship"](pooled).float().square().sum()
    return loss, list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize(
    ("activation_checkpointing", "count"),
    [(False, 50), pytest.param(True, 5, marks=pytest.mark.slow)],
    ids=["kept", "recomputed"],
)
def test_compile_parts_three_graphs_serve_all_batches(activation_checkpointing, count):
    config = replace(
        CONFIG,
        activation_checkpointing=activation_checkpointing,
        attention_probs_dropout_prob=0.1,
        hidden_dropout_prob=0.0,
    )
    eager, compiled = build(config), build(config)
    compile_parts(compiled)
    graphs = []
    for number, batch in enumerate(batches(count)):
        loss, gradients = step(compiled, batch)
        graphs.append(counters["stats"]["unique_graphs"])
        if number in (0, count - 1, count, count + 2):
            expected, others = step(eager, batch)
            torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
            for one, two in zip(gradients, others, strict=True):
                torch.testing.assert_close(one, two, rtol=2e-2, atol=2e-2)
    assert not counters["graph_break"]
    assert graphs[0] == graphs[-6] == 3, graphs
    assert graphs[-1] == 4, graphs  # one more, of the loss over a single prediction


def test_compile_parts_keeps_parameter_names():
    plain, compiled = build(CONFIG), build(CONFIG)
    compile_parts(compiled)
    assert list(compiled.state_dict()) == list(plain.state_dict())
