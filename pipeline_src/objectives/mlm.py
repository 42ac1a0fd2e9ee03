"""Masked language model: predict the tokens that were chosen (paper, section 3.1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def masked_words(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the cross-entropies (nats, float32) and number of right first guesses (int64), both scalars.

    Sums, because a mean over a batch cut into pieces is a sum over all pieces divided by the count of the whole.

    Args:
        scores: [P, entries] at the predicted places alone; P may be 0.
        labels: the tokens that stand there, int64 [P].
    """
    with torch.no_grad():
        best = scores.gather(1, labels[:, None]).squeeze(1) >= scores.amax(dim=1)  # half the time of argmax
    return F.cross_entropy(scores.float(), labels, reduction="sum"), best.sum()
