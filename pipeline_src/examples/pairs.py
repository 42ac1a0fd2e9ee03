"""Sentence pairs for next-sentence prediction, as offsets into the token store.

The algorithm is that of google-research/bert's ``create_pretraining_data.py`` (the paper, section 3.1 and appendix
A.2); only text is never copied: since both its steps, collecting whole sentences and truncating at either end, keep a
segment contiguous, an example is two offsets, two lengths and a label. Documents are walked side by side: each step
makes the next example of every document at once. A draw is keyed by (document, example, what it decides), so the
examples of a document are the same whichever documents are walked beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline_src.examples.keyed import bits, integers, key, uniform
from pipeline_src.examples.store import TokenStore

# One example: where its segments start in the store, how long they are (B's is 0 without next sentences), and 1 where
# B is random.
PLAN = np.dtype([("a", "<i8"), ("b", "<i8"), ("a_length", "<u2"), ("b_length", "<u2"), ("is_random", "u1")])
SLOTS = 16  # draws of one example: its first numbers in a document's stream
A_END, COIN, TRY, START = 0, 1, 2, 12
TRIES = 10  # for a document other than A's (google-research/bert)
LONGEST_CUT = 1 << 20  # words of 64 coins an example may use; a sentence of that many tokens is not met
EVEN = np.uint64(0x5555555555555555)  # every second coin, from the first


@dataclass(frozen=True)
class PairRules:
    """How the examples of one phase are drawn.

    Attributes:
        length: longest example in tokens, [CLS] and [SEP] included.
        short_seq_prob: chance that a document is cut to a shorter target.
        random_next_prob: chance of the coin for a random segment B (a chunk of one sentence always gets one).
        next_sentence: false for single segments.
    """

    length: int
    short_seq_prob: float
    random_next_prob: float
    next_sentence: bool

    @property
    def most(self) -> int:
        """Tokens of text in the longest example."""
        return self.length - (3 if self.next_sentence else 2)


def document_pairs(store: TokenStore, first: int, stop: int, rules: PairRules, stream: int) -> np.ndarray:
    """The examples of documents ``first`` .. ``stop - 1`` in one pass over the corpus, in order.

    Args:
        store: the documents of one split.
        first, stop: which of them.
        rules: as the phase wants them.
        stream: key of (seed, phase, pass).

    Returns:
        Examples of dtype :data:`PLAN`, [examples].
    """
    document = np.arange(first, stop)
    end = store.documents[first + 1 : stop + 1]
    sentence = store.documents[first:stop]  # where the next chunk starts
    target = _targets(document, rules, stream)
    number = np.zeros(len(document), np.int64)  # examples made so far
    made: list[tuple[np.ndarray, ...]] = []
    while len(document):
        start = store.sentences[sentence]
        reached = np.searchsorted(store.sentences, start + target)
        chunk_end = np.minimum(reached, end)
        if rules.next_sentence:
            a_end, is_random = _split(document, number, chunk_end - sentence, rules, stream)
            a_end += sentence
            a_stop = store.sentences[a_end]
            b, b_stop = a_stop.copy(), store.sentences[chunk_end]
            drawn = np.flatnonzero(is_random)
            b[drawn], b_stop[drawn] = _random_segments(
                store, document[drawn], number[drawn], (target - a_stop + start)[drawn], stream
            )
            after = np.where(is_random, a_end, chunk_end)  # sentences of the chunk that A left unused are put back
        else:
            is_random = np.zeros(len(document), bool)
            a_stop, after = store.sentences[chunk_end], chunk_end
            b = b_stop = np.zeros(len(document), np.int64)
        a, a_length, b, b_length = _truncate(start, a_stop - start, b, b_stop - b, rules.most, stream, document, number)
        made.append((document, number, a, a_length, b, b_length, is_random))
        going = after < end
        document, sentence, end, target, number = (
            values[going] for values in (document, after, end, target, number + 1)
        )
    documents, numbers, *fields = (np.concatenate(column) for column in zip(*made, strict=True))
    plan = np.empty(len(documents), PLAN)
    for name, values in zip(("a", "a_length", "b", "b_length", "is_random"), fields, strict=True):
        plan[name] = values
    return plan[np.lexsort((numbers, documents))]


def _targets(document: np.ndarray, rules: PairRules, stream: int) -> np.ndarray:
    """Tokens that each document's examples aim for: the most, or with ``short_seq_prob`` uniform from 2 on."""
    stream = key(stream, "target")
    short = 2 + integers(stream, document, 1, rules.most - 1)
    return np.where(uniform(stream, document, 0) < rules.short_seq_prob, short, rules.most)


