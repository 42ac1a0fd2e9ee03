"""Muon for the blocks' matrices, AdamW for the rest, as one optimiser (Jordan et al. 2024; Liu et al. 2025)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.training.sharding import part_of, whole

MATRICES = "matrices"  # key of the group whose parameters Muon moves
MOMENTUM = "exp_avg"  # what Muon keeps is a running mean of gradients too, and is stored under its name
DECAY = 0.95  # of that mean (Jordan et al. 2024)
ITERATIONS = 5  # likewise
QUINTIC = (3.4445, -4.7750, 2.0315)  # likewise: steepest at zero
RMS = 0.2  # of an entry of AdamW's steps (Liu et al. 2025, section 2.2)
SMALLEST_NORM = 1e-7
AT_ONCE = 1 << 22  # entries of matrices that are made orthogonal together: 8 MB


class Muon(Optimizer):
    """Muon over the group marked as the blocks' matrices, torch's AdamW over the others.

    Muon makes the step of a matrix orthogonal, so that directions whose gradients are small move as far as the others.
    Steps are made as long as AdamW's ("Muon is scalable for LLM training", Liu et al. 2025, section 2.2). Embeddings,
    biases, norms and heads, whose gradients are not those of a hidden layer, take AdamW's.

    It is ``torch.optim.Muon``, which takes one matrix after another, for all matrices of one shape at once: small ones
    take two thirds of the time so.

    Args:
        groups: of parameters; at most one of them with ``matrices: True``.
        lr, betas, eps: of AdamW; the learning rate of Muon too.
    """

    param_groups: list[dict[str, Any]]

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "fused": True})
        others = [group for group in self.param_groups if not group.get(MATRICES)]
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=betas, eps=eps, fused=True) if others else None
        if self._adamw is not None:  # one state and one list of groups, whoever asks for them
            self._adamw.state = self.state
            matrices = [group for group in self.param_groups if group.get(MATRICES)]
            self.param_groups = [*matrices, *self._adamw.param_groups]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step from the gradients; parameters without one stay as they are."""
        for group in self.param_groups:
            if group.get(MATRICES):
                self._move_matrices(group)
        if self._adamw is not None:
            self._adamw.step()

    def _move_matrices(self, group: dict[str, Any]) -> None:
        """Decay and move those that have a gradient."""
        moved = [matrix for matrix in group["params"] if matrix.grad is not None]
        for matrix in moved:
            state = self.state[matrix]
            if MOMENTUM not in state:
                state[MOMENTUM] = torch.zeros_like(matrix)
            state.pop("exp_avg_sq", None)  # zeros, from a checkpoint
        for matrices in alike(moved):
            updates = []
            for matrix in matrices:
                momentum = self.state[matrix][MOMENTUM].lerp_(matrix.grad, 1 - DECAY)
                updates.append(whole(matrix.grad.lerp(momentum, DECAY)).bfloat16())  # Nesterov's
            length = group["lr"] * RMS * math.sqrt(max(matrices[0].shape))
            for matrix, update in zip(matrices, orthogonal(torch.stack(updates)), strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(part_of(update.to(matrix.dtype), matrix), alpha=-length)


def alike(matrices: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Those of one shape together, at most ``AT_ONCE`` entries unless a matrix has more; in an order of their own."""
    for shape, group in groupby(sorted(matrices, key=lambda matrix: tuple(matrix.shape)), lambda matrix: matrix.shape):
        same, most = list(group), max(1, AT_ONCE // shape.numel())
        yield from (same[first : first + most] for first in range(0, len(same), most))


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices with the singular vectors of those given and singular values near one: five Newton-Schulz iterations.

    Args:
        matrices: [N, rows, columns], changed in place where no row is longer than a column.

    Returns:
        [N, rows, columns], singular values between about 0.5 and 1.5 (Jordan et al. 2024).
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT.contiguous() if is_tall else matrices
    wide /= torch.linalg.matrix_norm(wide, keepdim=True).clamp(min=SMALLEST_NORM)
    slope, cubic, quintic = QUINTIC
    for _ in range(ITERATIONS):
        gram = wide @ wide.mT
        factor = torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic)
        wide = torch.baddbmm(wide, factor, wide, beta=slope)
    return wide.mT if is_tall else wide
