"""Where each sequence of a flat, unpadded batch lies, and where it would lie in a padded one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor


def always_masked(cu_seqlens: Tensor) -> bool:
    """Whether batches without padding have a mask too: on a GPU, where torch.compile would make graphs of either."""
    return cu_seqlens.is_cuda


@dataclass(frozen=True)
class PackedLayout:
    """Places of B sequences laid end to end as T tokens; made once per batch, used by every layer.

    Attributes:
        cu_seqlens: start of each sequence and T, int64 [B + 1].
        cu_seqlens_32: the same as int32, as kernels for unpadded attention take it.
        position: place of each token in its sequence, int64 [T].
        padded: place of each token in a [B x L] rectangle, int64 [T].
        keep: True where the rectangle holds a token, bool [B, L]; None when every sequence has length L, but on a GPU.
        sequences, max_seqlen: B and L.
        tables: what an encoder computes of the positions once for all its layers, by a name of its own.
    """

    cu_seqlens: Tensor
    cu_seqlens_32: Tensor
    position: Tensor
    padded: Tensor
    keep: Tensor | None
    sequences: int
    max_seqlen: int
    tables: dict[object, tuple[Tensor, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def first(self) -> Tensor:
        """First token of each sequence, int64 [B]."""
        return self.cu_seqlens[:-1]

    @property
    def last(self) -> Tensor:
        """Last token of each sequence, int64 [B]."""
        return self.cu_seqlens[1:] - 1

    def runs(self, queries: PackedLayout, most: int) -> list[tuple[int, int, int]]:
        """Neighbours of equal length and with equally many queries: how many, queries and tokens of each.

        A run is a single sequence, or has pairs of a query and a token up to ``most`` in all.

        Args:
            queries: where the queries of the same sequences lie; this layout itself where every token is one.
            most: pairs.
        """
        runs: list[tuple[int, int, int]] = []
        for asked, length in zip(queries.lengths, self.lengths, strict=True):
            count, *before = runs[-1] if runs else (0, 0, 0)
            if [asked, length] == before and (count + 1) * asked * length <= most:
                runs[-1] = (count + 1, asked, length)
            else:
                runs.append((1, asked, length))
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
        full = tokens == sequences * max_seqlen and not always_masked(cu_seqlens)
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


@dataclass(frozen=True)
class RowsInUse:
    """Some of a batch's tokens: those of which anybody reads what the last block makes.

    Attributes:
        index: their places among the T tokens, ascending, int64 [R]; each sequence has at least one.
        layout: where each sequence's lie among the R.
    """

    index: Tensor
    layout: PackedLayout

    @classmethod
    def of(cls, index: Tensor, starts: Tensor, most: int | None = None) -> RowsInUse:
        """From their places, the start of each sequence's among them and R, int64 [B + 1], and the most of a sequence.

        Without ``most`` a GPU waits, as in :meth:`PackedLayout.of`.
        """
        return cls(index, PackedLayout.of(starts, len(index), most))

    @classmethod
    def first(cls, layout: PackedLayout) -> RowsInUse:
        """The first token of each sequence."""
        starts = torch.arange(layout.sequences + 1, device=layout.cu_seqlens.device)
        return cls.of(layout.first, starts, 1)
