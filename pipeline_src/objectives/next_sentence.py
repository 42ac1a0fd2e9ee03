"""Next-sentence prediction: is B what follows A (0) or text from elsewhere (1) (paper, section 3.1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def next_sentence(scores: Tensor, is_random: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the cross-entropies (nats, float32) and number of right guesses (int64), both scalars.

    Args:
        scores: of "next" and "random", [B, 2].
        is_random: int64 [B].
    """
    with torch.no_grad():
        right = (scores.argmax(dim=-1) == is_random).sum()
    return F.cross_entropy(scores.float(), is_random, reduction="sum"), right
