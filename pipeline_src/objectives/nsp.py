"""Next-sentence prediction: is B what follows A (0) or text from elsewhere (1) (paper, section 3.1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def next_sentence(scores: Tensor, is_random: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy (nats) and share of right guesses, from scores [B, 2] and labels int64 [B]."""
    with torch.no_grad():
        accuracy = (scores.argmax(dim=-1) == is_random).float().mean()
    return F.cross_entropy(scores.float(), is_random), accuracy
