"""What the project runs on a GPU, run on the CPU with numbers: for the compiler, and for several processes.

Flash attention's operators get kernels of their own, by definition and in no hurry, and each place in the project that
asks whether a tensor lies on a GPU is told so. It changes torch for good: for a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.models import attention, dropout, heads, linear_cross_entropy
from pipeline_src.models.compiling import compile_parts
from pipeline_src.pretraining.tensor_batch import TensorBatch
from pipeline_src.training.distributed import Distributed, init_distributed
from pipeline_src.training.optimiser import make_optimiser
from tests.unit.training.rehearsal import LONGEST, make_batch, make_loop, objective_of, pretraining_batches

CPU = torch.device("cpu")
LIBRARY = torch.library.Library("aten", "IMPL")


class Head(NamedTuple):
    """Attention of one sequence: its tokens, q, k, v [heads, length, size], weights, and dropout's factors on these."""

    tokens: slice
    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor
    kept: Tensor
    sums: Tensor


def sequences(flat: tuple[Tensor, ...], places: Tensor, rate: float, causal: bool, seed: Tensor) -> Iterator[Head]:
    """The sequences of a batch, one by one; the same seed draws the same dropout."""
    draw = torch.Generator().manual_seed(int(seed[0]))
    for first, last in zip(places[:-1].tolist(), places[1:].tolist(), strict=True):
        query, key, value = (part[first:last].transpose(0, 1).float() for part in flat)
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if causal:
            scores += torch.full(scores.shape[1:], -torch.inf).triu(1)
        kept = (torch.rand(scores.shape, generator=draw) >= rate) / (1 - rate)
        yield Head(slice(first, last), query, key, value, scores.softmax(-1), kept, scores.logsumexp(-1))


def forward(
    query: Tensor, key: Tensor, value: Tensor, places: Tensor, places_k: Tensor, longest: int, longest_k: int,
    rate: float, causal: bool, debug: bool, **_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """As ``aten::_flash_attention_forward``: context, sums of weights, what draws dropout, two that nobody reads."""
    for part in (query, key, value):
        assert part.dtype in (torch.bfloat16, torch.float16), part.dtype
    assert places.dtype == torch.int32, places.dtype
    assert longest == int(places.diff().max()), (longest, places)
    seed = torch.randint(1 << 31, (2,)).to(torch.uint64)
    context, sums = torch.empty_like(query), query.new_empty(query.shape[1], len(query), dtype=torch.float32)
    for head in sequences((query, key, value), places, rate, causal, seed):
        context[head.tokens] = (head.weights * head.kept @ head.value).transpose(0, 1).to(context.dtype)
        sums[:, head.tokens] = head.sums
    return context, sums, seed, torch.empty((), dtype=torch.uint64), torch.empty(0, dtype=query.dtype)


def backward(
    of_context: Tensor, query: Tensor, key: Tensor, value: Tensor, context: Tensor, sums: Tensor, places: Tensor,
    places_k: Tensor, longest: int, longest_k: int, rate: float, causal: bool, seed: Tensor, unused: Tensor, **_: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, key and value."""
    gradients = tuple(torch.empty_like(part) for part in (query, key, value))
    for head in sequences((query, key, value), places, rate, causal, seed):
        of_output = of_context[head.tokens].transpose(0, 1).float()
        of_weights = of_output @ head.value.mT * head.kept
        of_scores = head.weights * (of_weights - (of_weights * head.weights).sum(-1, keepdim=True))
        of_scores *= head.query.shape[-1] ** -0.5
        parts = of_scores @ head.key, of_scores.mT @ head.query, (head.weights * head.kept).mT @ of_output
        for gradient, part in zip(gradients, parts, strict=True):
            gradient[head.tokens] = part.transpose(0, 1).to(gradient.dtype)
    return gradients


def take_them(compiler: str = "") -> None:
    """From now on the project's code takes its branches for a GPU, and torch.compile this back end."""
    LIBRARY.impl("_flash_attention_forward", forward, "CPU")
    LIBRARY.impl("_flash_attention_backward", backward, "CPU")
    attention.choose = lambda *_: "flash"
    dropout.dropout = attention.drop = lambda inner, rate: F.dropout(inner, rate) if rate else inner
    heads.linear_cross_entropy = lambda hidden, weight, bias, labels: linear_cross_entropy.summed_cross_entropy(
        linear_cross_entropy.aligned_scores(hidden, weight, bias), labels
    )
    real = torch.autocast

    class InBfloat16(real):  # type: ignore[misc, valid-type]
        """Where the loop asks for it, though the device is no GPU."""

        def __init__(self, kind: str, dtype: Any = None, enabled: bool = True, **more: Any) -> None:
            super().__init__(kind, dtype, enabled or dtype == torch.bfloat16, **more)

    torch.autocast = InBfloat16  # type: ignore[misc]
    if compiler:
        from torch._dynamo.variables import constant, tensor

        torch.compile = partial(torch.compile, backend=compiler)
        tensor.TensorVariable.method_attr_is_cuda = lambda self, tx: constant.ConstantVariable.create(True)


def count_graphs() -> None:
    """A program: compile as the stage does and take steps; print how many graphs and breaks there were after which.

    Fifty batches of other sizes each, then the edges: every sequence full, and one sequence alone.
    """
    from torch._dynamo.utils import counters

    take_them("aot_eager")
    objective = objective_of("masked", attention="flash", recompute="recompute" in sys.argv)()
    objective.draw_weights(torch.Generator().manual_seed(0))
    compile_parts(objective)
    loop, graphs = make_loop(objective, make_optimiser(objective, 1e-3, 0.01), Distributed(0, 1, CPU)), []
    edges = [[make_batch(np.random.default_rng(1), np.full(4, LONGEST))]]
    edges.append([make_batch(np.random.default_rng(1), np.array([30]))])
    for _ in loop.run([*pretraining_batches(50), *edges]):
        graphs.append(counters["stats"]["unique_graphs"])
    print(json.dumps({"graphs": graphs, "breaks": counters["graph_break"]}))


def train_together() -> None:
    """A program: two steps among the processes that the environment names; print the loss of the second.

    With a back end of torch.compile as its argument the objective is compiled first. Its gradients fill more than the
    first bucket that is exchanged, which is one of 1 MB.
    """
    compiler = "".join(sys.argv[1:])
    take_them(compiler)
    objective = objective_of("masked", attention="flash", hidden_dropout_prob=0.0, vocab_size=8_000)()
    objective.draw_weights(torch.Generator().manual_seed(0))
    if compiler:
        compile_parts(objective)
    with init_distributed() as distributed:
        loop = make_loop(objective, make_optimiser(objective, 1e-3, 0.01), distributed)
        loop.last = 2
        for _ in loop.run(shared_batches(distributed)):
            pass
        print(json.dumps(loop.rows[-1]))


def shared_batches(distributed: Distributed) -> Iterator[list[TensorBatch]]:
    """Each process's sequences of two batches; one process alone has them all, in as many pieces."""
    for seed in range(2):
        pieces = [make_batch(np.random.default_rng(seed), np.array(each)) for each in ([60, 64, 20], [64, 33, 62, 9])]
        yield pieces[distributed.rank :: distributed.world_size]
