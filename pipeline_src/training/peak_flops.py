"""What a device can compute at best: the denominator of model FLOPs utilisation."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from pipeline_src.training.datasheet import datasheet

CPU_SIZE, GPU_SIZE = 768, 8192  # rows and columns of the matrices whose product is timed
MEASURE_FOR = 0.08  # seconds


@dataclass(frozen=True)
class Peak:
    """FLOP/s of one device, and where the figure comes from."""

    flops: float
    source: str


def peak_flops(device: torch.device, precision: torch.dtype) -> Peak:
    """Peak of ``device``: from its datasheet where it is known, else of a matrix product measured here and now.

    A product is measured in the ``precision`` of training and, on a CPU, with the threads in force, so that a share of
    it says how near training comes to what this machine's own matrix product reaches; other work on the machine while
    it runs lowers it. No random number of the global generators is drawn.
    """
    kind, size, name = str(precision).removeprefix("torch."), CPU_SIZE, "machine"
    if device.type == "cuda":
        size, name = GPU_SIZE, torch.cuda.get_device_name(device)
        chip = datasheet(name)
        if chip is not None and precision == torch.bfloat16:
            return Peak(chip.teraflops * 1e12, f"datasheet, dense bfloat16, {name}")
    return Peak(_measure(device, size, precision), f"{kind} matrix product measured on this {name}")


def _measure(device: torch.device, size: int, kind: torch.dtype) -> float:
    """Best rate of a product of two ``size`` x ``size`` matrices over ``MEASURE_FOR`` seconds, after one to warm up."""
    generator = torch.Generator(device).manual_seed(0)
    left = torch.rand(size, size, device=device, generator=generator).to(kind)
    right = left.clone()

    def time_product() -> float:
        start = time.perf_counter()
        torch.mm(left, right)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return time.perf_counter() - start

    time_product()
    best, end = float("inf"), time.perf_counter() + MEASURE_FOR
    while time.perf_counter() < end or best == float("inf"):
        best = min(best, time_product())
    return 2 * size**3 / best
