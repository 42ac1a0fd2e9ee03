"""What the project runs on a GPU, run on the CPU with numbers: for the compiler, and for several processes.

Each place in the project that asks whether a tensor lies on a GPU is told so. It changes torch for good: for a process
of its own.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from pipeline_src.base.registry import member_module, member_names
from pipeline_src.model import attention, bert, losses
from pipeline_src.model.bert import compile_parts
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.training.distributed import Distributed, init_distributed
from pipeline_src.training.trainer import CurveLogger
from tests.flash_on_cpu import flash_on_cpu
from tests.unit.pretrain.small import AfterStep
from tests.unit.training.rehearsal import (
    LONGEST,
    make_batch,
    member_of,
    objective_of,
    pretraining_batches,
    rehearsal_trainer,
)

CPU = torch.device("cpu")
KINDS_OF_BLOCKS = {"modernbert": 5}  # blocks that it takes to have one of each kind, where they are not alike
KERNELS = flash_on_cpu()


def take_them(compiler: str = "") -> None:
    """From now on the project's code takes its branches for a GPU, and torch.compile this back end."""
    KERNELS.__enter__()
    attention.choose = lambda *_: "flash_varlen"
    attention.apply_dropout = lambda inner, rate: F.dropout(inner, rate) if rate else inner
    attention.ALWAYS_MASKED = {"cuda", "cpu"}
    if "deberta" in member_names("models"):
        deberta = importlib.import_module(member_module("models", "deberta"))
        deberta.apply_dropout = attention.apply_dropout
        deberta.disentangled_grouped = deberta.disentangled_padded
    bert.sampled_cross_entropy = sample_of_all
    bert.linear_cross_entropy = lambda hidden, weight, bias, labels: losses.summed_cross_entropy(
        losses.aligned_logits(hidden, weight, bias), labels
    )
    if compiler:
        from torch._dynamo.variables import constant, tensor

        torch.compile = partial(torch.compile, backend=compiler)
        tensor.TensorVariable.method_attr_is_cuda = lambda self, tx: constant.ConstantVariable.create(True)


def sample_of_all(hidden: Any, weight: Any, bias: Any, labels: Any, draws: Any) -> tuple[Any, ...]:
    """As the project samples on a GPU: of all scores at once."""
    scores = losses.aligned_logits(hidden, weight, bias)
    with torch.no_grad():
        sampled = losses.sample_tokens(scores.float().softmax(1), draws)
    return *losses.summed_cross_entropy(scores, labels), sampled


def count_graphs() -> None:
    """A program: compile as the stage does and take steps; print which code was compiled, graphs by step, and breaks.

    Its arguments are the number of batches; torch.compile's back end; and an objective and an architecture, or nothing
    or ``activation_checkpointing`` for masked words and BERT. Batches are of other sizes each; then come the edges:
    every sequence full, one sequence alone, and one of which a single token is predicted; and at last batches without
    training.
    """
    from torch._dynamo.utils import counters, get_compilation_metrics

    _, batches, compiler, *of = sys.argv
    take_them(compiler)
    if len(of) == 2:
        objective = member_of(*of, KINDS_OF_BLOCKS.get(of[1], 2))()
    else:
        objective = objective_of(
            "mlm", attention="flash_varlen", activation_checkpointing=of == ["activation_checkpointing"]
        )()
    objective.init_weights(torch.Generator().manual_seed(0))
    compile_parts(objective)
    process, graphs = Distributed(0, 1, CPU, torch.bfloat16), []
    trainer = rehearsal_trainer(objective, process)
    edges = [[make_batch(np.random.default_rng(1), np.array(lengths))] for lengths in ([LONGEST] * 4, [30], [6])]
    trainer.callbacks = [AfterStep(lambda step: graphs.append(counters["stats"]["unique_graphs"]))]
    trainer.run([*pretraining_batches(int(batches)), *edges])
    objective.eval()
    with torch.no_grad(), process.autocast():
        for batch in (*next(pretraining_batches(1, seed=2)), *edges[1]):
            objective(batch)
    seen = get_compilation_metrics()
    parts = {f"line {each.co_firstlineno} of {each.co_filename}" for each in seen if each.co_name}
    refused = [each.fail_reason for each in seen if each.fail_reason]
    counted = {"parts": sorted(parts), "graphs": graphs, "breaks": counters["graph_break"], "refused": refused}
    print(json.dumps(counted))


def train_together() -> None:
    """A program: two steps among the processes that the environment names; print the loss of the second.

    With a back end of torch.compile as its argument the objective is compiled first. Its gradients fill more than the
    first bucket that is exchanged, which is one of 1 MB.
    """
    compiler = "".join(sys.argv[1:])
    take_them(compiler)
    objective = objective_of("mlm", attention="flash_varlen", hidden_dropout_prob=0.0, vocab_size=8_000)()
    objective.init_weights(torch.Generator().manual_seed(0))
    if compiler:
        compile_parts(objective)
    with init_distributed("bfloat16") as distributed:
        trainer = rehearsal_trainer(objective, distributed)
        trainer.callbacks = [CurveLogger([1], 2)]
        trainer.run(shared_batches(distributed))
        print(json.dumps(trainer.state.curve[-1]))


def shared_batches(distributed: Distributed) -> Iterator[list[TensorBatch]]:
    """Each process's sequences of two batches; one process alone has them all, in as many pieces."""
    for seed in range(2):
        pieces = [make_batch(np.random.default_rng(seed), np.array(each)) for each in ([60, 64, 20], [64, 33, 62, 9])]
        yield pieces[distributed.rank :: distributed.world_size]
