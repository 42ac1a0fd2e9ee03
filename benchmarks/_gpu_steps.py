"""Pieces of benchmark ``gpu`` on random text: rates by variant, and transformers in turn.

``VARIANTS`` are the ways to take a step. Another one is one entry: what it changes of a trainer that has taken no step,
and the settings of ``machine.yaml`` that make the stage train like that.
"""

from __future__ import annotations

import functools
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch

from benchmarks._gpu_session import Session
from benchmarks._pretrain_sides import (
    COMPILED,
    ENTRIES,
    MASK_PROB,
    SDPA,
    SIDES,
    Batch,
    Side,
    loss_of,
    make_benchmark_trainer,
    memory,
    ours_objective,
    process_on,
    random_examples,
)
from pipeline_src.model.bert import BertConfig, compile_parts, load_architecture
from pipeline_src.model.flops import Workload
from pipeline_src.pretrain.capacity import Capacity
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.study.model import ModelParams
from pipeline_src.training.batches import to_device, transfer
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.gpu import CapturedSteps
from pipeline_src.training.optimizers import Muon
from pipeline_src.training.throughput import compilations, peak_flops
from pipeline_src.training.trainer import Trainer

DISTINCT = 32  # batches, taken in turn
QUIET, MOST_WARM_UP = 5, 40  # steps without the compiler before any is timed; steps until they are timed in any case
BLOCK = 5  # steps of one side before the other's turn


# prepares a trainer that has taken no step; returns the batches, on the host, to train on instead of those given
Change = Callable[[Trainer[TensorBatch], list[TensorBatch]], list[TensorBatch]]


class Variant(NamedTuple):
    """A way to take a step.

    Attributes:
        change: prepares trainer and batches.
        machine: keys of machine.yaml with which the stage does the same; those of ``pretrain`` in a map of their own.
        shapes: where it is measured.
    """

    change: Change
    machine: Mapping[str, Any]
    shapes: tuple[str, ...] = ("mini", "8x512", "base", "large")


SMALL, LARGE = ("mini", "8x512"), ("base", "large")


def _variant(
    compiled: bool = False,
    padded: bool = False,
    captured: bool = False,
    shapes: tuple[str, ...] = (*SMALL, *LARGE),
) -> Variant:
    def change(trainer: Trainer[TensorBatch], batches: list[TensorBatch]) -> list[TensorBatch]:
        if compiled:
            compile_parts(trainer.objective)
            if isinstance(trainer.optimizer, Muon):
                trainer.optimizer.compile()
        if trainer.distributed.device.type == "cpu":  # whose losses take no filler, and which has no graphs
            return batches
        if captured:
            CapturedSteps(trainer)
        return _padded(batches) if padded else batches

    settings = {"fixed_capacity": padded, "capture": captured}
    return Variant(change, {"compile": compiled, "pretrain": settings}, shapes)


def _padded(batches: list[TensorBatch]) -> list[TensorBatch]:
    length, rows = max(batch.max_seqlen for batch in batches), max(batch.max_outputs for batch in batches)
    capacity = Capacity(len(batches[0].pair_label), length, rows - 1, pad_id=0)  # a sequence's first token is a row too
    return [capacity.pad(batch) for batch in batches]


# in the order in which they are measured: the first one at all shapes, then the next
VARIANTS: dict[str, Variant] = {
    "eager": _variant(),
    "captured": _variant(padded=True, captured=True, shapes=SMALL),
    "compiled": _variant(compiled=True),  # took 36 s to compile for Mini on an H100's host
    "compiled, captured": _variant(compiled=True, padded=True, captured=True, shapes=(*SMALL, "base")),
    "compiled, fixed capacity": _variant(compiled=True, padded=True, shapes=LARGE),
    "fixed capacity": _variant(padded=True, shapes=("base",)),
}


class Shape(NamedTuple):
    """A model and its batches."""

    architecture: str
    layers: int
    width: int
    sequences: int
    length: int
    optimizer: str
    dropout: float
    entries: int
    mask_prob: float

    def config(self) -> BertConfig:
        """Return the encoder's config."""
        params = ModelParams(
            architecture=self.architecture, num_hidden_layers=self.layers, hidden_size=self.width,
            hidden_dropout_prob=self.dropout,
        )  # fmt: skip
        return load_architecture(self.architecture).config.from_params(params, self.entries)

    def examples(self, count: int) -> list[PretrainingBatch]:
        """Return the first batches of random text."""
        return list(random_examples(self.length, self.sequences, count, self.entries, self.mask_prob))


