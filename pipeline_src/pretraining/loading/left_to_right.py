"""Predict every next token from those before it: the paper's left-to-right model (section 5.1, table 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.params.pretrain import Masking
from pipeline_src.tokenizer.frame import read_frames


@dataclass(frozen=True)
class LeftToRight:
    """Every token but the first of its sequence is predicted at the place before it; nothing is masked.

    Attributes:
        end_id: id of the mark after a text ([SEP]).
        label_shift: how many tokens after a place the one stands that is predicted there.
        dynamic: whether every epoch draws anew; nothing is drawn.
    """

    end_id: int
    label_shift: ClassVar[int] = 1
    dynamic: ClassVar[bool] = False

    @classmethod
    def of(cls, tokenizer: Tokenizer, mask_prob: float, masking: Masking, seed: int) -> LeftToRight:
        """Look up the mark after a text; nothing is masked or drawn."""
        return cls(read_frames(tokenizer).single.marks[-1][-1])

    def predictions(self, lengths: np.ndarray) -> np.ndarray:
        """How many tokens of an example of each length are predicted, int64."""
        return lengths - 1

    def apply(self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All is seen; every place but a sequence's last predicts; see :meth:`Corruption.apply`."""
        predicted = np.ones(len(ids), bool)
        predicted[np.cumsum(lengths) - 1] = False
        return ids, np.flatnonzero(predicted)

    def unseen(self, seen: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """True for every word: marks, which the text's counts know nothing of, are left out, bool [predictions]."""
        return labels != self.end_id
