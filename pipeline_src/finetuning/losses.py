"""What is learnt in fine-tuning: one loss per head (paper, sections 4.1 to 4.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.models.packed_layout import PackedLayout

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def sequence(outputs: Tensor, labels: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Cross-entropy over classes; mean squared error where labels are not whole (STS-B).

    Args:
        outputs: [B, classes], or [B, 1] for a regression.
        labels: int64 [B] or float32 [B].
        cu_seqlens: unused here; every loss takes it.
    """
    if labels.is_floating_point():
        return F.mse_loss(outputs.squeeze(-1).float(), labels)
    return F.cross_entropy(outputs.float(), labels)


def choice(outputs: Tensor, labels: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Cross-entropy over the choices of each item: outputs [items x choices, 1], labels int64 [items]."""
    return F.cross_entropy(outputs.float().view(len(labels), -1), labels)


def span(outputs: Tensor, labels: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Mean of the cross-entropies of the first and the last token, each over the tokens of its sequence.

    Args:
        outputs: scores of being first and last, [T, 2].
        labels: places of the first and last token in their sequence, int64 [B, 2].
        cu_seqlens: start of each sequence and T, int64 [B + 1].
    """
    layout = PackedLayout.of(cu_seqlens, len(outputs))
    scores = layout.pad(outputs.float(), -torch.inf).transpose(1, 2)  # [B, 2, L]
    return F.cross_entropy(scores.reshape(-1, layout.max_seqlen), labels.reshape(-1))


def token(outputs: Tensor, labels: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Cross-entropy over the tags of the tokens that have one.

    Args:
        outputs: [T, tags].
        labels: int64 [T], -100 where a token has no tag, as all pieces of a word but its first.
        cu_seqlens: unused here; every loss takes it.
    """
    return F.cross_entropy(outputs.float(), labels)


LOSSES: dict[str, Loss] = {"sequence": sequence, "choice": choice, "span": span, "token": token}
