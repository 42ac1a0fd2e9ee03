"""What a student learns of a teacher: its scores over the vocabulary (Hinton et al. 2015), and its attention's."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline_src.models.linear_cross_entropy import chunks, product_into, proportions, score_buffers, type_of_products
from pipeline_src.models.packed_layout import PackedLayout


class Scored(NamedTuple):
    """What a linear layer over the vocabulary makes scores of: inner [P, H], weight [entries, H], bias [entries]."""

    inner: Tensor
    weight: Tensor
    bias: Tensor


def distilled_scores(student: Scored, teacher: Scored, temperature: float) -> Tensor:
    """Sum over rows of KL(teacher || student) of the shares at ``temperature``, times its square; nats, float32.

    The square keeps the gradients' size as the temperature changes (Hinton et al. 2015, section 2). Scores of both are
    made, turned into the gradient of the student's and used up a chunk at a time. The teacher gets no gradient.
    """
    loss: Tensor = _Distilled.apply(*student, *teacher, temperature)
    return loss


class _Distilled(torch.autograd.Function):
    """Computes the gradients along with the loss; the backward pass, which may run once, only scales them."""

    @staticmethod
    def forward(
        ctx: Any, inner: Tensor, weight: Tensor, bias: Tensor, from_inner: Tensor, from_weight: Tensor,
        from_bias: Tensor, temperature: float,
    ) -> Tensor:  # fmt: skip
        loss = inner.new_zeros((), dtype=torch.float32)
        of_inner, of_weight, of_bias = torch.empty_like(inner), torch.zeros_like(weight), torch.zeros_like(bias)
        cuts, kind = chunks(len(inner), len(weight)), type_of_products(weight)
        matrix, from_matrix, buffers = weight.to(kind), from_weight.to(kind), score_buffers(3, cuts, weight)
        start, from_start = bias / temperature, from_bias / temperature
        for rows in cuts:
            own, wanted, apart = (buffer[: rows.stop - rows.start] for buffer in buffers)
            product_into(own, (inner[rows] / temperature).to(kind), matrix.T, plus=start)
            product_into(wanted, (from_inner[rows] / temperature).to(kind), from_matrix.T, plus=from_start)
            torch.sub(wanted, own, out=apart)
            (shares, total, best), (aims, total_aims, best_aim) = proportions(own), proportions(wanted)
            means = apart.mul_(aims).sum(1, keepdim=True) / total_aims
            loss += temperature**2 * (means + best + total.log() - best_aim - total_aims.log()).sum()
            of_scores = shares.div_(total).addcdiv_(aims, total_aims, value=-1).mul_(temperature)
            of_bias += of_scores.sum(0)
            of_scores = of_scores.to(kind)
            product_into(of_inner[rows], of_scores, matrix)
            product_into(of_weight, of_scores.T, inner[rows].to(kind), plus=of_weight)
        ctx.gradients = of_inner, of_weight, of_bias
        return loss

    @staticmethod
    def backward(ctx: Any, *of_outputs: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        return *(gradient.mul_(of_outputs[0]) for gradient in gradients), None, None, None, None


def spread_layers(student: int, teacher: int) -> list[int]:
    """Which of a teacher's layers a student's start from: evenly spread from the first to the last.

    Of 12 for 6 they are 0, 2, 4, 7, 9 and 11, those of DistilBERT (Sanh et al. 2019).
    """
    return [round(number * (teacher - 1) / max(1, student - 1)) for number in range(student)]


def real_pairs(layout: PackedLayout) -> Tensor:
    """Which pairs are of tokens of the sequence, bool [B, 1, L, L]."""
    places = torch.arange(layout.max_seqlen, device=layout.cu_seqlens.device)
    keep = places < layout.cu_seqlens.diff()[:, None]
    return keep[:, None, :, None] & keep[:, None, None, :]
