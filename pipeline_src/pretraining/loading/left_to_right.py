"""Predict every next token from those before it: the paper's left-to-right model (section 5.1, table 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class LeftToRight:
    """Every token but the first of its sequence is predicted at the place before it; nothing is masked.

    Attributes:
        sep_id: id of [SEP].
        label_shift: how many tokens after a place the one stands that is predicted there.
        dynamic: whether every epoch draws anew; nothing is drawn.
    """

    sep_id: int
    label_shift: ClassVar[int] = 1
    dynamic: ClassVar[bool] = False

    def predictions(self, lengths: np.ndarray) -> np.ndarray:
        """How many tokens of an example of each length are predicted, int64."""
        return lengths - 1

    def apply(self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As ``MaskedLM.apply`` (masking.py): all is seen; every place but a sequence's last predicts."""
        predicted = np.ones(len(ids), bool)
        predicted[np.cumsum(lengths) - 1] = False
        return ids, np.flatnonzero(predicted)

    def unseen(self, seen: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """True for every word: [SEP], which the text's counts know nothing of, is left out, bool [predictions]."""
        return labels != self.sep_id
