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
        cu_seqlens: where each sequence starts, and the end of the last one, int64 [sequences + 1].
        per_item: sequences that make one item, which gets one answer (1; the number of choices in SWAG).
        labels: one row per item: int64 [items] for classes, float32 [items] for a regression, int64 [items, 2] for
            the first and last token of a span, counted from the start of its sequence (0, 0: no answer here).
        example: which example each item came from, int64 [items] (a long context makes several items).
        counts: how many sequences were cut, answers not found and the like, by reason.
    """

    ids: np.ndarray
    segments: np.ndarray
    cu_seqlens: np.ndarray
    labels: np.ndarray
    example: np.ndarray
    per_item: int = 1
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def items(self) -> int:
        """How many items there are."""
        return (len(self.cu_seqlens) - 1) // self.per_item

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each item, all its sequences together, int64 [items]."""
        return np.diff(self.cu_seqlens[:: self.per_item])

    def tokens_of(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of ``items`` (numbers, int64) lie, item by item, and where each of their sequences starts.

        Returns:
            Places in ``ids``, int64 [tokens]; starts among these and their end, int64 [sequences + 1].
        """
        sequences = (items[:, None] * self.per_item + np.arange(self.per_item)).ravel()
        first, lengths = self.cu_seqlens[sequences], self.cu_seqlens[sequences + 1] - self.cu_seqlens[sequences]
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
        return np.arange(cu_seqlens[-1]) + np.repeat(first - cu_seqlens[:-1], lengths), cu_seqlens

    def labels_of(self, items: np.ndarray) -> np.ndarray:
        """Labels of ``items``, in that order."""
        return self.labels[items]

    def loss_count(self, labels: np.ndarray) -> int:
        """How many losses the mean over these labels is taken of."""
        return len(labels)


NO_TAG = -100  # label of a token that is not scored; torch's cross-entropy passes it over


@dataclass(frozen=True, kw_only=True)
class TokenFeatures(Features):
    """Features whose labels stand at tokens: ``labels`` is int64 [tokens], ``NO_TAG`` where a token has none.

    Attributes:
        word: which word's tag is read at the token, counted over all examples from 0, int64 [tokens]; -1 for none.
    """

    word: np.ndarray

    def labels_of(self, items: np.ndarray) -> np.ndarray:
        """Labels of the tokens of ``items``, int64 [tokens]."""
        return self.labels[self.tokens_of(items)[0]]

    def loss_count(self, labels: np.ndarray) -> int:
        """The tokens that have a label."""
        return int(np.count_nonzero(labels != NO_TAG))
