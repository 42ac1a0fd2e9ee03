"""Pieces of benchmark ``gpu`` on random text: the host, the tests of a GPU, rates by variant, a profile, transformers.

``VARIANTS`` are the ways to take a step. Another one is one entry: what it changes of a trainer that has taken no step,
and the settings of ``machine.yaml`` that make the stage train like that.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks._gpu_session import ROOT, Session
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
from pipeline_src.config.model import ModelParams
from pipeline_src.models.bert import BertConfig, compile_parts, load_architecture
from pipeline_src.models.flops import Workload
from pipeline_src.pretraining.capacity import Capacity
from pipeline_src.pretraining.data import PretrainingBatch, TensorBatch
from pipeline_src.training.batches import to_device, transfer
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.gpu import CapturedSteps, CopiedWeights
from pipeline_src.training.optimizers import Muon
from pipeline_src.training.throughput import compilations, measure_matmul, peak_flops
from pipeline_src.training.trainer import Trainer

LAUNCHES = 1_300  # about those of a step of a small model
MATRIX = 8_192  # rows and columns of the product that is timed
SIZES_OF_A_BATCH = (4_000, 4_000, 33, 600, 600, 32, 32, 600, 600)  # elements of the tensors of 32 x 128 tokens
COPIED = 64 << 20  # bytes
DISTINCT = 32  # batches, taken in turn
QUIET, MOST_WARM_UP = 5, 40  # steps without the compiler before any is timed; steps until they are timed in any case
PROFILED_STEPS, SHOWN, NAME = 15, 25, 80
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
    copies: bool = False,
    captured: bool = False,
    shapes: tuple[str, ...] = (*SMALL, *LARGE),
) -> Variant:
    def change(trainer: Trainer[TensorBatch], batches: list[TensorBatch]) -> list[TensorBatch]:
        if compiled:
            compile_parts(trainer.objective)
            if isinstance(trainer.optimizer, Muon):
                trainer.optimizer.compile()
        if copies:
            CopiedWeights(trainer)
        if trainer.distributed.device.type == "cpu":  # whose losses take no filler, and which has no graphs
            return batches
        if captured:
            CapturedSteps(trainer)
        return _padded(batches) if padded else batches

    settings = {"fixed_capacity": padded, "capture": captured, "weight_copies": copies}
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
    "compiled, weight copies": _variant(compiled=True, padded=True, copies=True, shapes=("base",)),
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
PROFILED = ("mini", "8x512")
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


def host(session: Session) -> None:
    """What the host, the bus and the matrix units do by themselves."""
    device = _process(session).device
    session.cell("launches", partial(_time_launches, device))
    session.cell("matrix product", partial(_time_matmul, device, 256 if session.rehearsal else MATRIX))
    session.cell("copies", partial(_time_copies, device, COPIED))


def tests(session: Session) -> None:
    """The tests that only a GPU can run."""
    session.cell("tests/gpu", partial(_run_tests, session.rehearsal))


def rates(session: Session) -> None:
    """Steps of every variant at its shapes."""
    process, seconds = _process(session), 0.2 if session.rehearsal else 2.0
    for variant in VARIANTS:
        for name in VARIANTS[variant].shapes:
            measure = partial(measure_rate, shapes(session.rehearsal)[name], variant, process, seconds)
            session.cell(f"{name}, {variant}", measure, shape=name, variant=variant)


def profile(session: Session) -> None:
    """The dearest operators of small models, by the host's time and the GPU's, and how long the GPU is idle."""
    process, first = _process(session), next(iter(VARIANTS))
    for name in PROFILED:
        for variant in dict.fromkeys((first, fastest(session.cells_of("rates"), name))):
            shape = shapes(session.rehearsal)[name]
            measure = partial(measure_profile, shape, variant, process, 1 if session.rehearsal else 5)
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


def measure_profile(shape: Shape, variant: str, process: Distributed, sampled: int) -> dict[str, Any]:
    """The profile of a few steps, and if py-spy is there, where Python is in others that take ``sampled`` seconds."""
    device = process.device
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with trainer_of(shape, variant, process) as (_, step):
        _warm_up(step)
        _wait(device)
        began = time.perf_counter()
        for _ in range(PROFILED_STEPS):
            step()
        _wait(device)
        plain = time.perf_counter() - began
        with torch.profiler.profile(activities=activities) as profiler:
            began = time.perf_counter()
            for _ in range(PROFILED_STEPS):
                step()
            _wait(device)
            took = time.perf_counter() - began
        stacks = _sample_stacks(step, sampled)
    events = list(profiler.events() or ())
    kernels = [
        (event.time_range.start, event.time_range.end)
        for event in events
        if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False)
    ]
    rows, calls = profiler.key_averages(), Counter(event.name for event in events)
    launches = sum(count for name, count in calls.items() if re.match(r"cu(da)?(Launch|GraphLaunch)", name))
    return {
        "ms_per_step": round(1e3 * plain / PROFILED_STEPS, 3),
        "ms_per_step_profiled": round(1e3 * took / PROFILED_STEPS, 3),
        "gpu_idle_share": round(1 - busy(kernels) / (1e6 * took), 3) if kernels else None,
        "gpu_idle_share_unprofiled": round(max(0.0, 1 - busy(kernels) / (1e6 * plain)), 3) if kernels else None,
        "kernels_per_step": round(len(kernels) / PROFILED_STEPS, 1),
        "launches_per_step": round(launches / PROFILED_STEPS, 1),
        "by_host_time": _table(rows, "self_cpu_time_total", "CPU"),
        "by_device_time": _table(rows, "self_device_time_total", "CUDA"),
        "py_spy": stacks,
    }


def busy(intervals: list[tuple[float, float]]) -> float:
    """Return the time that intervals cover together."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(intervals):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


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
    ours, theirs = (row["tokens_per_s"] for row in rows.values())
    del sides, makers
    _forget(device)
    return {"ratio": round(ours / theirs, 3), "loss_without_dropout": losses, "sides": rows}


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


