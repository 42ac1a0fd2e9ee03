"""Where each sequence of a flat, unpadded batch lies, and where it would lie in a padded one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedLayout:
    """Places of B sequences laid end to end as T tokens; made once per batch, used by every layer.

    Attributes:
        cu_seqlens: start of each sequence and T, int64 [B + 1].
        cu_seqlens_32: the same as int32, as kernels for unpadded attention take it.
        position: place of each token in its sequence, int64 [T].
        padded: place of each token in a [B x L] rectangle, int64 [T].
        keep: True where the rectangle holds a token, bool [B, L]; None when every sequence has length L.
        sequences, max_seqlen: B and L.
    """

    cu_seqlens: Tensor
    cu_seqlens_32: Tensor
    position: Tensor
    padded: Tensor
    keep: Tensor | None
    sequences: int
    max_seqlen: int

    @property
    def first(self) -> Tensor:
        """First token of each sequence, int64 [B]."""
        return self.cu_seqlens[:-1]

    @property
    def last(self) -> Tensor:
        """Last token of each sequence, int64 [B]."""
        return self.cu_seqlens[1:] - 1

    def runs(self, most: int) -> list[tuple[int, int]]:
        """Neighbours of equal length: how many and how long; alone, or with pairs of tokens up to ``most`` in all."""
        runs: list[tuple[int, int]] = []
        for length in self.lengths:
            count, before = runs[-1] if runs else (0, 0)
            if length == before and (count + 1) * length**2 <= most:
                runs[-1] = (count + 1, length)
            else:
                runs.append((1, length))
        return runs

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each sequence; on a GPU it waits for them."""
        return self.cu_seqlens.diff().tolist()

    @classmethod
    def of(cls, cu_seqlens: Tensor, tokens: int, max_seqlen: int | None = None) -> PackedLayout:
        """From the start of each sequence and T, int64 [B + 1], and T again as a number.

        ``max_seqlen`` spares a GPU the wait for the longest length; where it is given, nothing here waits.
        """
        lengths = cu_seqlens.diff()
        sequences = len(lengths)
        max_seqlen = int(lengths.max()) if max_seqlen is None else max_seqlen
        sequence = torch.repeat_interleave(
            torch.arange(sequences, device=cu_seqlens.device), lengths, output_size=tokens
        )  # a size that is known spares the wait for the sum of lengths
        position = torch.arange(tokens, device=cu_seqlens.device) - cu_seqlens.index_select(0, sequence)
        full = tokens == sequences * max_seqlen
        keep = None if full else torch.arange(max_seqlen, device=cu_seqlens.device) < lengths[:, None]
        return cls(
            cu_seqlens, cu_seqlens.int(), position, sequence * max_seqlen + position, keep, sequences, max_seqlen
        )

    def pad(self, flat: Tensor, fill: float = 0.0) -> Tensor:
        """[T, ...] -> [B, L, ...], ``fill`` where no token is."""
        if self.keep is None:
            return flat.view(self.sequences, self.max_seqlen, *flat.shape[1:])
        rectangle = flat.new_full((self.sequences * self.max_seqlen, *flat.shape[1:]), fill)
        return rectangle.index_copy(0, self.padded, flat).view(self.sequences, self.max_seqlen, *flat.shape[1:])

    def unpad(self, rectangle: Tensor) -> Tensor:
        """[B, L, ...] -> [T, ...]."""
        flat = rectangle.reshape(-1, *rectangle.shape[2:])
        return flat if self.keep is None else flat.index_select(0, self.padded)
