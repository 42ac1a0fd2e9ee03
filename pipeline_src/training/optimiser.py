"""Adam with decoupled weight decay and the paper's learning-rate schedule."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

BETAS = (0.9, 0.999)  # paper, appendix A.2
EPSILON = 1e-6  # google-research/bert, optimization.py
CLIP = 1.0  # largest norm of all gradients together; google-research/bert, optimization.py


def make_optimiser(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW; biases and LayerNorm are not decayed (google-research/bert)."""
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        (plain if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, eps=EPSILON, fused=True)


def linear_schedule(peak: float, warmup: int, total: int) -> Callable[[int], float]:
    """Learning rate of step 0, 1, ...: linear to ``peak`` over ``warmup`` steps, then linear to 0 at ``total``."""

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        return peak * max(0.0, (total - step) / max(1, total - warmup))

    return rate
