"""Where each sequence of a flat, unpadded batch lies, and where it would lie in a padded one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Places of B sequences laid end to end as T tokens; made once per batch, used by every layer.

    Attributes:
        offsets: start of each sequence and T, int64 [B + 1].
        offsets_32: the same as int32, as kernels for unpadded attention take it.
        position: place of each token in its sequence, int64 [T].
        padded: place of each token in a [B x L] rectangle, int64 [T].
        keep: True where the rectangle holds a token, bool [B, L]; None when every sequence has length L.
        sequences, longest: B and L.
    """

    offsets: Tensor
    offsets_32: Tensor
    position: Tensor
    padded: Tensor
    keep: Tensor | None
    sequences: int
    longest: int

    @property
    def first(self) -> Tensor:
        """First token of each sequence, int64 [B]."""
        return self.offsets[:-1]

    @property
    def last(self) -> Tensor:
        """Last token of each sequence, int64 [B]."""
        return self.offsets[1:] - 1

    def runs(self, most: int) -> list[tuple[int, int]]:
        """Neighbours of equal length: how many and how long; alone, or with pairs of tokens up to ``most`` in all."""
        found: list[tuple[int, int]] = []
        for length in self.lengths:
            count, before = found[-1] if found else (0, 0)
            if length == before and (count + 1) * length**2 <= most:
                found[-1] = (count + 1, length)
            else:
                found.append((1, length))
        return found

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each sequence; on a GPU it waits for them."""
        return self.offsets.diff().tolist()

    @classmethod
    def of(cls, starts: Tensor, tokens: int, longest: int | None = None) -> Layout:
        """From the start of each sequence and T, int64 [B + 1], and T again as a number.

        ``longest`` spares a GPU the wait for the longest length; where it is given, nothing here waits.
        """
        lengths = starts.diff()
        sequences = len(lengths)
        longest = int(lengths.max()) if longest is None else longest
        sequence = torch.repeat_interleave(
            torch.arange(sequences, device=starts.device), lengths, output_size=tokens
        )  # a size that is known spares the wait for the sum of lengths
        position = torch.arange(tokens, device=starts.device) - starts.index_select(0, sequence)
        full = tokens == sequences * longest
        keep = None if full else torch.arange(longest, device=starts.device) < lengths[:, None]
        return cls(starts, starts.int(), position, sequence * longest + position, keep, sequences, longest)

    def pad(self, flat: Tensor, fill: float = 0.0) -> Tensor:
        """[T, ...] -> [B, L, ...], ``fill`` where no token is."""
        if self.keep is None:
            return flat.view(self.sequences, self.longest, *flat.shape[1:])
        rectangle = flat.new_full((self.sequences * self.longest, *flat.shape[1:]), fill)
        return rectangle.index_copy(0, self.padded, flat).view(self.sequences, self.longest, *flat.shape[1:])

    def unpad(self, rectangle: Tensor) -> Tensor:
        """[B, L, ...] -> [T, ...]."""
        flat = rectangle.reshape(-1, *rectangle.shape[2:])
        return flat if self.keep is None else flat.index_select(0, self.padded)
