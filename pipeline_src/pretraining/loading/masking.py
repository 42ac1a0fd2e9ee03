"""Masked words: what the model sees in place of the tokens that it is to predict (paper, section 3.1).

Masks are a function of (seed, example number, position), so they are the same on any machine, in any batch and for
any number of workers, and need no disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.counter_rng import derive_seed, uniform
from pipeline_src.params.pretrain import Masking
from pipeline_src.pretraining.loading.choosing import UNITS, Candidates
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.load import kind_of


@dataclass(frozen=True)
class MaskedLM:
    """The corruption (see corruption.py) of masked language models.

    Attributes:
        mask_prob: share of all tokens, marks counted, that are predicted (0.15 in the paper).
        masking: what the model sees in place of a predicted token, and what is chosen together.
        mask_id: id of the mask.
        special: whether an id is never predicted (padding, and marks unless they may be), bool [entries].
        inner: whether an id continues a word, bool [entries].
        seed: keys every draw.
        label_shift: how many tokens after a place the one stands that is predicted there; 0, it stood there itself.
    """

    mask_prob: float
    masking: Masking
    mask_id: int
    special: np.ndarray
    inner: np.ndarray
    seed: int
    label_shift: ClassVar[int] = 0

    @classmethod
    def of(cls, tokenizer: Tokenizer, mask_prob: float, masking: Masking, seed: int) -> MaskedLM:
        """Look up what it must know of the vocabulary."""
        kind, special = kind_of(tokenizer), np.zeros(tokenizer.get_vocab_size(), bool)
        marks = [] if masking.specials else read_frames(tokenizer).marks
        special[[*marks, kind.id_of(tokenizer, kind.pad)]] = True
        mask_id, inner = kind.id_of(tokenizer, kind.mask), kind.inner_pieces(tokenizer)
        return cls(mask_prob, masking, mask_id, special, inner, seed)

    @property
    def dynamic(self) -> bool:
        """Whether every epoch draws new masks."""
        return self.masking.dynamic

    def predictions(self, lengths: np.ndarray) -> np.ndarray:
        """How many tokens of an example of each length are predicted, int64, at least one (google-research/bert)."""
        wanted = np.maximum(1, np.rint(self.mask_prob * lengths)).astype(np.int64)
        cap = self.masking.max_predictions
        return wanted if cap is None else np.minimum(wanted, cap)

    def apply(self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose the tokens to predict, and mask them; see :meth:`Corruption.apply`."""
        starts = np.cumsum(lengths) - lengths
        places = np.flatnonzero(~self.special[ids])
        first = np.append(np.searchsorted(places, starts), len(places))
        candidates = Candidates(ids, places, first, self.inner, int(lengths.max(initial=0)))
        choose = UNITS[self.masking.spans]
        chosen = choose(candidates, self.predictions(lengths), examples, derive_seed(self.seed, "choose"))
        sequence = np.repeat(np.arange(len(starts)), np.diff(np.searchsorted(chosen, starts), append=len(chosen)))
        row, position = examples[sequence], chosen - starts[sequence]
        fate = uniform(derive_seed(self.seed, "fate"), row, position)
        random = (fate >= self.masking.mask) & (fate < self.masking.mask + self.masking.random)
        # where the draw lies within the interval that stands for a random token is itself uniform
        word = (fate[random] - self.masking.mask) / self.masking.random
        seen = ids.copy()
        seen[chosen[fate < self.masking.mask]] = self.mask_id
        seen[chosen[random]] = np.minimum(word * len(self.special), len(self.special) - 1).astype(np.int64)
        return seen, chosen

    def unseen(self, seen: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """True where the model sees a mask; see :meth:`Corruption.unseen`."""
        return seen == self.mask_id
