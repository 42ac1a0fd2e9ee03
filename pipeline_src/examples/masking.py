"""Which tokens are predicted, and what the model sees in their place (paper, section 3.1).

Masks are a function of (seed, example number, position), so they are the same on any machine, in any batch and for
any number of workers, and need no disk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pipeline_src.examples.keyed import key, uniform
from pipeline_src.params.pretrain import Masking


@dataclass(frozen=True)
class MaskedLM:
    """How to mask: rates and the ids it needs.

    Attributes:
        mask_prob: share of all tokens, [CLS] and [SEP] counted, that are predicted (0.15 in the paper).
        masking: what the model sees in place of a predicted token.
        mask_id: id of [MASK].
        special_ids: never predicted ([CLS], [SEP], [PAD]).
        entries: size of the vocabulary, from all of which random replacements are drawn.
        seed: keys every draw.
    """

    mask_prob: float
    masking: Masking
    mask_id: int
    special_ids: tuple[int, ...]
    entries: int
    seed: int

    def predictions(self, lengths: np.ndarray) -> np.ndarray:
        """How many tokens of an example of each length are predicted, int64, at least one (google-research/bert)."""
        wanted = np.maximum(1, np.rint(self.mask_prob * lengths)).astype(np.int64)
        cap = self.masking.max_predictions
        return wanted if cap is None else np.minimum(wanted, cap)

    def apply(self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mask a batch of sequences laid end to end.

        Args:
            ids: token ids, int64 [tokens].
            lengths: tokens of each sequence, int64 [sequences].
            examples: number of each sequence in its plan, int64 [sequences]; keys the draws.

        Returns:
            What the model sees, int64 [tokens], and the places to predict in ascending order, int64 [predictions].
        """
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.cumsum(lengths) - lengths
        position = np.arange(len(ids)) - starts[sequence]
        row = examples[sequence]
        # The k tokens with the lowest draws of each sequence are a uniform choice of k among its ordinary tokens.
        draw = uniform(key(self.seed, "choose"), row, position)
        draw[np.isin(ids, self.special_ids)] = math.inf
        order = np.lexsort((draw, sequence))
        rank = np.arange(len(ids)) - starts[sequence]  # `order` keeps the sequences where they are
        chosen = order[(rank < self.predictions(lengths)[sequence]) & np.isfinite(draw[order])]
        chosen.sort()

        seen = ids.copy()
        fate = uniform(key(self.seed, "fate"), row[chosen], position[chosen])
        word = uniform(key(self.seed, "word"), row[chosen], position[chosen])
        masked = fate < self.masking.mask
        random = ~masked & (fate < self.masking.mask + self.masking.random)
        seen[chosen[masked]] = self.mask_id
        seen[chosen[random]] = (word[random] * self.entries).astype(np.int64)
        return seen, chosen
