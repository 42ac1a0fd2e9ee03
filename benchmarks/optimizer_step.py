"""Compare a pretraining step with Muon to one with AdamW, on one CPU thread, also restricted to AVX2.

BERT-Tiny on batches of 32 x 64 tokens, ModernBERT-Mini on 32 x 128, random text. The second run is
a process of its own in which torch uses no instructions later than AVX2. Bfloat16 has none there and is 20 to 40 times
slower than float32, so code that computes in it by mistake shows here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

# Set before torch is imported, as in the stages.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from benchmarks._pretrain_sides import config_of, ours_objective, process_on, random_batches, training_side
from benchmarks.measure import report, time_once
from pipeline_src.study.machine import MKL, PORTABLE

# Architecture, sequence length, and the minimum ratio of AdamW's time to Muon's.
SIZES = {"tiny": ("bert", 64, 0.8), "mini": ("modernbert", 128, 0.77)}
SEQUENCES, WARM_UP = 32, 2


def measure(size: str, steps: int) -> dict[str, float]:
    architecture, length, _ = SIZES[size]
    batches = list(random_batches(length, SEQUENCES, WARM_UP + steps, torch.device("cpu")))
    sides = {
        name: training_side(ours_objective(config_of(size, architecture)), batches, process_on("cpu"), name)
        for name in ("muon", "adamw")
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in batches:
        for name, side in sides.items():
            seconds[name].append(time_once(side.step))
    return {name: 1 / statistics.median(times[WARM_UP:]) for name, times in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", choices=SIZES, action="append", help="default: both")
    parser.add_argument("--steps", type=int, default=15, help=f"timed steps, after {WARM_UP} of warm-up")
    parser.add_argument("--here", action="store_true", help="only with the instructions that torch chooses here")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for size in options.size or SIZES:
        rates, capability = measure(size, options.steps), torch.backends.cpu.get_cpu_capability()
        report(
            f"optimizer_step {size} {capability}",
            "steps per CPU-second",
            rates["muon"],
            {"AdamW": rates["adamw"]},
            {"AdamW": SIZES[size][2]},
        )
    if not options.here:
        sys.stdout.flush()
        again = [sys.executable, "-m", "benchmarks.optimizer_step", "--here", *(arguments or sys.argv[1:])]
        subprocess.run(again, env=os.environ | PORTABLE | {"MKL_CBWR": MKL}, check=True)


if __name__ == "__main__":
    main()