# the recipes of the preset `evening` for the small ones, the paper's for the others
SHAPES = {
    "mini": Shape("modernbert", 4, 256, 32, 128, "muon", 0.0, 8_192, 0.3),
    "8x512": Shape("modernbert", 8, 512, 256, 128, "muon", 0.0, 8_192, 0.3),
    "base": Shape("bert", 12, 768, 256, 128, "adamw", 0.1, ENTRIES, MASK_PROB),
    "large": Shape("bert", 24, 1024, 256, 128, "adamw", 0.1, ENTRIES, MASK_PROB),
}
PEERS = (("base", SDPA), ("mini", SDPA), ("base", COMPILED), ("mini", COMPILED))


def shapes(rehearsal: bool) -> dict[str, Shape]:
    """Return the shapes; in a rehearsal models of a layer on four short sequences."""
    if not rehearsal:
        return SHAPES
    return {
        name: shape._replace(layers=1, width=64, sequences=4, length=32, entries=1_000)
        for name, shape in SHAPES.items()
    }


def fastest(results: Mapping[str, Any], shape: str) -> str:
    """Return the variant with the highest rate at a shape, from the cells of piece ``rates``; else the first one."""
    measured = {
        cell["variant"]: cell["tokens_per_s"]
        for cell in results.values()
        if cell.get("shape") == shape and "tokens_per_s" in cell and cell["variant"] in VARIANTS
    }
    return max(measured, key=measured.__getitem__) if measured else next(iter(VARIANTS))


def rates(session: Session) -> None:
    """Steps of every variant at its shapes."""
    process, seconds = _process(session), 0.2 if session.rehearsal else 2.0
    for variant in VARIANTS:
        for name in VARIANTS[variant].shapes:
            measure = partial(measure_rate, shapes(session.rehearsal)[name], variant, process, seconds)
            session.cell(f"{name}, {variant}", measure, shape=name, variant=variant)


def transformers(session: Session) -> None:
    """Training steps next to transformers' model: same weights, text, optimizer; blocks of steps in turn."""
    process, blocks = _process(session), 2 if session.rehearsal else 8
    for name, peer in PEERS:
        variant = fastest(session.cells_of("rates"), name)
        measure = partial(measure_against, shapes(session.rehearsal)[name], variant, peer, process, blocks)
        session.cell(f"{name}, {peer}", measure, shape=name, variant=variant)


@contextmanager
def trainer_of(shape: Shape, variant: str, process: Distributed) -> Iterator[tuple[Trainer[Any], Callable[[], int]]]:
    """A trainer, and what takes its next step with a batch from the host and returns the batch's real tokens."""
    objective = ours_objective(shape.config()).to(process.device)
    trainer = make_benchmark_trainer(objective, process, shape.optimizer)
    batches = [TensorBatch.of(batch) for batch in shape.examples(DISTINCT)]
    tokens = itertools.cycle([batch.workload.tokens for batch in batches])
    changed = VARIANTS[variant].change(trainer, batches)
    coming = transfer(([batch] for batch in itertools.cycle(changed)), process.device)

    def step() -> int:
        trainer.train_step(next(coming))
        return next(tokens)

    try:
        yield trainer, step
    finally:
        coming.close()  # type: ignore[attr-defined]  # ends its thread
        _forget(process.device)


def measure_rate(shape: Shape, variant: str, process: Distributed, seconds: float) -> dict[str, Any]:
    """Rates of steps taken for some seconds, after those in which anything is compiled or captured."""
    device = process.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with trainer_of(shape, variant, process) as (trainer, step):
        began, taken = time.perf_counter(), _warm_up(step)
        _wait(device)
        warm_up, graphs = time.perf_counter() - began, compilations()
        steps = tokens = 0
        began = time.perf_counter()
        while steps < QUIET or time.perf_counter() - began < seconds:
            tokens += step()
            steps += 1
        _wait(device)
        took = time.perf_counter() - began
        trainer.check_losses()
        return {
            "steps_per_s": round(steps / took, 3),
            "tokens_per_s": round(tokens / took, 1),
            "mfu": round(tokens / took * _flops_per_token(shape) / peak_flops(device, process.precision).flops, 5),
            "peak_mb": round(_peak_memory(device) / 1e6),
            "steps": steps,
            "warm_up_steps": taken,
            "warm_up_seconds": round(warm_up, 2),
            "compiled_while_timed": compilations() - graphs,
            "mean_loss": round(float(trainer.state.sums["loss"]) / trainer.state.summed_steps, 4),
        }


