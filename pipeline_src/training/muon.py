"""Muon for the blocks' matrices, AdamW for the rest, as one optimiser (Jordan et al. 2024; Liu et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

MATRICES = "matrices"  # key of the group whose parameters Muon moves
MOMENTUM = "exp_avg"  # what Muon keeps is a running mean of gradients too, and is stored under its name


class Muon(Optimizer):
    """torch's Muon over the group marked as the blocks' matrices, torch's AdamW over the others.

    Muon makes the step of a matrix orthogonal, so that directions whose gradients are small move as far as the others.
    Steps are made as long as AdamW's ("Muon is scalable for LLM training", Liu et al. 2025, section 2.2). Embeddings,
    biases, norms and heads, whose gradients are not those of a hidden layer, take AdamW's.

    Args:
        groups: of parameters; at most one of them with ``matrices: True``.
        lr, betas, eps: of AdamW; the learning rate of Muon too.
    """

    param_groups: list[dict[str, Any]]

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "fused": True})
        matrices = [group for group in self.param_groups if group.get(MATRICES)]
        others = [group for group in self.param_groups if not group.get(MATRICES)]
        self._parts: list[Optimizer] = []
        if matrices:
            self._parts.append(torch.optim.Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"))
        if others:
            self._parts.append(torch.optim.AdamW(others, lr=lr, betas=betas, eps=eps, fused=True))
        for part in self._parts:  # one state and one list of groups, whoever asks for them
            part.state = self.state
        self.param_groups = [group for part in self._parts for group in part.param_groups]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step from the gradients; parameters without one stay as they are."""
        for group in self.param_groups:
            if group.get(MATRICES):
                self._share_momentum(group["params"])
        for part in self._parts:
            part.step()

    def _share_momentum(self, matrices: Sequence[nn.Parameter]) -> None:
        """Let torch's Muon find its running mean under its own name."""
        for matrix in matrices:
            if matrix.grad is not None:
                state = self.state[matrix]
                state.setdefault(MOMENTUM, torch.zeros_like(matrix))
                state["momentum_buffer"] = state[MOMENTUM]
                state.pop("exp_avg_sq", None)  # zeros, from a checkpoint
