"""Piece ``rates`` of benchmark ``gpu``: training steps on random text, by variant and shape.

``VARIANTS`` are the ways to take a step. As a program, ``python -m benchmarks._gpu_steps OUT [--rehearse]`` measures
each of them and writes OUT/results.json.
"""

from __future__ import annotations

import functools
import gc
import itertools
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import _pretrain_sides as sides
from benchmarks._gpu_session import Session
from pipeline_src.model.bert import BertConfig, compile_parts, load_architecture
from pipeline_src.model.flops import Workload
from pipeline_src.pretrain.capacity import Capacity
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.study.model import ModelParams
from pipeline_src.training.batches import transfer
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.gpu import CapturedSteps
from pipeline_src.training.optimizers import Muon
from pipeline_src.training.throughput import compilations, peak_flops
from pipeline_src.training.trainer import Trainer

# The trainer cycles through this many batches.
DISTINCT = 32
# Steps are timed after so many during which nothing was compiled, or after the maximum.
QUIET_STEPS, MAX_WARM_UP_STEPS = 5, 40

SMALL, LARGE = ("mini", "8x512"), ("base", "large")


class Variant(NamedTuple):
    """Way to compute a step, and the names of the shapes at which it is measured."""

    compiled: bool = False
    fixed_capacity: bool = False
    captured: bool = False
    shapes: tuple[str, ...] = (*SMALL, *LARGE)

    @property
    def machine(self) -> dict[str, Any]:
        # The settings of machine.yaml that select this variant in a training stage.
        of_pretrain = {"fixed_capacity": self.fixed_capacity, "capture": self.captured}
        return {"compile": self.compiled, "pretrain": of_pretrain}

    def prepare(self, trainer: Trainer[TensorBatch], batches: list[TensorBatch]) -> list[TensorBatch]:
        # The trainer has taken no step; the batches returned are trained on instead of those given.
        if self.compiled:
            compile_parts(trainer.objective, self.fixed_capacity)
            if isinstance(trainer.optimizer, Muon):
                trainer.optimizer.compile()
        # On a CPU, losses take no padding, and there are no graphs.
        if trainer.distributed.device.type == "cpu":
            return batches
        if self.captured:
            CapturedSteps(trainer)
        if not self.fixed_capacity:
            return batches
        length = max(batch.max_seqlen for batch in batches)
        # The first token of a sequence is an output too.
        predictions = max(batch.max_outputs for batch in batches) - 1
        capacity = Capacity(len(batches[0].pair_label), length, predictions, pad_id=0)
        return [capacity.pad(batch) for batch in batches]


# Variants are measured in this order, each at all its shapes.
VARIANTS = {
    "eager": Variant(),
    "captured": Variant(fixed_capacity=True, captured=True, shapes=SMALL),
    # Compiling took 36 s for Mini on an H100's host.
    "compiled": Variant(compiled=True),
    "compiled, captured": Variant(compiled=True, fixed_capacity=True, captured=True, shapes=(*SMALL, "base")),
    "compiled, fixed capacity": Variant(compiled=True, fixed_capacity=True, shapes=LARGE),
    "fixed capacity": Variant(fixed_capacity=True, shapes=("base",)),
}


class Shape(NamedTuple):
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
        params = ModelParams(
            architecture=self.architecture,
            num_hidden_layers=self.layers,
            hidden_size=self.width,
            hidden_dropout_prob=self.dropout,
        )
        return load_architecture(self.architecture).config.from_params(params, self.entries)

    def examples(self, count: int) -> list[PretrainingBatch]:
        return list(sides.random_examples(self.length, self.sequences, count, self.entries, self.mask_prob))


# The small ones have the recipe of the preset `evening`, the others the paper's.
SHAPES = {
    "mini": Shape("modernbert", 4, 256, 32, 128, "muon", 0.0, 8_192, 0.3),
    "8x512": Shape("modernbert", 8, 512, 256, 128, "muon", 0.0, 8_192, 0.3),
    "base": Shape("bert", 12, 768, 256, 128, "adamw", 0.1, sides.ENTRIES, sides.MASK_PROB),
    "large": Shape("bert", 24, 1024, 256, 128, "adamw", 0.1, sides.ENTRIES, sides.MASK_PROB),
}