def _split(
    document: np.ndarray, number: np.ndarray, sentences: np.ndarray, rules: PairRules, stream: int
) -> tuple[np.ndarray, np.ndarray]:
    """How many of a chunk's sentences go to A, at least one and not all of several, and whether B is random."""
    slot = number * SLOTS
    to_a = 1 + integers(stream, document, slot + A_END, np.maximum(sentences - 1, 1))
    return to_a, (sentences == 1) | (uniform(stream, document, slot + COIN) < rules.random_next_prob)


def _random_segments(
    store: TokenStore, document: np.ndarray, number: np.ndarray, wanted: np.ndarray, stream: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sentences from a random place of another document until ``wanted`` tokens are there, at least one sentence."""
    slot = number * SLOTS
    other = document.copy()
    same = np.arange(len(document))
    for attempt in range(TRIES):
        other[same] = integers(stream, document[same], slot[same] + TRY + attempt, len(store.documents) - 1)
        same = same[other[same] == document[same]]
        if not len(same):
            break
    first, stop = store.documents[other], store.documents[other + 1]
    first = first + integers(stream, document, slot + START, stop - first)
    start = store.sentences[first]
    reached = np.searchsorted(store.sentences, start + np.maximum(wanted, 1))
    return start, store.sentences[np.minimum(reached, stop)]


def _truncate(
    a: np.ndarray,
    a_length: np.ndarray,
    b: np.ndarray,
    b_length: np.ndarray,
    most: int,
    stream: int,
    document: np.ndarray,
    number: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Take tokens one by one from the longer segment (B on ties), front or back by a fair coin.

    Which segment loses its r-th token is known beforehand: first the longer one alone, until the other is as long;
    from then on both in turn. So the r-th coin is a bit, and 64 of them are thrown and counted at once.
    """
    surplus = a_length + b_length - most
    rows = np.flatnonzero(surplus > 0)
    if not len(rows):
        return a, a_length, b, b_length
    stream = key(stream, "truncate")
    longer_a = a_length > b_length
    alone = np.where(longer_a, a_length - b_length, b_length - a_length + 1)  # coins for the longer segment alone
    a_front, a_cut, b_front = (np.zeros(len(a), np.int64) for _ in range(3))
    for word in range((int(surplus.max()) + 63) // 64):
        rows = rows[surplus[rows] > 64 * word]
        thrown = _first_bits(surplus[rows] - 64 * word)
        coins = bits(stream, document[rows], number[rows] * LONGEST_CUT + word)
        own = _first_bits(alone[rows] - 64 * word)
        in_turn = np.where((alone[rows] & 1) == 1, ~EVEN, EVEN)  # the other segment's coins once both take turns
        of_a = np.where(longer_a[rows], ~in_turn | own, in_turn & ~own) & thrown
        a_cut[rows] += np.bitwise_count(of_a)
        a_front[rows] += np.bitwise_count(of_a & coins)
        b_front[rows] += np.bitwise_count(thrown & ~of_a & coins)
    cut = np.maximum(surplus, 0)
    return a + a_front, a_length - a_cut, b + b_front, b_length - (cut - a_cut)


def _first_bits(count: np.ndarray) -> np.ndarray:
    """Words of 64 bits with the lowest ``count`` of them set; all for 64 or more, none for 0 or less."""
    few = np.clip(count, 0, 63).astype(np.uint64)
    return np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << few) - np.uint64(1))
