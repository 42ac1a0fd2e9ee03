"""Choose the tokens to predict, and what the model sees in their place (paper, section 3.1).

Masks depend only on seed, example and position. So they are the same on any machine, in any batch and for any
number of workers, and need not be stored.
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

# Words in a masked run at most (google-research/albert, create_pretraining_data.py).
MAX_NGRAM = 3
# Turns of the shuffle whose random numbers are made together, for speed.
LOOKAHEAD_TURNS = 20


class Collator:
    """Chooses, when a batch is loaded, the tokens to predict and the model's input; this base class predicts no token.

    Attributes:
        label_shift: 0 if the output at position i predicts token i, 1 if it predicts token i + 1.
        dynamic: whether every epoch gets new masks.
    """

    label_shift: ClassVar[int] = 0

    @property
    def dynamic(self) -> bool:
        return False

    def num_predictions(self, lengths: np.ndarray) -> np.ndarray:
        """Return, for each of ``lengths``, the maximum number of predicted tokens in an example, int64."""
        return np.zeros_like(lengths)

    def apply(
        self, ids: np.ndarray, lengths: np.ndarray, examples: np.ndarray, continues: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mask a batch of sequences laid end to end.

        Args:
            ids: token ids, int64 [tokens].
            lengths: tokens of each sequence, int64 [sequences].
            examples: for each sequence, an integer that seeds its random numbers, int64 [sequences]: the index of its
                example, or for dynamic masking another integer in every epoch.
            continues: which tokens continue the word before them, bool [tokens]; None: derived from ``ids``.

        Returns:
            Input ids, int64 [tokens], and the positions to predict at in ascending order, int64 [predictions].
        """
        return ids, np.zeros(0, np.int64)

    def predicts_unseen(self, input_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return which tokens are predicted from their context alone, bool; all arrays are [predictions]."""
        return np.zeros(len(labels), bool)


@dataclass(frozen=True)
class MLMCollator(Collator):
    """Chooses some tokens to predict; in the input, masks, replaces or keeps each.

    Attributes:
        mask_prob: share of all tokens, special tokens included, that are predicted (0.15 in the paper).
        special: which ids are never predicted (padding; special tokens unless they may be masked), bool [vocab_size].
        continuation: which ids are subwords that continue a word, bool [vocab_size].
        replacements: ids from which random tokens are drawn, int64; None: all, special tokens included, as in
            google-research/bert and albert, DeBERTa, DistilBERT and ModernBERT.
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
        # Random numbers depend on a token's position in its sequence, so that they are the same in any batch.
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
        # `random` is a number in [0, 1) for each of the predicted `ids`.
        masking = self.masking
        replaced = ids.copy()
        is_masked = random < masking.mask_ratio
        replaced[is_masked] = self.mask_id
        is_random = ~is_masked & (random < masking.mask_ratio + masking.random_ratio)
        # A number in the interval for a random token is uniform there, and so chooses the token.
        # With ratios of 0.8 and 0.1, a random number of 0.85 is halfway, and takes the middle of the choices.
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
    """Predicts every token but the first from the text before it (paper, section 5.1, table 5); masks nothing."""

    # The id of the special token after a text ([SEP]).
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
        # The unigram counts do not include special tokens.
        return labels != self.end_id


def make_collator(
    objective: str,
    tokenizer: Tokenizer,
    mask_prob: float,
    masking: Masking,
    seed: int,
    special_replacements: bool = True,
) -> Collator:
    """Return the collator of an objective, without importing the objective."""
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
        # The special symbols of fairseq's dictionary are <s>, <pad>, </s> and <unk>; <mask> is one of its words.
        unknown_id = kind.id_of(tokenizer, kind.unk)
        replacements = np.setdiff1d(np.arange(len(special)), [*marks, pad_id, unknown_id])
    mask_id = kind.id_of(tokenizer, kind.mask)
    return MLMCollator(mask_prob, masking, mask_id, special, kind.is_continuation(tokenizer), seed, replacements)


@dataclass(frozen=True)
class Maskable:
    """The tokens that may be predicted in a batch of sequences laid end to end.

    Attributes:
        continues: which tokens continue the word before them, bool [tokens].
        positions: positions of the maskable tokens, ascending, int64 [maskable].
        first: index in ``positions`` of each sequence's first maskable token, then their total, int64 [sequences + 1].
        max_seqlen: number of tokens in the longest sequence.
    """

    continues: np.ndarray
    positions: np.ndarray
    first: np.ndarray
    max_seqlen: int

    def words(self) -> tuple[np.ndarray, np.ndarray]:
        # Returns the start of each word, as an index in `positions`, and the index of each sequence's first word. The
        # last entries are the numbers of maskable tokens and of words. A subword whose word began in another sequence
        # starts a word.
        starts_word = ~self.continues[self.positions]
        starts_word[self.first[self.first < len(self.positions)]] = True
        word_starts = np.append(np.flatnonzero(starts_word), len(self.positions))
        return word_starts, np.searchsorted(word_starts, self.first)

    def mask(self, indices: np.ndarray) -> np.ndarray:
        # The mask, bool [tokens], of the tokens at `positions[indices]`; `indices` may be a mask too.
        mask = np.zeros(len(self.continues), bool)
        mask[self.positions[indices]] = True
        return mask


def token_mask(maskable: Maskable, number: np.ndarray, examples: np.ndarray, key: int) -> np.ndarray:
    """Return the mask, bool [tokens], of single tokens chosen at random (google-research/bert).

    Args:
        number: how many tokens to mask in each sequence, int64 [sequences]; the other functions of ``UNITS``, which
            have the same arguments, change it in place.
        examples: as in ``Collator.apply``; they and ``key`` determine the random numbers.
    """
    # A row for each turn: the next token of every sequence.
    # One row more, so that there is one without any turn.
    most = int(number.max(initial=0))
    turns = islice(shuffle(maskable.first, examples, key), most)
    selected = np.stack([*turns, maskable.first[:-1]])
    # A sequence of `available` tokens takes part in that many turns.
    available = np.minimum(number, np.diff(maskable.first))
    turn = np.arange(len(selected))[:, None]
    return maskable.mask(selected[turn < available])


def whole_word_mask(maskable: Maskable, number: np.ndarray, examples: np.ndarray, key: int) -> np.ndarray:
    # Words come in random order; a word that has more tokens than remain to mask is skipped (google-research/bert).
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
    # Runs of one to three words start at words in random order; n words have probability proportional to 1 / n. A run
    # that is too long is shortened word by word. A run that overlaps another is skipped (google-research/albert).
    word_starts, first_word = maskable.words()
    words = np.diff(first_word)
    # Number of tokens before each word. `shuffle` may name words beyond the last; they have no tokens.
    before = np.pad(word_starts, (0, maskable.max_seqlen + MAX_NGRAM), mode="edge")
    chosen = np.zeros(len(before), bool)
    # Bounds of the intervals for 1, 2 and 3 words: 1, 1 + 1/2, 1 + 1/2 + 1/3.
    bounds = np.cumsum(1 / np.arange(1, MAX_NGRAM + 1))
    run_key = derive_seed(key, "n")
    within_run = np.arange(MAX_NGRAM)
    for turn, word in enumerate(shuffle(first_word, examples, key)):
        # No words remain in these sequences.
        number[words <= turn] = 0
        # Draw the number of words. At the end of a sequence, fewer are possible: a random number below 1 + 1/2 gives
        # one word or two.
        most = np.clip(first_word[1:] - word, 1, MAX_NGRAM)
        random = uniform(run_key, examples, turn) * bounds[most - 1]
        length = 1 + np.searchsorted(bounds, random, side="right")
        # Shorten runs of more tokens than remain to mask.
        first_token = before[word]
        for _ in range(MAX_NGRAM - 1):
            too_long = before[word + length] - first_token > number
            length -= too_long & (length > 1)
        size = before[word + length] - first_token
        # The words of each run, [sequences, 3], of which the first `length` count.
        run = word[:, None] + within_run
        in_run = within_run < length[:, None]
        overlaps = (chosen[run] & in_run).any(1)
        fits = (size > 0) & (size <= number) & ~overlaps
        chosen[run[in_run & fits[:, None]]] = True
        number -= size * fits
        if not number.any():
            break
    return maskable.mask(np.repeat(chosen[: len(word_starts) - 1], np.diff(word_starts)))


# Keys are values of pretrain.masking.unit.
UNITS = {"token": token_mask, "whole_word": whole_word_mask, "ngram": ngram_mask}


def shuffle(first: np.ndarray, examples: np.ndarray, key: int) -> Iterator[np.ndarray]:
    """Shuffle the items of each row of a ragged array, only as far as the caller iterates (Fisher and Yates).

    Args:
        first: index of each row's first item, then the number of all items, int64 [rows + 1].
        examples: an integer for each row, int64 [rows]; it and ``key`` determine the row's random numbers.

    Yields:
        The index of every row's next item, int64 [rows]. For a row without further items it is meaningless, and may
        exceed the last index by the length of the longest row.
    """
    items = np.diff(first)
    width = int(items.max(initial=0))
    # A flat table, [rows * width], of every row's items. Rows of 2 and 3 items: 0 1 2 | 2 3 4.
    # int32 is faster, and a batch has fewer than 2^31 tokens.
    table = first[:-1, None].astype(np.int32) + np.arange(width, dtype=np.int32)
    order = table.ravel()
    row_start = np.arange(len(items)) * width
    for start in range(0, width, LOOKAHEAD_TURNS):
        turns = np.arange(start, min(start + LOOKAHEAD_TURNS, width))[:, None]
        # In turn t, a row draws one of its items t, t + 1, ..., and item t takes its place.
        random = uniform(key, examples, turns)
        drawn = turns + (random * (items - turns)).astype(np.int64)
        for current, pick in zip(row_start + turns, row_start + drawn, strict=True):
            item = order[pick]
            order[pick] = order[current]
            yield item