@contextmanager
def trainer_of(shape: Shape, variant: str, process: Distributed) -> Iterator[tuple[Trainer[Any], Callable[[], int]]]:
    """Make a trainer, and a function that trains its next step and returns the number of real tokens in the batch."""
    # The import takes a second, so it is not at the top of the file.
    from torch._dynamo.utils import clear_compilation_metrics

    objective = sides.ours_objective(shape.config()).to(process.device)
    trainer = sides.make_benchmark_trainer(objective, process, shape.optimizer)
    batches = [TensorBatch.of(batch) for batch in shape.examples(DISTINCT)]
    token_counts = itertools.cycle([batch.workload.tokens for batch in batches])
    changed = VARIANTS[variant].prepare(trainer, batches)
    on_device = transfer(([batch] for batch in itertools.cycle(changed)), process.device)

    def step() -> int:
        trainer.train_step(next(on_device))
        return next(token_counts)

    try:
        yield trainer, step
    finally:
        # Closing ends the thread that copies batches to the device.
        on_device.close()  # type: ignore[attr-defined]
        # Free the memory of compiled graphs.
        torch.compiler.reset()
        clear_compilation_metrics()
        gc.collect()
        if process.device.type == "cuda":
            torch.cuda.empty_cache()


def measure_rate(shape: Shape, variant: str, process: Distributed, seconds: float) -> dict[str, Any]:
    # The steps in which anything is compiled or captured come before those that are timed.
    device = process.device
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with trainer_of(shape, variant, process) as (trainer, step):
        began = time.perf_counter()
        warm_up_steps = _warm_up(step)
        _wait(device)
        warm_up_seconds = time.perf_counter() - began
        graphs = compilations()
        steps = tokens = 0
        began = time.perf_counter()
        while steps < QUIET_STEPS or time.perf_counter() - began < seconds:
            tokens += step()
            steps += 1
        _wait(device)
        took = time.perf_counter() - began
        trainer.check_losses()
        peak_bytes = torch.cuda.max_memory_allocated() if on_gpu else sides.memory("VmHWM")
        flops_per_second = tokens / took * _flops_per_token(shape)
        return {
            "steps_per_s": round(steps / took, 3),
            "tokens_per_s": round(tokens / took, 1),
            "mfu": round(flops_per_second / peak_flops(device, process.precision).flops, 5),
            "peak_mb": round(peak_bytes / 1e6),
            "steps": steps,
            "warm_up_steps": warm_up_steps,
            "warm_up_seconds": round(warm_up_seconds, 2),
            "compiled_while_timed": compilations() - graphs,
            "compile_seconds": compile_seconds(),
            "mean_loss": round(float(trainer.state.sums["loss"]) / trainer.state.summed_steps, 4),
        }


def _warm_up(step: Callable[[], int]) -> int:
    quiet = 0
    for taken in range(1, MAX_WARM_UP_STEPS + 1):
        graphs = compilations()
        step()
        quiet = quiet + 1 if compilations() == graphs else 0
        if quiet == QUIET_STEPS:
            return taken
    return MAX_WARM_UP_STEPS


def compile_seconds() -> dict[str, float]:
    """Return how long torch compiled each function for the current trainer, by ``file:line name``."""
    from torch._dynamo.utils import get_compilation_metrics

    seconds: defaultdict[str, float] = defaultdict(float)
    for metrics in get_compilation_metrics():
        function = f"{Path(metrics.co_filename or '').name}:{metrics.co_firstlineno} {metrics.co_name}"
        seconds[function] += metrics.entire_frame_compile_time_s or 0.0
    return {function: round(took, 2) for function, took in seconds.items()}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _flops_per_token(shape: Shape) -> float:
    workloads = [TensorBatch.of(batch).workload for batch in shape.examples(DISTINCT)]
    work = functools.reduce(Workload.__add__, workloads)
    return shape.config().training_flops(work) / work.tokens


def load_compiled(path: Path) -> None:
    if path.exists():
        torch.compiler.load_cache_artifacts(path.read_bytes())


def save_compiled(path: Path) -> None:
    """Save what torch has compiled in this process, for ``load_compiled`` in another one, on the same kind of GPU."""
    saved = torch.compiler.save_cache_artifacts()
    if saved is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(saved[0])


def main(out: Path, rehearsal: bool) -> None:
    session = Session("rates", out, rehearsal, deadline=math.inf)
    compiled = out / "compiled" / "artifacts"
    load_compiled(compiled)
    if rehearsal:
        # Compiling tiny models for a CPU takes a minute.
        torch.compiler.set_stance("force_eager")
    process = sides.process_on("cpu", "bfloat16") if rehearsal else sides.process_on("cuda")
    for name, variant in VARIANTS.items():
        for shape_name in variant.shapes:
            shape = SHAPES[shape_name]
            if rehearsal:
                shape = shape._replace(layers=1, width=64, sequences=4, length=32, entries=1_000)
            measure = partial(measure_rate, shape, name, process, 0.0 if rehearsal else 2.0)
            session.cell(f"{shape_name}, {name}", measure, shape=shape_name, variant=name)
            save_compiled(compiled)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--rehearse" in sys.argv)
