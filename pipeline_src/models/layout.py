"""Where each sequence of a flat, unpadded batch lies, and where it would lie in a padded one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Places of B sequences laid end to end as T tokens; made once per batch, used by every layer.

    Attributes:
        starts: first token of each sequence, int64 [B].
        position: place of each token in its sequence, int64 [T].
        padded: place of each token in a [B x L] rectangle, int64 [T].
        keep: True where the rectangle holds a token, bool [B, L]; None when every sequence has length L.
        sequences, longest: B and L.
    """

    starts: Tensor
    position: Tensor
    padded: Tensor
    keep: Tensor | None
    sequences: int
    longest: int

    @classmethod
    def of(cls, starts: Tensor) -> Layout:
        """From the start of each sequence and the number of tokens, int64 [B + 1]."""
        lengths = starts.diff()
        sequences, longest = len(lengths), int(lengths.max())
        sequence = torch.repeat_interleave(torch.arange(sequences, device=starts.device), lengths)
        position = torch.arange(len(sequence), device=starts.device) - starts[sequence]
        full = len(sequence) == sequences * longest
        keep = None if full else torch.arange(longest, device=starts.device) < lengths[:, None]
        return cls(starts[:-1], position, sequence * longest + position, keep, sequences, longest)
