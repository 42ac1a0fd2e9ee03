"""Micro-batches of pretraining as tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline_src.pretraining.loading.batches import PretrainingBatch


@dataclass(frozen=True)
class TensorBatch:
    """A micro-batch; the tensors are those of :class:`pipeline_src.pretraining.loading.batches.PretrainingBatch`.

    Attributes:
        max_seqlen: tokens of the longest sequence.
        counts: of ``sequences``, ``tokens``, ``squares`` (summed squared lengths) and ``predictions``.
        examples: their numbers, int64 [sequences].
    """

    ids: Tensor
    segments: Tensor
    cu_seqlens: Tensor
    predicted: Tensor
    labels: Tensor
    pair_label: Tensor
    max_seqlen: int
    counts: dict[str, int]
    examples: np.ndarray

    TENSORS = ("ids", "segments", "cu_seqlens", "predicted", "labels", "pair_label")

    @classmethod
    def of(cls, batch: PretrainingBatch) -> TensorBatch:
        """Make tensors of a micro-batch, on the host."""
        tensors = {name: torch.from_numpy(getattr(batch, name)) for name in cls.TENSORS}
        lengths = np.diff(batch.cu_seqlens)
        counts = {
            "sequences": len(lengths),
            "tokens": len(batch.ids),
            "squares": int(lengths @ lengths),
            "predictions": len(batch.labels),
        }
        return cls(**tensors, max_seqlen=batch.max_seqlen, counts=counts, examples=batch.examples)


def tensor_batches(batches: Iterable[list[PretrainingBatch]]) -> Iterator[list[TensorBatch]]:
    """The micro-batches of every batch, as :meth:`TensorBatch.of` makes them."""
    for batch in batches:
        yield [TensorBatch.of(micro_batch) for micro_batch in batch]
