"""What is done to a text so that a model has something to predict in it, for each objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.members import stated
from pipeline_src.params.pretrain import Masking
from pipeline_src.pretraining.loading.left_to_right import LeftToRight
from pipeline_src.pretraining.loading.masking import MaskedLM
from pipeline_src.pretraining.loading.unmasked import Unmasked


class Corruption(Protocol):
    """Which tokens are predicted, where, and what the model sees; drawn as a batch is loaded.

    Attributes:
        label_shift: how many tokens after a place the one stands that is predicted there; 0 where it stood there
            itself, 1 from left to right.
    """

    label_shift: ClassVar[int]

    @property
    def dynamic(self) -> bool:
        """Whether every epoch draws anew."""

    def predictions(self, lengths: np.ndarray) -> np.ndarray:
        """How many tokens of an example of each length are predicted at most, int64."""

    def apply(self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt a batch of sequences laid end to end.

        Args:
            ids: token ids, int64 [tokens].
            lengths: tokens of each sequence, int64 [sequences].
            examples: number of each sequence in its sample index, int64 [sequences]; keys the draws. Another number
                gives other draws, which is how dynamic masking gets new ones in every epoch.

        Returns:
            What the model sees, int64 [tokens], and the places to predict at in ascending order, int64 [predictions].
        """

    def unseen(self, seen: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """True where a word is predicted from the context alone, bool [predictions].

        Args:
            seen: what the model sees at the places to predict at, int64 [predictions].
            labels: the tokens to predict there, int64 [predictions].
        """


# By the name that an objective's file gives as CORRUPTION; made from the tokenizer, mask_prob, masking and seed.
CORRUPTIONS: dict[str, Callable[[Tokenizer, float, Masking, int], Corruption]] = {
    "masked": MaskedLM.of,
    "left_to_right": LeftToRight.of,
    "unmasked": Unmasked.of,
}


def corruption_of(objective: str) -> Callable[[Tokenizer, float, Masking, int], Corruption]:
    """What makes the corruption that an objective learns from; nothing of torch is imported to find it."""
    return CORRUPTIONS[stated("objectives", objective, "CORRUPTION", "masked")]
