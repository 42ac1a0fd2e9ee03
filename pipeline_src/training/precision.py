"""The precision that training asks of a GPU."""

from __future__ import annotations

import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.attention import AMPERE


def check_precision(device: torch.device) -> None:
    """Refuse a GPU without bfloat16 before anything is trained on it.

    Raises:
        PipelineError: ``device`` is a GPU from before Ampere; which one is named.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < AMPERE:
        raise PipelineError(
            "this GPU has no bfloat16", torch.cuda.get_device_name(device), where="training",
            remedy="take one of the Ampere generation or later (A100, A10, L4, RTX 30), "
            "or hide it with CUDA_VISIBLE_DEVICES= to train on the CPU",
        )  # fmt: skip