def measure_against(shape: Shape, variant: str, peer: str, process: Distributed, blocks: int) -> dict[str, Any]:
    """Rates of this project's step and of transformers', on the same padded or flat batches."""
    device, config = process.device, shape.config()
    examples = shape.examples(MOST_WARM_UP + blocks * BLOCK)
    batches = [Batch.of(batch, device) for batch in examples]
    makers: dict[str, Callable[[], Side]] = {
        f"ours, {variant}": lambda: _our_side(shape, variant, examples, process),
        peer: lambda: SIDES[peer](config, batches, process),
    }
    sides, losses, rows = {}, {}, {}
    for name, make in makers.items():
        before = torch.cuda.memory_allocated() if device.type == "cuda" else memory("VmRSS")
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        side = sides[name] = make()
        losses[name] = side.loss(batches[0])
        began, steps = time.perf_counter(), iter(batches)
        taken = _warm_up(lambda side=side, steps=steps: (side.step(), next(steps).tokens)[1])  # type: ignore[misc]
        _wait(device)
        rows[name] = {
            "of_training_mb": round((_peak_memory(device) - before) / 1e6),
            "warm_up_steps": taken,
            "warm_up_seconds": round(time.perf_counter() - began, 2),
        }
    positions = {name: rows[name]["warm_up_steps"] for name in sides}
    seconds: dict[str, list[float]] = {name: [] for name in sides}  # for a token, of each block
    for turn in range(blocks):
        for name in sides if turn % 2 else reversed(sides):
            tokens = sum(batch.tokens for batch in batches[int(positions[name]) :][:BLOCK])
            positions[name] += BLOCK
            _wait(device)
            began = time.perf_counter()
            for _ in range(BLOCK):
                sides[name].step()
            _wait(device)
            seconds[name].append((time.perf_counter() - began) / tokens)
    peak, flops = peak_flops(device, process.precision).flops, _flops_per_token(shape)
    for name, row in rows.items():
        rate = 1 / statistics.median(seconds[name])
        row |= {"tokens_per_s": round(rate, 1), "mfu": round(rate * flops / peak, 5)}
    ours, peers = (row["tokens_per_s"] for row in rows.values())
    del sides, makers
    _forget(device)
    return {"ratio": round(ours / peers, 3), "loss_without_dropout": losses, "sides": rows}


def _our_side(shape: Shape, variant: str, examples: list[PretrainingBatch], process: Distributed) -> Side:
    """A variant, on batches that are on the GPU beforehand, as the peer's are."""
    objective = ours_objective(shape.config()).to(process.device)
    trainer = make_benchmark_trainer(objective, process)
    changed = VARIANTS[variant].change(trainer, [TensorBatch.of(batch) for batch in examples])
    coming = transfer(([batch] for batch in [to_device(batch, process.device) for batch in changed]), process.device)
    return Side(lambda: trainer.train_step(next(coming)), lambda batch: loss_of(objective, batch, process))


def _process(session: Session) -> Distributed:
    if session.rehearsal:
        torch.compiler.set_stance("force_eager")  # compiling tiny models for a CPU takes a minute
    return process_on("cpu", "bfloat16") if session.rehearsal else process_on("cuda")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _forget(device: torch.device) -> None:
    """Free what the last cell held and compiled."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _warm_up(step: Callable[[], int]) -> int:
    """Take steps until the compiler has been quiet for some; return how many."""
    quiet = 0
    for taken in range(1, MOST_WARM_UP + 1):
        graphs = compilations()
        step()
        quiet = quiet + 1 if compilations() == graphs else 0
        if quiet == QUIET:
            return taken
    return MOST_WARM_UP


def _flops_per_token(shape: Shape) -> float:
    work = functools.reduce(Workload.__add__, (TensorBatch.of(batch).workload for batch in shape.examples(DISTINCT)))
    return shape.config().training_flops(work) / work.tokens


def _peak_memory(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else memory("VmHWM")
