"""A text as it stands: nothing is masked, and no token is predicted (TinyBERT's general distillation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.params.pretrain import Masking


@dataclass(frozen=True)
class Unmasked:
    """The corruption (see corruption.py) that changes nothing."""

    label_shift: ClassVar[int] = 0
    dynamic: ClassVar[bool] = False

    @classmethod
    def of(cls, tokenizer: Tokenizer, mask_prob: float, masking: Masking, seed: int) -> Unmasked:
        """Nothing is asked of any of them."""
        return cls()

    def predictions(self, lengths: np.ndarray) -> np.ndarray:
        """None in any example, int64."""
        return np.zeros_like(lengths)

    def apply(self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids themselves, and no place; see :meth:`Corruption.apply`."""
        return ids, np.zeros(0, np.int64)

    def unseen(self, seen: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Of no prediction, bool [0]."""
        return np.zeros(len(labels), bool)
