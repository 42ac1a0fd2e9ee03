"""Batches of a task's features: items picked, their sequences laid end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.tasks.features import Features
from pipeline_src.training.cutting import cut_evenly, cut_in_order

POOL = 16  # batches whose items are sorted by length together


@dataclass(frozen=True)
class TaskBatch:
    """Tensors of a few items: ids, segments [T], starts [B + 1] as in ``models.bert.Bert``, and their labels.

    Attributes:
        losses: how many there are; the task's loss is their mean.
        lengths: tokens of each sequence, on the host, so that nobody waits for a GPU to tell them, int64 [B].
        examples: the items' numbers.
    """

    ids: Tensor
    segments: Tensor
    cu_seqlens: Tensor
    labels: Tensor
    losses: int
    lengths: np.ndarray
    examples: np.ndarray

    @property
    def counts(self) -> dict[str, int]:
        """How many losses there are, by term."""
        return {"task": self.losses}

    @property
    def layout(self) -> PackedLayout:
        """Where the sequences lie."""
        return PackedLayout.of(self.cu_seqlens, len(self.ids), int(self.lengths.max()))


def make_batch(features: Features, items: np.ndarray) -> TaskBatch:
    """Gather the sequences of ``items`` (numbers, int64) in that order, on the host."""
    places, cu_seqlens = features.tokens_of(items)
    labels = features.labels_of(items)
    return TaskBatch(
        torch.from_numpy(features.ids[places].astype(np.int64)),
        torch.from_numpy(features.segments[places].astype(np.int64)),
        torch.from_numpy(cu_seqlens),
        torch.from_numpy(np.ascontiguousarray(labels)),
        features.loss_count(labels),
        np.diff(cu_seqlens),
        items,
    )


def training_batches(
    features: Features, batch: int, epochs: int, stream: int, max_tokens: int, done: int = 0
) -> Iterator[list[TaskBatch]]:
    """Yield batches in pieces of at most ``max_tokens`` tokens, after ``done`` batches.

    Every item comes once an epoch, in an order keyed by ``stream`` and the epoch; the items of POOL batches are sorted
    by length, so that a batch holds similar ones, and the batches shuffled again. An epoch's last batch may be smaller.
    """
    per_epoch = -(-features.items // batch)
    for epoch in range(done // per_epoch, epochs):
        order = epoch_order(features, batch, stream, epoch)
        for items in order[done - epoch * per_epoch if epoch == done // per_epoch else 0 :]:
            yield [make_batch(features, items[piece]) for piece in cut_evenly(features.lengths[items], max_tokens)]


def epoch_order(features: Features, batch: int, stream: int, epoch: int) -> list[np.ndarray]:
    """The items of each batch of an epoch, as :func:`training_batches` says."""
    draw = np.random.Generator(np.random.Philox(key=derive_seed(stream, epoch)))
    order, lengths = draw.permutation(features.items), features.lengths
    batches: list[np.ndarray] = []
    for first in range(0, len(order), POOL * batch):
        pool = order[first : first + POOL * batch]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        cut = [pool[at : at + batch] for at in range(0, len(pool), batch)]
        batches += [cut[place] for place in draw.permutation(len(cut))]
    return batches


def evaluation_batches(features: Features, tokens: int) -> Iterator[TaskBatch]:
    """Yield every item once, the longest first, as many at once as fit into about ``tokens`` tokens."""
    order = np.argsort(-features.lengths, kind="stable")
    for piece in cut_in_order(features.lengths[order], tokens):
        yield make_batch(features, order[piece])
