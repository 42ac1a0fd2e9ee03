"""Microbatches of fixed capacity on a pretended GPU and in the compiler; the functions at the end are programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.model.bert import compile_parts, load_architecture
from pipeline_src.pretrain.capacity import Capacity
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.pretrain.objective import load_objective
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ElectraParams
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.gpu import EAGER_STEPS, CapturedSteps
from tests.unit.pretrain.small import AfterStep
from tests.unit.training.gpu_branches import CPU, take_them
from tests.unit.training.pretended_gpu import GPU, Watch, lend_cuda, pretended, where
from tests.unit.training.rehearsal import ATTENTION, PRECISION, on_gpu, rehearsal_trainer, run_again, take_steps

VOCAB_SIZE, LENGTH, PREDICTED = 200, 32, 5
CAPACITY = Capacity(6, LENGTH, PREDICTED, pad_id=0)
ELECTRA = {  # disc_target and disc_loss_on, of which the paper has ablations
    f"{target}/{positions}": ElectraParams(disc_target=target, disc_loss_on=positions, embeddings="separate")
    for target in ("rtd", "mlm")
    for positions in ("all", "predicted")
}
LENGTHS = {  # of the real sequences of batches that are unlike each other
    "mixed": [32, 31, 8, 30, 32, 29],
    "full": [32] * 6,
    "a short one alone": [4],
    "a long one alone": [32],
    "fewer": [20, 3, 32],
    "all short": [2, 3, 4, 2, 3, 4],
}


def make_batch(rng: np.random.Generator, lengths: list[int], counts: list[int] | None = None) -> TensorBatch:
    """Sequences of these lengths and numbers of predicted tokens, by default 15 % of them."""
    counts = counts or [max(1, round(0.15 * length)) for length in lengths]
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    positions = [
        start + np.sort(rng.permutation(length)[:count])
        for start, length, count in zip(cu_seqlens, lengths, counts, strict=False)
    ]
    ids, predicted = rng.integers(5, VOCAB_SIZE, cu_seqlens[-1]), np.concatenate(positions).astype(np.int64)
    segments, pairs = rng.integers(0, 2, len(ids)), rng.integers(0, 2, len(lengths))
    labels, noise = rng.integers(5, VOCAB_SIZE, len(predicted)), rng.random(len(predicted), dtype=np.float32)
    examples = np.arange(len(lengths))
    return TensorBatch.of(PretrainingBatch(ids, segments, cu_seqlens, predicted, labels, pairs, examples, noise))


def objective_of(name: str, architecture: str, attention: str, variant: str = "", **changes: Any) -> Callable[[], Any]:
    """Makes an objective of pretraining on a small encoder; ``variant`` is a key of ELECTRA."""
    kind, member = load_objective(name), load_architecture(architecture)
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    params = ModelParams(architecture=architecture, **sizes | {"max_position_embeddings": 2 * LENGTH} | changes)
    config = member.config.from_params(params, VOCAB_SIZE, kind.spec.causal, attention=attention)
    return lambda: kind(config, "nsp", ELECTRA.get(variant))


class Shapes(Watch):
    """Lists each operator on the GPU with the shapes of its tensors, by step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[str]] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operator itself, listed."""
        out = super().__torch_dispatch__(operator, types, args, kwargs)
        tensors = [part for part in torch.utils._pytree.tree_leaves((args, kwargs, out)) if isinstance(part, Tensor)]
        if self.steps and any(part.device.type == GPU.type for part in tensors):
            self.steps[-1].append(f"{operator} {[list(part.shape) for part in tensors]}")
        return out


def operators() -> None:
    """A program: train on batches that are unlike each other; print what was seen of each case.

    Its arguments are objectives and architectures, and what of ELECTRA, as ``electra,bert,rtd/all``. The first of them
    is trained without padding too, and in the captured form.
    """
    lend_cuda()
    cases = [case.split(",") for case in sys.argv[1:]]
    runs = [(cases[0], None, False), *((case, CAPACITY, False) for case in cases), (cases[0], CAPACITY, True)]
    for case, capacity, is_captured in runs:
        with pretended(), Shapes() as watch:
            try:
                name, architecture, *variant = case
                objective = on_gpu(objective_of(name, architecture, ATTENTION, *variant))
                trainer = rehearsal_trainer(objective, Distributed(0, 1, GPU, PRECISION))
                watch.seen.waits.clear()
                if is_captured:
                    CapturedSteps(trainer, run_again)
                take_steps(trainer, unlike_batches(capacity, watch.steps))
            except Exception as error:
                watch.seen.refused.append(f"{type(error).__name__}: {str(error).splitlines()[0]} at {where(error)}")
        # a first step makes moments too; of captured ones, the first replays
        first, *later = watch.steps[EAGER_STEPS + 1 if is_captured else 1 :]
        same, seen = [step == first for step in later], watch.seen
        wrong = [*seen.waits, *seen.types, *seen.refused]
        print(json.dumps({"case": case, "same": same, "operators": len(first), "wrong": wrong}), flush=True)


def unlike_batches(capacity: Capacity | None, steps: list[list[str]] | None = None) -> Iterator[list[TensorBatch]]:
    """A batch of mixed lengths, and then one of each of LENGTHS; ``steps`` gets a list as each is asked for."""
    rng = np.random.default_rng(0)
    for lengths in (LENGTHS["mixed"], *LENGTHS.values()):
        if steps is not None:
            steps.append([])
        batch = make_batch(rng, lengths)
        yield [batch if capacity is None else capacity.pad(batch)]


def count_graphs() -> None:
    """A program: compile as the stage does, train on batches that are unlike each other; print graphs by step.

    Its arguments are those of :func:`operators`, of a single case.
    """
    from torch._dynamo.utils import counters

    take_them("eager")
    name, architecture, *variant = sys.argv[1].split(",")
    objective = objective_of(name, architecture, ATTENTION, *variant)()
    objective.init_weights(torch.Generator().manual_seed(0))
    compile_parts(objective)
    graphs: list[int] = []
    trainer = rehearsal_trainer(objective, Distributed(0, 1, CPU, torch.bfloat16))
    trainer.callbacks = [AfterStep(lambda step: graphs.append(counters["stats"]["unique_graphs"]))]
    trainer.run(islice(unlike_batches(CAPACITY), 1, None))
    print(json.dumps({"graphs": graphs, "breaks": counters["graph_break"]}))
