"""What a model is fed for a task: token sequences laid end to end, without padding."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Features:
    """Sequences of one data file, in the order of its examples.

    Attributes:
        ids: token ids of all sequences end to end, int32 [tokens].
        segments: 0 for the first segment with [CLS] and its [SEP], 1 for the second, int8 [tokens].
        starts: where each sequence starts, and the end of the last one, int64 [sequences + 1].
        per_item: sequences that make one item to be judged (1; the number of choices in SWAG).
        labels: one row per item: int64 [items] for classes, float32 [items] for a regression, int64 [items, 2] for
            the first and last token of a span, counted from the start of its sequence (0, 0: no answer here).
        example: which example each item came from, int64 [items] (a long context makes several items).
        counts: how many sequences were cut, answers not found and the like, by reason.
    """

    ids: np.ndarray
    segments: np.ndarray
    starts: np.ndarray
    labels: np.ndarray
    example: np.ndarray
    per_item: int = 1
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def items(self) -> int:
        """How many items there are."""
        return (len(self.starts) - 1) // self.per_item
