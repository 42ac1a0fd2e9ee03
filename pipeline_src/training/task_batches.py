"""Batches of a task's features: items picked, their sequences laid end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline_src.examples.keyed import key
from pipeline_src.tasks.features import Features


@dataclass(frozen=True)
class TaskBatch:
    """Tensors of a few items: ids, segments [T], starts [B + 1] as in ``models.bert.Bert``, labels one row per item.

    ``examples`` are the items' numbers.
    """

    ids: Tensor
    segments: Tensor
    starts: Tensor
    labels: Tensor
    examples: np.ndarray

    @property
    def counts(self) -> dict[str, int]:
        """How many losses the task's is the mean of."""
        return {"task": len(self.labels)}


def make_batch(features: Features, items: np.ndarray, device: torch.device) -> TaskBatch:
    """Gather the sequences of ``items`` (numbers, int64) in that order."""
    sequences = (items[:, None] * features.per_item + np.arange(features.per_item)).ravel()
    first, lengths = features.starts[sequences], np.diff(features.starts)[sequences]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(starts[-1]) + np.repeat(first - starts[:-1], lengths)

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device, non_blocking=True)

    return TaskBatch(
        tensor(features.ids[places].astype(np.int64)),
        tensor(features.segments[places].astype(np.int64)),
        tensor(starts),
        tensor(features.labels[items]),
        items,
    )


def training_batches(
    features: Features, size: int, epochs: int, stream: int, device: torch.device
) -> Iterator[TaskBatch]:
    """Yield every item once an epoch, in an order keyed by ``stream`` and the epoch; the last batch may be smaller."""
    for epoch in range(epochs):
        order = np.random.Generator(np.random.Philox(key=key(stream, epoch))).permutation(features.items)
        for first in range(0, len(order), size):
            yield make_batch(features, order[first : first + size], device)


def evaluation_batches(features: Features, tokens: int, device: torch.device) -> Iterator[TaskBatch]:
    """Yield the items in order, as many at once as fit into about ``tokens`` tokens."""
    ends = features.starts[features.per_item :: features.per_item]
    first = 0
    while first < features.items:
        begin = features.starts[first * features.per_item]
        last = max(first + 1, int(np.searchsorted(ends, begin + tokens, side="right")))
        yield make_batch(features, np.arange(first, last), device)
        first = last
