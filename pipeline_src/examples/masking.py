"""Choose the tokens to predict, and what the model sees in their place (the paper, section 3.1).

Masks depend only on the seed, the example and the position in it. They are therefore the same on any machine, in any
batch and for any number of workers, and need not be stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.counter_rng import derive_seed, uniform
from pipeline_src.base.registry import objective_spec
from pipeline_src.study.pretrain import Masking
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import read_templates

# Maximum number of words in a masked n-gram (google-research/albert, create_pretraining_data.py).
MAX_NGRAM = 3
# `shuffle` draws the random numbers of this many turns at once, which is faster than one turn at a time.
LOOKAHEAD_TURNS = 20


class Collator:
    """Chooses the tokens to predict and the model's input when a batch is loaded.

    This base class predicts no token and leaves the input unchanged.

    Attributes:
        label_shift: 0 if the output at position i predicts token i, 1 if it predicts token i + 1.
        dynamic: whether every epoch gets new masks.
    """

    label_shift: ClassVar[int] = 0

    @property
    def dynamic(self) -> bool:
        return False

    def num_predictions(self, lengths: np.ndarray) -> np.ndarray:
        """Return the maximum number of predicted tokens in a sequence of each length, int64 [lengths]."""
        return np.zeros_like(lengths)

    def apply(
        self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray, continues: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mask a batch of concatenated sequences.

        Args:
            ids: token ids of all sequences, int64 [tokens].
            lengths: number of tokens in each sequence, int64 [sequences].
            examples: for each sequence, an integer that seeds its random numbers, int64 [sequences]. It is the index
                of the example or, for dynamic masking, a different integer in every epoch.
            continues: which tokens continue the word before them, bool [tokens]. If None, the ids decide.

        Returns:
            The model's input ids, int64 [tokens], and the positions of the predicted tokens in ascending order, int64
            [predictions].
        """
        return ids, np.zeros(0, np.int64)

    def predicts_unseen(self, input_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return which predicted tokens the model cannot see in its input, bool [predictions].

        Both arguments have one entry for each prediction.
        """
        return np.zeros(len(labels), bool)


@dataclass(frozen=True)
class MLMCollator(Collator):
    """Chooses tokens to predict at random, and masks, replaces or keeps each in the input.

    Attributes:
        mask_prob: fraction of all tokens, special tokens included, to predict (0.15 in the paper).
        special: which ids are never predicted, bool [vocab_size]: padding, and special tokens unless they may be
            masked.
        continuation: which ids are subwords that continue a word, bool [vocab_size].
        replacements: ids from which random tokens are drawn, int64. If None, they are drawn from all ids, special
            tokens included, as in google-research/bert and albert, DeBERTa, DistilBERT and ModernBERT.
    """

    mask_prob: float
    masking: Masking
    mask_id: int
    special: np.ndarray
    continuation: np.ndarray
    seed: int
    replacements: np.ndarray | None = None

    @property
    def dynamic(self) -> bool:
        return self.masking.dynamic

    def num_predictions(self, lengths: np.ndarray) -> np.ndarray:
        # At least 1, as in google-research/bert.
        number = np.maximum(1, np.rint(self.mask_prob * lengths)).astype(np.int64)
        cap = self.masking.max_predictions
        return number if cap is None else np.minimum(number, cap)

    def apply(
        self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray, continues: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        predicted = self._choose(ids, lengths, examples, continues)
        # Random numbers depend on a token's position in its own sequence, so the batch does not change them.
        starts = np.cumsum(lengths) - lengths
        first = np.searchsorted(predicted, starts)
        counts = np.diff(first, append=len(predicted))
        sequence = np.repeat(np.arange(len(starts)), counts)
        positions = predicted - starts[sequence]
        random = uniform(derive_seed(self.seed, "fate"), examples[sequence], positions)
        input_ids = ids.copy()
        input_ids[predicted] = self._replace(ids[predicted], random)
        return input_ids, predicted

    def _choose(
        self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray, continues: np.ndarray | None
    ) -> np.ndarray:
        if continues is None:
            continues = self.continuation[ids]
        positions = np.flatnonzero(~self.special[ids])
        starts = np.cumsum(lengths) - lengths
        first = np.append(np.searchsorted(positions, starts), len(positions))
        maskable = Maskable(continues, positions, first, int(lengths.max(initial=0)))
        choose = UNITS[self.masking.unit]
        number = self.num_predictions(lengths)
        mask = choose(maskable, number, examples, derive_seed(self.seed, "choose"))
        return np.flatnonzero(mask)

    def _replace(self, ids: np.ndarray, random: np.ndarray) -> np.ndarray:
        # `random` has a number in [0, 1) for each of `ids`. It decides whether the id is masked, replaced or kept.
        masking = self.masking
        replaced = ids.copy()
        is_masked = random < masking.mask_ratio
        replaced[is_masked] = self.mask_id
        is_random = ~is_masked & (random < masking.mask_ratio + masking.random_ratio)
        # The same number also chooses the replacement. With mask_ratio 0.8 and random_ratio 0.1, tokens with numbers
        # from 0.8 to 0.9 are replaced, and 0.85 is halfway, so it takes the choice in the middle.
        share = (random[is_random] - masking.mask_ratio) / masking.random_ratio
        choices = self.replacements
        if choices is None:
            choices = np.arange(len(self.special))
        drawn = np.minimum(share * len(choices), len(choices) - 1).astype(np.int64)
        replaced[is_random] = choices[drawn]
        return replaced

    def predicts_unseen(self, input_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return input_ids == self.mask_id


@dataclass(frozen=True)
class CLMCollator(Collator):
    """Predicts every token but the first from the tokens before it (the paper, section 5.1, table 5)."""

    # Id of the special token that ends a sequence ([SEP]).
    end_id: int
    label_shift: ClassVar[int] = 1

    def num_predictions(self, lengths: np.ndarray) -> np.ndarray:
        return lengths - 1

    def apply(
        self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray, continues: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        predicted = np.ones(len(ids), bool)
        predicted[np.cumsum(lengths) - 1] = False
        return ids, np.flatnonzero(predicted)

    def predicts_unseen(self, input_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        # The result is compared with a unigram model, whose counts do not include special tokens.
        return labels != self.end_id


def make_collator(
    objective: str,
    tokenizer: Tokenizer,
    mask_prob: float,
    masking: Masking,
    seed: int,
    special_replacements: bool = True,
) -> Collator:
    """Return the collator that an objective's specification names."""
    corruption = objective_spec(objective).collator
    if corruption == "none":
        return Collator()
    templates = read_templates(tokenizer)
    if corruption == "clm":
        return CLMCollator(templates.single.special_ids[-1][-1])
    kind = kind_of(tokenizer)
    marks = [*templates.special_ids]
    pad_id = kind.id_of(tokenizer, kind.pad)
    special = np.zeros(tokenizer.get_vocab_size(), bool)
    special[pad_id] = True
    if not masking.mask_special_tokens:
        special[marks] = True
    replacements = None
    if not special_replacements:
        # fairseq never draws <s>, <pad>, </s> and <unk>. It can draw <mask>, which its dictionary treats as a word.
        unknown_id = kind.id_of(tokenizer, kind.unk)
        replacements = np.setdiff1d(np.arange(len(special)), [*marks, pad_id, unknown_id])
    mask_id = kind.id_of(tokenizer, kind.mask)
    return MLMCollator(mask_prob, masking, mask_id, special, kind.is_continuation(tokenizer), seed, replacements)


@dataclass(frozen=True)
class Maskable:
    """The tokens that may be predicted in a batch of concatenated sequences.

    Attributes:
        continues: which tokens continue the word before them, bool [tokens].
        positions: positions of the maskable tokens, ascending, int64 [maskable].
        first: index in ``positions`` of each sequence's first maskable token, int64 [sequences + 1]. The last entry is
            ``len(positions)``.
        max_seqlen: number of tokens in the longest sequence.
    """

    continues: np.ndarray
    positions: np.ndarray
    first: np.ndarray
    max_seqlen: int

    def words(self) -> tuple[np.ndarray, np.ndarray]:
        # Return the index in `positions` of each word's first token, and the index of each sequence's first word. One
        # entry is appended to each array: the number of maskable tokens, and the number of words. The first maskable
        # token of a sequence starts a word even if it is a continuation ("##ing").
        starts_word = ~self.continues[self.positions]
        starts_word[self.first[self.first < len(self.positions)]] = True
        word_starts = np.append(np.flatnonzero(starts_word), len(self.positions))
        return word_starts, np.searchsorted(word_starts, self.first)

    def mask(self, indices: np.ndarray) -> np.ndarray:
        # Return the mask, bool [tokens], that is True at `positions[indices]`. `indices` may be a boolean mask.
        mask = np.zeros(len(self.continues), bool)
        mask[self.positions[indices]] = True
        return mask


def token_mask(maskable: Maskable, number: np.ndarray, examples: np.ndarray, key: int) -> np.ndarray:
    """Choose single tokens at random (google-research/bert). Return a mask, bool [tokens].

    Args:
        number: number of tokens to mask in each sequence, int64 [sequences]. ``whole_word_mask`` and ``ngram_mask``,
            which take the same arguments, change it in place.
        examples: see ``Collator.apply``.
        key: random numbers depend on ``key`` and ``examples``.
    """
    # Each turn of `shuffle` gives a row with the next token of every sequence. The row that is appended keeps np.stack
    # from failing if there is no turn.
    most = int(number.max(initial=0))
    turns = islice(shuffle(maskable.first, examples, key), most)
    selected = np.stack([*turns, maskable.first[:-1]])
    # A sequence takes part in as many turns as it has tokens to mask.
    available = np.minimum(number, np.diff(maskable.first))
    turn = np.arange(len(selected))[:, None]
    return maskable.mask(selected[turn < available])


def whole_word_mask(maskable: Maskable, number: np.ndarray, examples: np.ndarray, key: int) -> np.ndarray:
    # Take words in random order. Skip a word that has more tokens than remain to be masked (google-research/bert).
    word_starts, first_word = maskable.words()
    words = np.diff(first_word)
    # `shuffle` may name words beyond the last; they have no tokens.
    sizes = np.pad(np.diff(word_starts), (0, maskable.max_seqlen))
    chosen = np.zeros(len(sizes), bool)
    for turn, word in enumerate(shuffle(first_word, examples, key)):
        # No words remain in these sequences.
        number[words <= turn] = 0
        size = sizes[word]
        fits = size <= number
        chosen[word[fits]] = True
        number -= size * fits
        if not number.any():
            break
    return maskable.mask(np.repeat(chosen, sizes))


def ngram_mask(maskable: Maskable, number: np.ndarray, examples: np.ndarray, key: int) -> np.ndarray:
    # Take words in random order, and mask an n-gram that starts there, with n = 1, 2 or 3 (google-research/albert). The
    # probability of n is proportional to 1 / n. If an n-gram has more tokens than remain to be masked, shorten it word
    # by word. If it overlaps a chosen one, skip it.
    word_starts, first_word = maskable.words()
    words = np.diff(first_word)
    # Number of tokens before each word. `shuffle` may name words beyond the last; they have no tokens.
    before = np.pad(word_starts, (0, maskable.max_seqlen + MAX_NGRAM), mode="edge")
    chosen = np.zeros(len(before), bool)
    # A random number below 1 means one word, below 1 + 1/2 two words, below 1 + 1/2 + 1/3 three words.
    bounds = np.cumsum(1 / np.arange(1, MAX_NGRAM + 1))
    run_key = derive_seed(key, "n")
    within_run = np.arange(MAX_NGRAM)
    for turn, word in enumerate(shuffle(first_word, examples, key)):
        # No words remain in these sequences.
        number[words <= turn] = 0
        # Draw n. If only two words remain in the sequence, the random number is below 1 + 1/2, so n is 1 or 2.
        most = np.clip(first_word[1:] - word, 1, MAX_NGRAM)
        random = uniform(run_key, examples, turn) * bounds[most - 1]
        length = 1 + np.searchsorted(bounds, random, side="right")
        # Shorten n-grams that have more tokens than remain to be masked.
        first_token = before[word]
        for _ in range(MAX_NGRAM - 1):
            too_long = before[word + length] - first_token > number
            length -= too_long & (length > 1)
        size = before[word + length] - first_token
        # Indices of three words from `word` on, [sequences, 3]. Only the first `length` words are in the n-gram.
        run = word[:, None] + within_run
        in_run = within_run < length[:, None]
        overlaps = (chosen[run] & in_run).any(1)
        fits = (size > 0) & (size <= number) & ~overlaps
        chosen[run[in_run & fits[:, None]]] = True
        number -= size * fits
        if not number.any():
            break
    return maskable.mask(np.repeat(chosen[: len(word_starts) - 1], np.diff(word_starts)))


# Value of pretrain.masking.unit -> function that chooses the tokens.
UNITS = {"token": token_mask, "whole_word": whole_word_mask, "ngram": ngram_mask}


def shuffle(first: np.ndarray, examples: np.ndarray, key: int) -> Iterator[np.ndarray]:
    """Shuffle each row of a ragged array lazily: one item of every row per turn (Fisher and Yates).

    Args:
        first: index of each row's first item, int64 [rows + 1]. The last entry is the total number of items.
        examples: an integer for each row, int64 [rows]. A row's random numbers depend on this integer and on ``key``.

    Yields:
        The index of every row's next item, int64 [rows]. If a row has no items left, its entry is meaningless, and may
        exceed the last index by up to the length of the longest row.
    """
    items = np.diff(first)
    width = int(items.max(initial=0))
    # A flat table, [rows * width], of item indices. Two rows of 2 and 3 items give 0 1 2 | 2 3 4, where the first 2 is
    # not an item of row 0. int32 is faster than int64, and a batch has fewer than 2^31 tokens.
    table = first[:-1, None].astype(np.int32) + np.arange(width, dtype=np.int32)
    order = table.ravel()
    row_start = np.arange(len(items)) * width
    for start in range(0, width, LOOKAHEAD_TURNS):
        turns = np.arange(start, min(start + LOOKAHEAD_TURNS, width))[:, None]
        # In turn t, draw one of the items t, t + 1, ... of a row, and move item t to the place of the drawn item.
        random = uniform(key, examples, turns)
        drawn = turns + (random * (items - turns)).astype(np.int64)
        for current, pick in zip(row_start + turns, row_start + drawn, strict=True):
            item = order[pick]
            order[pick] = order[current]
            yield item
