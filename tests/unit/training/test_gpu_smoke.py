"""Training steps on a fake GPU, and compiled steps on the CPU with the code paths of a GPU."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_src.base.registry import architecture_spec, member_names, objective_spec
from pipeline_src.finetune.heads import LOSSES, BertForTask
from pipeline_src.finetune.task_data import training_batches
from pipeline_src.finetune.task_trainer import TaskObjective
from pipeline_src.model.bert import BertConfig, compile_parts
from pipeline_src.pretrain.capacity import Capacity
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.mlm import BertObjective
from pipeline_src.tasks.features import Features, TokenFeatures
from pipeline_src.training.distributed import Distributed, init_distributed
from pipeline_src.training.gpu import EAGER_STEPS, CapturedSteps
from pipeline_src.training.trainer import CurveLogger, LossTerm
from tests.children import Child
from tests.unit.pretrain.small import AfterStep
from tests.unit.training.fake_gpu import (
    CAPACITY,
    ELECTRA,
    HALF,
    LENGTH,
    LENGTHS,
    VOCAB_SIZE,
    gpu_branches,
    make_batch,
    objective_of,
    run_again,
    step_on_fake_gpu,
    trainer_of,
)

pytestmark = pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build asks for its driver")
# Kind of head and number of outputs.
HEADS = {"sequence": 3, "choice": 1, "span": 2, "token": 5}


def cases() -> Iterator[tuple[str, ...]]:
    """Yield every objective, every architecture, and the variants of ELECTRA."""
    for architecture in member_names("models"):
        spec = architecture_spec(architecture)
        names = [name for name in member_names("objectives") if not objective_spec(name).needs_teacher]
        only = {name: objective_spec(name).only_architectures for name in names}
        taken = [name for name in names if name not in spec.refused_objectives]
        taken = [name for name in taken if not only[name] or architecture in only[name]]
        yield ("mlm" if "mlm" in taken else taken[0], architecture)
    yield ("clm", "bert")
    yield from ((name, "bert") for name in member_names("objectives") if objective_spec(name).needs_teacher)
    yield from (("electra", "bert", variant) for variant in ELECTRA)


CASES = sorted(set(cases()))


def batches(capacity: Capacity | None = None) -> list[list[TensorBatch]]:
    rng = np.random.default_rng(0)
    made = [make_batch(rng, lengths) for lengths in (LENGTHS[0], *LENGTHS)]
    return [[batch if capacity is None else capacity.pad(batch)] for batch in made]


@pytest.mark.parametrize("case", CASES, ids=",".join)
def test_gpu_step_with_fixed_capacity_has_constant_shapes_and_no_synchronisation(case):
    make = objective_of(*case)
    watch, unpadded = step_on_fake_gpu(make, batches()[1:3])
    assert not watch.waits and not watch.wrong and unpadded[0] != unpadded[1]
    if not objective_spec(case[0]).fixed_capacity:
        return
    # The first step makes the moments too.
    watch, (_, first, *later) = step_on_fake_gpu(make, batches(CAPACITY))
    assert all(step == first for step in later) and len(first) > 100
    assert not watch.waits and not watch.wrong


def test_gpu_captured_step_replays_constant_shapes():
    _, steps = step_on_fake_gpu(
        objective_of("mlm"), batches(CAPACITY), prepare=lambda trainer: CapturedSteps(trainer, run_again)
    )
    # The first captured step replays, and is captured before.
    first, *later = steps[EAGER_STEPS + 1 :]
    assert later and all(step == first for step in later)


def test_gpu_step_fuses_projections_aligns_head_and_attends_in_half_precision():
    watch, (step,) = step_on_fake_gpu(objective_of("mlm"), [[make_batch(np.random.default_rng(0), [10, 20], [2, 3])]])
    products = {tuple(shapes[-1]) for name, shapes in step if name == "addmm.default"}
    # Query, key and value of 30 tokens in one product; 200 entries of the vocabulary made 256.
    assert (30, 96) in products and (5, 256) in products
    flash = [shapes for name, shapes in step if name.startswith("_flash_attention_forward")]
    assert len(flash) == 2 and torch.bfloat16 in watch.dtypes & HALF


@pytest.mark.parametrize("bilstm", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_gpu_finetuning_step_does_not_synchronise(head, bilstm):
    rng = np.random.default_rng(0)
    per_item = 4 if head == "choice" else 1
    lengths = rng.integers(5, 15, 8 * per_item)
    ids = rng.integers(5, VOCAB_SIZE, lengths.sum()).astype(np.int32)
    labels = {
        "sequence": rng.integers(0, 3, 8),
        "choice": rng.integers(0, 4, 8),
        "span": np.stack([np.zeros_like(lengths), lengths - 1], axis=1),
        "token": rng.integers(0, 5, len(ids)),
    }[head]
    columns = (ids, np.zeros(len(ids), np.int8), np.append(0, lengths.cumsum()), labels, np.arange(8), per_item)
    features = TokenFeatures(*columns, word=np.arange(len(ids))) if head == "token" else Features(*columns)
    config = BertConfig(VOCAB_SIZE, 32, 2, 2, 64, 2 * LENGTH)
    watch, _ = step_on_fake_gpu(
        lambda: TaskObjective(BertForTask(config, head, HEADS[head], bilstm, None), LOSSES[head]),
        training_batches(features, 4, 1, 1, 4 * LENGTH),
    )
    assert not watch.waits and not watch.wrong


MISTAKES = {
    "item": lambda batch, loss: loss.item(),
    "index by a mask": lambda batch, loss: batch.ids[batch.ids > 5],
    "repeat without a size": lambda batch, loss: batch.ids.repeat_interleave(batch.ids),
    "copy to the host": lambda batch, loss: loss.cpu(),
    "number to the GPU": lambda batch, loss: loss + torch.tensor([1.0], device=loss.device),
    "two devices": lambda batch, loss: batch.labels + torch.arange(len(batch.labels)),
    "loss in bfloat16": lambda batch, loss: torch.log_softmax(loss.new_empty(2, 2).bfloat16(), 1, torch.bfloat16),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_fake_gpu_forbidden_operation_is_detected(mistake, monkeypatch):
    forward = BertObjective.forward

    def mistaken(objective: BertObjective, batch: TensorBatch) -> dict[str, LossTerm]:
        terms = forward(objective, batch)
        MISTAKES[mistake](batch, terms["mlm"].loss)
        return terms

    monkeypatch.setattr(BertObjective, "forward", mistaken)
    try:
        watch, _ = step_on_fake_gpu(objective_of("mlm", num_hidden_layers=1), batches()[:1])
    except (RuntimeError, NotImplementedError):
        return
    assert watch.waits or watch.wrong


# Blocks that it takes to have one of each kind, where they are not alike.
NUM_LAYERS = {"modernbert": 5}
COMPILED_CASES = [
    pytest.param(case, capacity, "flash_varlen", marks=() if case == ("mlm", "bert") else pytest.mark.slow)
    for case in CASES
    for capacity in (None, CAPACITY)
    if capacity is None or objective_spec(case[0]).fixed_capacity
]


# The other back end reads the padding mask, which a batch without padding needs too.
@pytest.mark.parametrize(("case", "capacity", "back_end"), [*COMPILED_CASES, (("mlm", "bert"), None, "padded")])
def test_compiled_model_makes_no_new_graphs_after_first_batches(case, capacity, back_end):
    from torch._dynamo.utils import counters

    graphs: list[int] = []
    with gpu_branches("eager"):
        counters.clear()
        objective = objective_of(*case, attention=back_end, num_hidden_layers=NUM_LAYERS.get(case[1], 2))()
        objective.init_weights(torch.Generator().manual_seed(0))
        compile_parts(objective, fixed_shapes=capacity is not None)
        trainer = trainer_of(objective, Distributed(0, 1, torch.device("cpu"), torch.bfloat16))
        trainer.callbacks = [AfterStep(lambda step: graphs.append(counters["stats"]["unique_graphs"]))]
        trainer.run(batches(capacity))
        assert not counters["graph_break"]
    if capacity is not None:
        assert len(set(graphs)) == 1
    else:
        # Later batches are of one sequence, whose size torch compiles separately, or have one prediction.
        assert 0 < graphs[0] == graphs[2] and graphs[-1] <= graphs[0] + 5


def train_together() -> None:
    """Program of one process: take two steps with the others and print the curve's last row.

    Its argument is a back end of torch.compile, or nothing. Gradients fill more than the first bucket of 1 MB.
    """
    compiler = "".join(sys.argv[1:])
    with gpu_branches(compiler), init_distributed("bfloat16") as distributed:
        objective = objective_of("mlm", hidden_size=128, hidden_dropout_prob=0.0, num_hidden_layers=4)()
        objective.init_weights(torch.Generator().manual_seed(0))
        if compiler:
            compile_parts(objective)
        trainer = trainer_of(objective, distributed)
        trainer.callbacks = [CurveLogger([1], 2)]
        pieces = [[make_batch(np.random.default_rng(0), lengths)] for lengths in ([30, 32, 10], [32, 16, 31, 9])]
        own = [piece for (piece,) in pieces[distributed.rank :: distributed.world_size]]
        trainer.run([own, own])
        print(json.dumps(trainer.state.curve[-1]))


def curves(size: int, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = []
    for rank in range(size):
        environment = os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        processes.append(Child(f"{__name__}:train_together", arguments, folder, environment, False))
    texts = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * size, "\n".join(texts)[-4000:]
    return [json.loads(text.splitlines()[-1]) for text in texts]


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=[pytest.mark.slow, needs_compiler])])
def test_compiled_processes_losses_equal_one_eager_process(compiler, tmp_path):
    (alone,) = curves(1, tmp_path)
    for row in curves(2, tmp_path, compiler):
        assert row == pytest.approx(alone, rel=0.01)