def _best_time(work: Callable[[], object], device: torch.device, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds + 1):
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def _time_launches(device: torch.device) -> dict[str, Any]:
    one = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(LAUNCHES):
            one.add_(1)  # a kernel, where zero_ is a memset

    result: dict[str, Any] = {"launches": LAUNCHES, "us_each": round(1e6 * _best_time(launch, device) / LAUNCHES, 3)}
    result["us_manual_seed"] = round(1e6 * _best_time(lambda: torch.manual_seed(1), device), 1)
    result["us_garbage_collection"] = round(1e6 * _best_time(gc.collect, device), 1)
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        result["us_each_in_a_graph"] = round(1e6 * _best_time(graph.replay, device) / LAUNCHES, 3)
    return result


def _time_matmul(device: torch.device, size: int) -> dict[str, Any]:
    return {"rows": size, "bfloat16_tflops": round(measure_matmul(device, size, torch.bfloat16) / 1e12, 2)}


def _time_copies(device: torch.device, size: int) -> dict[str, Any]:
    """Pinning of fresh tensors like a batch's, whose sizes are new each time, and copies to the GPU."""
    result: dict[str, Any] = {"bytes": size}
    if device.type != "cuda":
        return result | {"us_pin_a_batch": None, "gb_per_s_pinned": None, "gb_per_s_pageable": None}
    numbers = itertools.count()

    def pin() -> None:
        number = next(numbers)
        for elements in SIZES_OF_A_BATCH:
            torch.zeros(elements + number, dtype=torch.int64).pin_memory()

    result["us_pin_a_batch"] = round(1e6 * _best_time(pin, device, 20), 1)
    pageable = torch.zeros(size, dtype=torch.uint8)
    for name, source in (("pinned", pageable.pin_memory()), ("pageable", pageable)):
        seconds = _best_time(lambda source=source: source.to(device, non_blocking=True), device)  # type: ignore[misc]
        result[f"gb_per_s_{name}"] = round(size / seconds / 1e9, 2)
    return result


def _run_tests(rehearsal: bool) -> dict[str, Any]:
    program = [sys.executable, "-m", "pytest", "tests/gpu", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "" if rehearsal else "0"}
    done = subprocess.run(
        program, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = done.stdout.splitlines()
    return {"exit_status": done.returncode, "summary": lines[-1:] and lines[-1], "output": lines[-60:]}


def _table(rows: Any, clock: str, device: str) -> list[dict[str, Any]]:
    """The dearest rows of a profile, per step."""
    own = [row for row in rows if row.device_type.name == device and getattr(row, clock, 0) > 0]
    total = sum(getattr(row, clock) for row in own)
    return [
        {
            "name": row.key[:NAME],
            "share": round(getattr(row, clock) / total, 4),
            "ms_per_step": round(getattr(row, clock) / 1e3 / PROFILED_STEPS, 4),
            "calls_per_step": round(row.count / PROFILED_STEPS, 1),
        }
        for row in sorted(own, key=lambda row: -getattr(row, clock))[:SHOWN]
    ]


def _sample_stacks(step: Callable[[], int], seconds: int) -> list[str] | None:
    """The lines of Python in which all threads are found most often while steps are taken; None without py-spy."""
    program = shutil.which("py-spy")
    if program is None:
        return None
    output = Path(f"/tmp/py-spy-{os.getpid()}.txt")
    asked = [program, "record", "--pid", str(os.getpid()), "--duration", str(seconds), "--format", "raw", "--gil"]
    with subprocess.Popen([*asked, "--output", str(output)], stderr=subprocess.DEVNULL) as sampler:
        while sampler.poll() is None:
            step()
    if not output.exists():
        return None
    leaves: Counter[str] = Counter()
    for line in output.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        leaves[stack.rpartition(";")[2]] += int(count)
    output.unlink()
    return [f"{count} {leaf}" for leaf, count in leaves.most_common(SHOWN)]
