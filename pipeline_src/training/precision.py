"""In which precision a device computes the products of a model that trains."""

from __future__ import annotations

import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.attention import AMPERE
from pipeline_src.params.machine import Precision


def wanted_precision(wanted: Precision, device: torch.device) -> torch.dtype:
    """What machine.yaml asks for; with ``auto`` bfloat16 on a GPU and float32 on a CPU."""
    if wanted == "auto":
        wanted = "bfloat16" if device.type == "cuda" else "float32"
    return torch.float32 if wanted == "float32" else torch.bfloat16


def choose_precision(wanted: Precision, device: torch.device) -> torch.dtype:
    """As :func:`wanted_precision`, where the device has it.

    Raises:
        PipelineError: bfloat16 is to be used on a GPU from before Ampere, which has none, or on Apple's, where its
            products were never tried; the GPU is named.
    """
    precision = wanted_precision(wanted, device)
    if precision == torch.bfloat16 and device.type == "mps":
        remedy = "set precision: float32 (or auto) in machine.yaml"
        raise PipelineError("Apple's GPU trains in float32 here", wanted, where="training", remedy=remedy)
    if precision == torch.bfloat16 and device.type == "cuda" and torch.cuda.get_device_capability(device) < AMPERE:
        raise PipelineError(
            "this GPU has no bfloat16", torch.cuda.get_device_name(device), where="training",
            remedy="set precision: float32 in machine.yaml; or take a GPU of the Ampere generation or later (A100, "
            "A10, L4, RTX 30), or hide this one with CUDA_VISIBLE_DEVICES= to train on the CPU",
        )  # fmt: skip
    return precision
