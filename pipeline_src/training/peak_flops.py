"""What a device can compute at best: the denominator of model FLOPs utilisation.

The planner reads the datasheets without torch, so torch is imported where a device is measured.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CPU_SIZE, GPU_SIZE = 768, 8192  # rows and columns of the matrices whose product is timed
MEASURE_FOR = 0.08  # seconds

# Dense bfloat16 products with float32 sums, in TFLOP/s, by what `torch.cuda.get_device_name` says; of several that
# match the longest counts. From NVIDIA's and AMD's datasheets, for RTX cards from the whitepapers of GA102, Ada and
# Blackwell; figures printed "with sparsity" are halved. GPUs from before Ampere have no bfloat16: training
# refuses them.
DATASHEET = {
    "B200": 2250,
    "GH200": 989,
    "H200": 989,
    "H200 NVL": 835,
    "H100": 989,
    "H100 NVL": 835,
    "H100 PCIe": 756,
    "H800": 989,
    "H20": 148,
    "A100": 312,
    "A800": 312,
    "A40": 149.7,
    "A30": 165,
    "A10": 125,
    "A10G": 70,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "RTX A6000": 154.8,
    "RTX 6000 Ada": 364.2,
    "RTX 5090": 209.5,
    "RTX 4090": 165.2,
    "RTX 3090": 71.2,
    "RTX 3090 Ti": 80,
    "MI300X": 1307.4,
    "MI250X": 383,
}
# What stands beside a datasheet's name where the chip is another one, or only a part of it.
OTHER_CHIPS = ("Laptop", "Max-Q", "MIG ", "RTX 5090 D")


def datasheet(name: str) -> float | None:
    """FLOP/s in :data:`DATASHEET` for a GPU's name; None where it is not listed."""
    if any(other in name for other in OTHER_CHIPS):
        return None
    matches = [known for known in DATASHEET if re.search(rf"\b{re.escape(known)}\b", name)]
    return DATASHEET[max(matches, key=len)] * 1e12 if matches else None


@dataclass(frozen=True)
class Peak:
    """FLOP/s of one device, and where the figure comes from."""

    flops: float
    source: str


def peak_flops(device: torch.device) -> Peak:
    """Peak of ``device``: from its datasheet where it is known, else of a matrix product measured here and now.

    On a CPU the product is of float32, with the threads in force, so that a share of it says how near training comes to
    what this machine's own matrix product reaches; other work on the machine while it runs lowers it. No random
    number of the global generators is drawn.
    """
    import torch

    if device.type != "cuda":
        return Peak(_measure(device, CPU_SIZE, torch.float32), "float32 matrix product measured on this machine")
    name = torch.cuda.get_device_name(device)
    flops = datasheet(name)
    if flops is not None:
        return Peak(flops, f"datasheet, dense bfloat16, {name}")
    return Peak(_measure(device, GPU_SIZE, torch.bfloat16), f"bfloat16 matrix product measured on this {name}")


def _measure(device: torch.device, size: int, kind: torch.dtype) -> float:
    """Best rate of a product of two ``size`` x ``size`` matrices over ``MEASURE_FOR`` seconds, after one to warm up."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    left = torch.rand(size, size, device=device, generator=generator).to(kind)
    right = left.clone()

    def time_product() -> float:
        start = time.perf_counter()
        torch.mm(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    time_product()
    best, end = float("inf"), time.perf_counter() + MEASURE_FOR
    while time.perf_counter() < end or best == float("inf"):
        best = min(best, time_product())
    return 2 * size**3 / best
