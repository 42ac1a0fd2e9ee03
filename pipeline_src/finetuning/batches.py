"""Batches of a task's features: items picked, their sequences laid end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.tasks.features import Features

POOL = 16  # batches whose items are sorted by length together


@dataclass(frozen=True)
class TaskBatch:
    """Tensors of a few items: ids, segments [T], starts [B + 1] as in ``models.bert.Bert``, and their labels.

    Attributes:
        losses: how many there are; the task's loss is their mean.
        max_seqlen: tokens of the longest sequence.
        examples: the items' numbers.
    """

    ids: Tensor
    segments: Tensor
    cu_seqlens: Tensor
    labels: Tensor
    losses: int
    max_seqlen: int
    examples: np.ndarray

    @property
    def counts(self) -> dict[str, int]:
        """How many losses there are, by term."""
        return {"task": self.losses}


def make_batch(features: Features, items: np.ndarray, device: torch.device) -> TaskBatch:
    """Gather the sequences of ``items`` (numbers, int64) in that order."""
    places, cu_seqlens = features.tokens_of(items)
    labels = features.labels_of(items)

    def tensor(values: np.ndarray) -> Tensor:
        on_cpu = torch.from_numpy(np.ascontiguousarray(values))
        return on_cpu.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else on_cpu

    return TaskBatch(
        tensor(features.ids[places].astype(np.int64)),
        tensor(features.segments[places].astype(np.int64)),
        tensor(cu_seqlens),
        tensor(labels),
        features.loss_count(labels),
        int(np.diff(cu_seqlens).max()),
        items,
    )


def training_batches(
    features: Features, batch: int, epochs: int, stream: int, max_tokens: int, device: torch.device, done: int = 0
) -> Iterator[list[TaskBatch]]:
    """Yield batches in pieces of at most ``max_tokens`` tokens, after ``done`` batches.

    Every item comes once an epoch, in an order keyed by ``stream`` and the epoch; the items of POOL batches are sorted
    by length, so that a batch holds similar ones, and the batches shuffled again. An epoch's last batch may be smaller.
    """
    per_epoch = -(-features.items // batch)
    for epoch in range(done // per_epoch, epochs):
        order = epoch_order(features, batch, stream, epoch)
        for items in order[done - epoch * per_epoch if epoch == done // per_epoch else 0 :]:
            yield [make_batch(features, piece, device) for piece in cut_by_tokens(features, items, max_tokens)]


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


def cut_by_tokens(features: Features, items: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Cut ``items`` into runs of about ``tokens`` tokens at most, at least one item each."""
    ends = np.cumsum(features.lengths[items])
    cuts = [0]
    while cuts[-1] < len(items):
        before = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, before + tokens, side="right"))))
    return [items[first:last] for first, last in zip(cuts, cuts[1:], strict=False)]


def evaluation_batches(features: Features, tokens: int, device: torch.device) -> Iterator[TaskBatch]:
    """Yield every item once, the longest first, as many at once as fit into about ``tokens`` tokens."""
    order = np.argsort(-features.lengths, kind="stable")
    for piece in cut_by_tokens(features, order, tokens):
        yield make_batch(features, piece, device)
