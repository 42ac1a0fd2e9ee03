"""Sums over processes, timed: a program that a launcher starts once for each GPU; the first prints a line of JSON.

``doctor --gpu`` starts it on the GPUs of one machine; over nodes, srun does:
``srun --nodes 2 --ntasks-per-node 8 python -m pipeline_src.tools.doctor.all_reduce``.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch

from pipeline_src.training.distributed import Distributed, init_distributed

NUMBERS = 1 << 26, 1 << 20  # float32, on GPUs and on CPUs
ROUNDS = 5


def main() -> None:
    """Join the processes that a launcher started, and measure."""
    with init_distributed() as distributed:
        found = measure(distributed)
        if distributed.is_main:
            print(json.dumps(found), flush=True)
        distributed.all_reduce([0.0])
        os._exit(0)  # what is left is to take gloo's threads down, which at times ends a process with an abort


def measure(distributed: Distributed) -> dict[str, Any]:
    """Time sums of float32 over all processes; bus bandwidth is what each sends and gets, as nccl-tests count it."""
    cuda = distributed.device.type == "cuda"
    numbers = torch.ones(NUMBERS[not cuda], device=distributed.device)
    best = float("inf")
    for _ in range(1 + ROUNDS):
        distributed.all_reduce([0.0])
        began = time.perf_counter()
        distributed.all_reduce_tensor(numbers)
        if cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    size, count = numbers.numel() * numbers.element_size(), distributed.world_size
    return {
        "processes": count,
        "backend": "nccl" if cuda else "gloo",
        "bytes": size,
        "seconds": best,
        "bus": 2 * (count - 1) / count * size / best,
    }


if __name__ == "__main__":
    main()
