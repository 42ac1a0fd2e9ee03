"""What a GPU does at best, by its maker's datasheet: products, memory, the way to other GPUs."""

from __future__ import annotations

import re
from typing import NamedTuple


class Chip(NamedTuple):
    """One kind of GPU.

    Attributes:
        teraflops: dense products of bfloat16 with float32 sums, 10^12 operations a second.
        memory: bandwidth, GB/s.
        link: to the other GPUs of its machine, GB/s in one direction: NVLink or Infinity Fabric where the machines it
            is sold in have it between all of them, else PCIe.
    """

    teraflops: float
    memory: float
    link: float


PCIE_4, PCIE_5 = 32, 64  # GB/s in one direction over 16 lanes

# By what `torch.cuda.get_device_name` says; of several that match the longest counts. From NVIDIA's and AMD's
# datasheets, for RTX cards from the whitepapers of GA102, Ada and Blackwell; what they print "with sparsity" is halved.
# GPUs from before Ampere have no bfloat16.
DATASHEET = {
    "B200": Chip(2250, 8000, 900),
    "GH200": Chip(989, 4000, 450),
    "H200": Chip(989, 4800, 450),
    "H200 NVL": Chip(835, 4800, PCIE_5),
    "H100": Chip(989, 3350, 450),
    "H100 NVL": Chip(835, 3900, PCIE_5),
    "H100 PCIe": Chip(756, 2000, PCIE_5),
    "H800": Chip(989, 3350, 200),
    "H20": Chip(148, 4000, 450),
    "A100": Chip(312, 2039, 300),
    "A100-SXM4-40GB": Chip(312, 1555, 300),
    "A100-PCIE-40GB": Chip(312, 1555, PCIE_4),
    "A100 80GB PCIe": Chip(312, 1935, PCIE_4),
    "A800": Chip(312, 2039, 200),
    "A40": Chip(149.7, 696, PCIE_4),
    "A30": Chip(165, 933, PCIE_4),
    "A10": Chip(125, 600, PCIE_4),
    "A10G": Chip(70, 600, PCIE_4),
    "L40S": Chip(362, 864, PCIE_4),
    "L40": Chip(181, 864, PCIE_4),
    "L4": Chip(121, 300, PCIE_4),
    "RTX A6000": Chip(154.8, 768, PCIE_4),
    "RTX 6000 Ada": Chip(364.2, 960, PCIE_4),
    "RTX 5090": Chip(209.5, 1792, PCIE_5),
    "RTX 4090": Chip(165.2, 1008, PCIE_4),
    "RTX 3090": Chip(71.2, 936, PCIE_4),
    "RTX 3090 Ti": Chip(80, 1008, PCIE_4),
    "MI300X": Chip(1307.4, 5300, 448),
    "MI250X": Chip(383, 3277, 350),
}
# What stands beside a datasheet's name where the chip is another one, or only a part of it.
OTHER_CHIPS = ("Laptop", "Max-Q", "MIG ", "RTX 5090 D")


def datasheet(name: str) -> Chip | None:
    """The row of :data:`DATASHEET` for a GPU's name, or for a text that holds it; None where it is not listed."""
    if any(other in name for other in OTHER_CHIPS):
        return None
    matches = [known for known in DATASHEET if re.search(rf"\b{re.escape(known)}\b", name)]
    return DATASHEET[max(matches, key=len)] if matches else None
