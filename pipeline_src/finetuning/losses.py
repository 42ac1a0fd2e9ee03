"""What is learnt in fine-tuning: one loss per head (paper, sections 4.1 to 4.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.finetuning.batches import TaskBatch

Loss = Callable[[Tensor, TaskBatch], Tensor]  # of a model's outputs, a scalar in float32


def sequence(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Cross-entropy over classes; mean squared error where labels are not whole (STS-B).

    Args:
        outputs: [B, classes], or [B, 1] for a regression.
        batch: with labels int64 [B] or float32 [B].
    """
    if batch.labels.is_floating_point():
        return F.mse_loss(outputs.squeeze(-1).float(), batch.labels)
    return F.cross_entropy(outputs.float(), batch.labels)


def choice(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Cross-entropy over the choices of each item: outputs [items x choices, 1], labels int64 [items]."""
    return F.cross_entropy(outputs.float().view(len(batch.labels), -1), batch.labels)


def span(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Mean of the cross-entropies of the first and the last token, each over the tokens of its sequence.

    Args:
        outputs: scores of being first and last, [T, 2].
        batch: with the places of the first and last token in their sequence as labels, int64 [B, 2].
    """
    layout = batch.layout
    scores = layout.pad(outputs.float(), -torch.inf).transpose(1, 2)  # [B, 2, L]
    return F.cross_entropy(scores.reshape(-1, layout.max_seqlen), batch.labels.reshape(-1))


def token(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Cross-entropy over the tags of the tokens that have one.

    Args:
        outputs: [T, tags].
        batch: with labels int64 [T], -100 where a token has no tag, as all pieces of a word but its first.
    """
    return F.cross_entropy(outputs.float(), batch.labels)


LOSSES: dict[str, Loss] = {"sequence": sequence, "choice": choice, "span": span, "token": token}
