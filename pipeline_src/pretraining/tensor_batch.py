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
        rows: places of which a masked model reads what its last block makes: the predicted ones and the first of each
            sequence, ascending, int64 [R].
        row_starts: where each sequence's lie among the R, and R, int64 [sequences + 1].
        predicted_rows: where the predicted places lie among the R, int64 [predictions].
        max_seqlen, max_rows: tokens, and rows, of the sequence that has most.
        counts: as :class:`pipeline_src.models.flops.Workload` counts them.
        examples: their numbers, int64 [sequences].
        draws: None where nothing is to be sampled.
    """

    ids: Tensor
    segments: Tensor
    cu_seqlens: Tensor
    predicted: Tensor
    labels: Tensor
    pair_label: Tensor
    rows: Tensor
    row_starts: Tensor
    predicted_rows: Tensor
    max_seqlen: int
    max_rows: int
    counts: dict[str, int]
    examples: np.ndarray
    draws: Tensor | None = None

    GIVEN = ("ids", "segments", "cu_seqlens", "predicted", "labels", "pair_label")
    TENSORS = (*GIVEN, "rows", "row_starts", "predicted_rows")

    @classmethod
    def of(cls, batch: PretrainingBatch) -> TensorBatch:
        """Make tensors of a micro-batch, on the host."""
        rows = np.union1d(batch.predicted, batch.cu_seqlens[:-1])
        arrays = {name: getattr(batch, name) for name in cls.GIVEN}
        arrays |= {
            "rows": rows,
            "row_starts": np.searchsorted(rows, batch.cu_seqlens),
            "predicted_rows": np.searchsorted(rows, batch.predicted),
        }
        lengths, read = np.diff(batch.cu_seqlens), np.diff(arrays["row_starts"])
        counts = {
            "sequences": len(lengths),
            "tokens": len(batch.ids),
            "squares": int(lengths @ lengths),
            "predictions": len(batch.labels),
            "rows": len(rows),
            "row_pairs": int(lengths @ read),
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return cls(
            **tensors,
            max_seqlen=batch.max_seqlen,
            max_rows=int(read.max()),
            counts=counts,
            examples=batch.examples,
            draws=None if batch.draws is None else torch.from_numpy(batch.draws),
        )


def tensor_batches(batches: Iterable[list[PretrainingBatch]]) -> Iterator[list[TensorBatch]]:
    """The micro-batches of every batch, as :meth:`TensorBatch.of` makes them."""
    for batch in batches:
        yield [TensorBatch.of(micro_batch) for micro_batch in batch]
