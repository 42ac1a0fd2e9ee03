"""Sentence pairs for next-sentence prediction, as offsets into the token shards.

The algorithm is that of google-research/bert's ``create_pretraining_data.py`` (the paper, section 3.1 and appendix
A.2); only text is never copied: since both its steps, collecting whole sentences and truncating at either end, keep a
segment contiguous, an example is four offsets and a label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from pipeline_src.examples.keyed import Draws

Pair = tuple[int, int, int, int, int]  # a_start, a_stop, b_start, b_stop (global token offsets), 1 if B is random


class Documents(Protocol):
    """What pairs are drawn from."""

    documents: int

    def document(self, number: int) -> np.ndarray:
        """Global offsets of a document's sentences, int64 [sentences + 1]."""


def document_pairs(
    store: Documents, number: int, length: int, short_seq_prob: float, random_next_prob: float, draws: Draws
) -> Iterator[Pair]:
    """Yield the pairs of one document in one pass over the corpus.

    Args:
        store: the documents of one split.
        number: which document.
        length: longest example in tokens, [CLS] and two [SEP] included.
        short_seq_prob: chance that this document is cut to a shorter target.
        random_next_prob: chance of the coin for a random segment B (a chunk of one sentence always gets one).
        draws: random numbers of this document and pass.
    """
    most = length - 3
    target = draws.integer(2, most) if draws.random() < short_seq_prob else most
    offsets = store.document(number).tolist()
    sentences = len(offsets) - 1
    first = sentence = 0
    while sentence < sentences:
        full = offsets[sentence + 1] - offsets[first] >= target
        if not full and sentence < sentences - 1:
            sentence += 1
            continue
        # The chunk is sentences first..sentence; A takes a random number of them, at least one.
        size = sentence - first + 1
        a_end = first + (draws.integer(1, size - 1) if size > 1 else 1)
        a_start, a_stop = offsets[first], offsets[a_end]
        is_random = size == 1 or draws.random() < random_next_prob
        if is_random:
            b_start, b_stop = _random_segment(store, number, target - (a_stop - a_start), draws)
            sentence = a_end - 1  # sentences of the chunk that A left unused are put back
        else:
            b_start, b_stop = offsets[a_end], offsets[sentence + 1]
        a_start, a_stop, b_start, b_stop = _truncate(a_start, a_stop, b_start, b_stop, most, draws)
        if a_stop > a_start and b_stop > b_start:
            yield a_start, a_stop, b_start, b_stop, int(is_random)
        sentence += 1
        first = sentence


def _random_segment(store: Documents, number: int, wanted: int, draws: Draws) -> tuple[int, int]:
    """Sentences from a random place of another document until ``wanted`` tokens are there (at least one sentence)."""
    other = number
    for _ in range(10):
        other = draws.integer(0, store.documents - 1)
        if other != number:
            break
    offsets = store.document(other)
    start = draws.integer(0, len(offsets) - 2)
    reached = np.searchsorted(offsets, offsets[start] + max(wanted, 1), side="left")
    return int(offsets[start]), int(offsets[min(max(reached, start + 1), len(offsets) - 1)])


def _truncate(a: int, a_stop: int, b: int, b_stop: int, most: int, draws: Draws) -> tuple[int, int, int, int]:
    """Take tokens one by one from the longer segment (B on ties), front or back by a fair coin."""
    while (a_stop - a) + (b_stop - b) > most:
        front = draws.random() < 0.5
        if a_stop - a > b_stop - b:
            a, a_stop = (a + 1, a_stop) if front else (a, a_stop - 1)
        else:
            b, b_stop = (b + 1, b_stop) if front else (b, b_stop - 1)
    return a, a_stop, b, b_stop
