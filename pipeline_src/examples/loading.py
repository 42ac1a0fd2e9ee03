"""Batches of pretraining examples: a plan and its token shards in, flat unpadded arrays out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline_src.errors import PipelineError
from pipeline_src.examples.keyed import key
from pipeline_src.examples.masking import MaskedLM
from pipeline_src.examples.store import TokenStore


@dataclass(frozen=True)
class PretrainingBatch:
    """Sequences laid end to end, without padding.

    Attributes:
        ids: what the model sees, int64 [tokens].
        segments: 0 up to the first [SEP], 1 after it, int64 [tokens].
        starts: where each sequence starts, and the number of tokens, int64 [sequences + 1].
        predicted: places whose token is predicted, int64 [predictions].
        labels: the tokens that stood there, int64 [predictions].
        is_random: 1 where segment B is a random one (google-research/bert's label), int64 [sequences].
    """

    ids: np.ndarray
    segments: np.ndarray
    starts: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray
    is_random: np.ndarray


class PretrainingExamples:
    """The examples of one phase and split.

    Args:
        plan: ``data/examples/<phase>/<split>.npy``.
        store: the split's token shards.
        masked_lm: how to mask.
        cls_id, sep_id: ids of [CLS] and [SEP].
    """

    def __init__(self, plan: Path, store: TokenStore, masked_lm: MaskedLM, cls_id: int, sep_id: int) -> None:
        if not plan.exists():
            raise PipelineError("no plan of examples", plan, remedy="run the stage `examples`")
        self.plan = np.load(plan, mmap_mode="r")
        self.store, self.masked_lm, self.cls_id, self.sep_id = store, masked_lm, cls_id, sep_id

    def __len__(self) -> int:
        return len(self.plan)

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """The order of all examples in one epoch, keyed by seed and epoch, int64 [examples]."""
        return np.random.Generator(np.random.Philox(key=key(seed, "order", epoch))).permutation(len(self.plan))

    def batches(self, size: int, seed: int, first_step: int, steps: int) -> Iterator[PretrainingBatch]:
        """Yield the batches of steps ``first_step`` .. ``first_step + steps - 1``.

        Epoch after epoch without a break: a batch may hold the end of one and the start of the next.
        """
        epoch, order = -1, np.empty(0, np.int64)
        for step in range(first_step, first_step + steps):
            picked: list[int] = []
            for place in range(step * size, (step + 1) * size):
                if place // len(self.plan) != epoch:
                    epoch = place // len(self.plan)
                    order = self.order(seed, epoch)
                picked.append(int(order[place % len(self.plan)]))
            yield self.batch(np.asarray(picked))

    def batch(self, examples: np.ndarray) -> PretrainingBatch:
        """Assemble [CLS] A [SEP] B [SEP] for the examples of these numbers, and mask them."""
        pieces, lengths_a, lengths_b = [], [], []
        cls, sep = np.asarray([self.cls_id]), np.asarray([self.sep_id])
        rows = self.plan[examples]
        for a_start, a_stop, b_start, b_stop, _ in rows:
            pieces += [cls, self.store.span(a_start, a_stop), sep, self.store.span(b_start, b_stop), sep]
            lengths_a.append(a_stop - a_start + 2)
            lengths_b.append(b_stop - b_start + 1)
        ids = np.concatenate(pieces).astype(np.int64)
        both = np.stack([lengths_a, lengths_b], axis=1)
        lengths = both.sum(axis=1)
        seen, predicted = self.masked_lm.apply(ids, lengths, examples)
        return PretrainingBatch(
            ids=seen,
            segments=np.repeat(np.tile([0, 1], len(examples)), both.ravel()),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            predicted=predicted,
            labels=ids[predicted],
            is_random=rows[:, 4],
        )
