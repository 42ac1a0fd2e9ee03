"""Memory of a long training on a CPU: BERT-Tiny over 5,000 steps of 8 sequences of any length up to 512 tokens.

The project's own loop, on random text drawn as it goes. After every 250 steps it prints what the process holds, and the
most that it held in them. Bars: never more than 1.5 GB, and flat after the first 500 steps: the later half of what
follows holds at most 5 % more than the earlier one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

# as the stages do; read when torch is imported, and when it first computes
os.environ.update(OMP_WAIT_POLICY="PASSIVE", ONEDNN_PRIMITIVE_CACHE_CAPACITY="16")

import numpy as np
import torch

from benchmarks._pretrain_sides import LEARNING_RATE, WEIGHT_DECAY, config_of, memory, ours_objective, random_batch
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.trainer import CurveLogger, OptimizerConfig, make_trainer
from tests.unit.pretrain.small import AfterStep

LENGTH, SEQUENCES = 512, 8
WINDOW, SETTLED = 250, 500  # steps
MAX_BYTES, GROWTH = 1.5e9, 1.05  # bytes; later half over earlier half


def main(argv: list[str] | None = None) -> int:
    """Train; prints a line a window, then the result as JSON. Returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.memory", description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args(argv)
    if arguments.steps < SETTLED + 2 * WINDOW:
        parser.error(f"fewer than {SETTLED + 2 * WINDOW:,} steps do not show whether it is flat")
    torch.set_num_threads(arguments.threads)
    peaks: list[int] = []

    def look(step: int) -> None:
        if step % WINDOW == 0:
            peaks.append(memory("VmHWM"))
            print(
                f"  {step:>6,} steps  {memory('VmRSS') / 1e6:>7,.0f} MB  most {peaks[-1] / 1e6:>7,.0f} MB", flush=True
            )
            Path("/proc/self/clear_refs").write_text("5")  # proc(5): VmHWM starts again

    _train(arguments.steps, look)
    growth = _growth(peaks[SETTLED // WINDOW :])
    figures = {
        "steps": arguments.steps,
        "peak_mb": round(max(peaks) / 1e6),
        "target_mb": round(MAX_BYTES / 1e6),
        "growth": round(growth, 3),
        "target_growth": GROWTH,
        "met": max(peaks) <= MAX_BYTES and growth <= GROWTH,
    }
    print(json.dumps({"name": "memory", **figures}))
    return 0 if figures["met"] else 1


def _train(steps: int, after_step: Callable[[int], None]) -> None:
    recipe = OptimizerConfig(LEARNING_RATE, steps, decay_steps=0, weight_decay=WEIGHT_DECAY)
    process = Distributed(0, 1, torch.device("cpu"))
    trainer = make_trainer(ours_objective(config_of("tiny")), recipe, process, name="pretraining", last=steps, seed=1)
    trainer.callbacks = [CurveLogger([WINDOW], steps), AfterStep(after_step)]
    trainer.run(_batches(steps))


def _batches(count: int) -> Iterator[list[TensorBatch]]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield [TensorBatch.of(random_batch(rng, rng.integers(4, LENGTH + 1, SEQUENCES)))]


def _growth(peaks: list[int]) -> float:
    """The median of the later half over that of the earlier one."""
    half = len(peaks) // 2
    return statistics.median(peaks[half:]) / statistics.median(peaks[:half] or peaks)


if __name__ == "__main__":
    raise SystemExit(main())
