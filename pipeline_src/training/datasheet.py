"""What GPUs can compute at best, as their makers print it."""

from __future__ import annotations

import re

# Dense bfloat16 products with float32 sums, in TFLOP/s, by what `torch.cuda.get_device_name` says; of several that
# match the longest counts. From NVIDIA's and AMD's datasheets, for RTX cards from the whitepapers of GA102, Ada and
# Blackwell; figures printed "with sparsity" are halved. V100 and T4 have no bfloat16: theirs are of float16.
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
    "V100": 125,
    "V100-PCIE": 112,
    "Tesla T4": 65,
    "MI300X": 1307.4,
    "MI250X": 383,
}
OTHER_CHIPS = (
    "Laptop",
    "Max-Q",
    "MIG ",
    "RTX 5090 D",
)  # names that hold a datasheet's name but not its chip or all of it


def datasheet(name: str) -> float | None:
    """FLOP/s in :data:`DATASHEET` for a GPU's name; None where it is not listed."""
    if any(other in name for other in OTHER_CHIPS):
        return None
    matches = [known for known in DATASHEET if re.search(rf"\b{re.escape(known)}\b", name)]
    return DATASHEET[max(matches, key=len)] * 1e12 if matches else None
