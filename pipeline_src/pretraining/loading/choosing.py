"""Which tokens of a sequence are predicted: single tokens, whole words or runs of these, drawn without replacement.

A way of choosing is one function of :data:`UNITS`, by ``pretrain.masking.spans``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pipeline_src.common.counter_rng import derive_seed, uniform

LONGEST_NGRAM = 3  # words; google-research/albert, create_pretraining_data.py
DRAWN_AHEAD = 20  # turns of the shuffle whose draws are made at once; for speed alone


@dataclass(frozen=True)
class Candidates:
    """The tokens of a batch of sequences, laid end to end, that may be predicted.

    Attributes:
        ids: of all tokens, int64 [tokens].
        places: of those that may be predicted, ascending, int64 [candidates].
        first: number of each sequence's first candidate, and the number of all, int64 [sequences + 1].
        inner: whether an id continues a word, bool [entries].
        longest: tokens of the longest sequence.
    """

    ids: np.ndarray
    places: np.ndarray
    first: np.ndarray
    inner: np.ndarray
    longest: int


# From the candidates, how many tokens each sequence wants (int64 [sequences]), the number of each sequence's example
# and a stream, which key the draws: the places to predict, ascending, int64.
Choose = Callable[[Candidates, np.ndarray, np.ndarray, int], np.ndarray]


def choose_tokens(candidates: Candidates, wanted: np.ndarray, examples: np.ndarray, stream: int) -> np.ndarray:
    """Single tokens, shuffled, until enough are taken (google-research/bert)."""
    places, first = candidates.places, candidates.first
    predicted = np.zeros(len(candidates.ids), bool)
    turns = shuffle(first, examples, stream)
    taken = np.stack([*islice(turns, int(wanted.max(initial=0))), first[:-1]])
    enough = np.minimum(wanted, np.diff(first))
    predicted[places[taken[np.arange(len(taken))[:, None] < enough]]] = True
    return np.flatnonzero(predicted)


def choose_words(candidates: Candidates, wanted: np.ndarray, examples: np.ndarray, stream: int) -> np.ndarray:
    """Whole words, shuffled, leaving out a word that would be one token too many, until enough tokens are taken.

    As google-research/bert chooses them; ``wanted`` is used up.
    """
    places, predicted = candidates.places, np.zeros(len(candidates.ids), bool)
    word_starts, first_word = words_of(candidates)
    sizes = np.pad(np.diff(word_starts), (0, candidates.longest))
    words, chosen = np.diff(first_word), np.zeros(len(sizes), bool)
    for turn, word in enumerate(shuffle(first_word, examples, stream)):
        wanted[words <= turn] = 0  # no word is left
        fits = sizes[word] <= wanted
        chosen[word[fits]] = True
        wanted -= sizes[word] * fits
        if not wanted.any():
            break
    predicted[places[np.repeat(chosen, sizes)]] = True
    return np.flatnonzero(predicted)


def choose_ngrams(candidates: Candidates, wanted: np.ndarray, examples: np.ndarray, stream: int) -> np.ndarray:
    """Runs of one to three whole words, the shorter the likelier: n words at a rate of 1 / n (google-research/albert).

    They start at words in shuffled order. A run that would be too many tokens is shortened by a word until it is not;
    one that meets a word chosen before is left out. ``wanted`` is used up.
    """
    places, predicted = candidates.places, np.zeros(len(candidates.ids), bool)
    word_starts, first_word = words_of(candidates)
    before = np.pad(word_starts, (0, candidates.longest + LONGEST_NGRAM), mode="edge")  # tokens before each word
    chosen = np.zeros(len(before), bool)
    words, rates = np.diff(first_word), np.cumsum(1 / np.arange(1, LONGEST_NGRAM + 1))
    for turn, word in enumerate(shuffle(first_word, examples, stream)):
        wanted[words <= turn] = 0  # no word is left
        most = np.clip(first_word[1:] - word, 1, LONGEST_NGRAM)
        draw = uniform(derive_seed(stream, "n"), examples, turn) * rates[most - 1]
        length = 1 + np.searchsorted(rates, draw, side="right")
        for _ in range(LONGEST_NGRAM - 1):
            length -= (before[word + length] - before[word] > wanted) & (length > 1)
        size = before[word + length] - before[word]
        within = np.arange(LONGEST_NGRAM) < length[:, None]
        run = word[:, None] + np.arange(LONGEST_NGRAM)
        taken = (size > 0) & (size <= wanted) & ~(chosen[run] & within).any(1)
        chosen[run[within & taken[:, None]]] = True
        wanted -= size * taken
        if not wanted.any():
            break
    predicted[places[np.repeat(chosen[: len(word_starts) - 1], np.diff(word_starts))]] = True
    return np.flatnonzero(predicted)


def words_of(candidates: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """Number of each whole word's first candidate, and the number of all; number of each sequence's first word."""
    opens = ~candidates.inner[candidates.ids[candidates.places]]
    opens[candidates.first[candidates.first < len(candidates.places)]] = (
        True  # a piece cut off from its word starts one
    )
    word_starts = np.append(np.flatnonzero(opens), len(candidates.places))
    return word_starts, np.searchsorted(word_starts, candidates.first)


UNITS: dict[str, Choose] = {"token": choose_tokens, "whole_word": choose_words, "ngram": choose_ngrams}


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
