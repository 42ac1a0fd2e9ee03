"""Masked language model: predict the tokens that were chosen (paper, section 3.1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def masked_words(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy (nats) and share of right first guesses.

    Args:
        scores: [P, entries] at the predicted places alone.
        labels: the tokens that stood there, int64 [P].
    """
    with torch.no_grad():
        best = scores.gather(1, labels[:, None]).squeeze(1) >= scores.amax(dim=1)  # half the time of argmax
    return F.cross_entropy(scores.float(), labels), best.float().mean()
