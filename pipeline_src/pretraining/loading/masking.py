"""Which tokens are predicted, and what the model sees in their place (paper, section 3.1).

Masks are a function of (seed, example number, position), so they are the same on any machine, in any batch and for
any number of workers, and need no disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from pipeline_src.common.counter_rng import derive_seed, uniform
from pipeline_src.params.pretrain import Masking

DRAWN_AHEAD = 20  # turns of the shuffle whose draws are made at once; for speed alone


@dataclass(frozen=True)
class MaskedLM:
    """How to mask: rates, and what it must know of the vocabulary.

    Attributes:
        mask_prob: share of all tokens, [CLS] and [SEP] counted, that are predicted (0.15 in the paper).
        masking: what the model sees in place of a predicted token, and whether whole words are chosen.
        mask_id: id of [MASK].
        special: whether an id is never predicted ([CLS], [SEP], [PAD]), bool [entries].
        inner: whether an id continues a word (``##``), bool [entries].
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
        """Mask a batch of sequences laid end to end.

        Args:
            ids: token ids, int64 [tokens].
            lengths: tokens of each sequence, int64 [sequences].
            examples: number of each sequence in its plan, int64 [sequences]; keys the draws. Another number gives
                other masks, which is how dynamic masking gets new ones in every epoch.

        Returns:
            What the model sees, int64 [tokens], and the places to predict in ascending order, int64 [predictions].
        """
        starts = np.cumsum(lengths) - lengths
        chosen = self._choose(ids, lengths, starts, examples, derive_seed(self.seed, "choose"))
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
        """True where a prediction is made from the context alone, bool [predictions].

        Args:
            seen: what the model sees at the places to predict, int64 [predictions].
            labels: the tokens that stand there, int64 [predictions].
        """
        return seen == self.mask_id

    def _choose(
        self, ids: np.ndarray, lengths: np.ndarray, starts: np.ndarray, examples: np.ndarray, stream: int
    ) -> np.ndarray:
        """Places to predict, in ascending order, int64; chosen as google-research/bert chooses them.

        The words (single tokens, without ``whole_word``) are shuffled and taken one after another, leaving out a word
        that would be one too many, until enough tokens are taken.
        """
        wanted = self.predictions(lengths)
        predicted = np.zeros(len(ids), bool)
        tokens = np.flatnonzero(~self.special[ids])
        first = np.searchsorted(tokens, starts)  # each sequence's first ordinary token
        if not self.masking.whole_word:
            turns = shuffle(np.append(first, len(tokens)), examples, stream)
            taken = np.stack([*islice(turns, int(wanted.max(initial=0))), first])
            enough = np.minimum(wanted, np.diff(first, append=len(tokens)))
            predicted[tokens[taken[np.arange(len(taken))[:, None] < enough]]] = True
            return np.flatnonzero(predicted)
        opens = ~self.inner[ids[tokens]]
        opens[first[first < len(tokens)]] = True  # a piece cut off from its word starts one
        word_starts = np.append(np.flatnonzero(opens), len(tokens))
        sizes = np.pad(np.diff(word_starts), (0, int(lengths.max())))
        first_word = np.searchsorted(word_starts, np.append(first, len(tokens)))
        words, chosen = np.diff(first_word), np.zeros(len(sizes), bool)
        for turn, word in enumerate(shuffle(first_word, examples, stream)):
            wanted[words <= turn] = 0  # no word is left
            fits = sizes[word] <= wanted
            chosen[word[fits]] = True
            wanted -= sizes[word] * fits
            if not wanted.any():
                break
        predicted[tokens[np.repeat(chosen, sizes)]] = True
        return np.flatnonzero(predicted)


def shuffle(first: np.ndarray, examples: np.ndarray, stream: int) -> Iterator[np.ndarray]:
    """Shuffle the items of many rows side by side, as far as the caller goes on (Fisher and Yates).

    Args:
        first: number of each row's first item, and the number of all items, int64 [rows + 1].
        examples: what the draws of each row are keyed by, int64 [rows].
        stream: keys them too.

    Yields:
        The next item of every row, int64 [rows]; without meaning for a row that has no item left, and then perhaps
        as much as the longest row's items beyond the last one.
    """
    items = np.diff(first)
    width = int(items.max(initial=0))
    # four bytes an item, which is faster than eight: a batch never holds 2^31 tokens
    order = (first[:-1, None].astype(np.int32) + np.arange(width, dtype=np.int32)).ravel()
    row = np.arange(len(items)) * width
    for start in range(0, width, DRAWN_AHEAD):
        turns = np.arange(start, min(start + DRAWN_AHEAD, width))[:, None]
        picks = row + turns + (uniform(stream, examples, turns) * (items - turns)).astype(np.int64)
        for turn, pick in zip(row + turns, picks, strict=True):
            item = order[pick]
            order[pick] = order[turn]
            yield item
