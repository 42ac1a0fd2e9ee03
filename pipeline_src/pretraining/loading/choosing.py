"""Which tokens of a sequence are predicted: single tokens or whole words, drawn without replacement.

A way of choosing is one function of :data:`UNITS`; n-grams and spans of words would be two more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pipeline_src.common.counter_rng import uniform

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
    places, first = candidates.places, candidates.first
    predicted = np.zeros(len(candidates.ids), bool)
    opens = ~candidates.inner[candidates.ids[places]]
    opens[first[first < len(places)]] = True  # a piece cut off from its word starts one
    word_starts = np.append(np.flatnonzero(opens), len(places))
    sizes = np.pad(np.diff(word_starts), (0, candidates.longest))
    first_word = np.searchsorted(word_starts, first)
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


UNITS: dict[str, Choose] = {"token": choose_tokens, "whole_word": choose_words}


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
