"""Sentence pairs for next-sentence prediction, as offsets into the token store.

The algorithm is that of google-research/bert's ``create_pretraining_data.py`` (the paper, section 3.1 and appendix
A.2); only text is never copied: since both its steps, collecting whole sentences and truncating at either end, keep a
segment contiguous, an example is two offsets, two lengths and a label. Documents are walked side by side, in all
passes at once: each step makes the next example of every one. A draw is keyed by (pass, document, example, what it
decides), so the examples of a document are the same whichever documents are walked beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_src.common.counter_rng import bits, integers, uniform
from pipeline_src.tokenizer.token_store import TokenStore

# One example: where its segments start in the store, how long they are (B's is 0 without next sentences), and 1 where
# B is random.
PLAN = np.dtype([("a", "<i8"), ("b", "<i8"), ("a_length", "<u2"), ("b_length", "<u2"), ("is_random", "u1")])

# Places of the draws in a document's stream: 16 for each example, its coins, and two for the document as a whole.
SLOTS, A_END, COIN, OTHER, START = 16, 0, 1, 2, 12
CUTS, CUTS_EACH = 1 << 62, 1 << 20  # words of 64 coins; no sentence has that many tokens
SHORT, TARGET = (1 << 63) - 2, (1 << 63) - 1
TRIES = 10  # for a document other than A's (google-research/bert)
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


@dataclass(frozen=True)
class Walk:
    """Where the walk stands in each document and pass; all int64 (streams uint64), [walks].

    Attributes:
        stream, document: key the draws.
        target: tokens that the document's examples aim for in this pass.
        sentence: where the next chunk starts.
        end: where the document does.
        number: examples made so far.
    """

    stream: np.ndarray
    document: np.ndarray
    target: np.ndarray
    sentence: np.ndarray
    end: np.ndarray
    number: np.ndarray

    def pick(self, which: np.ndarray) -> Walk:
        """The walks that ``which`` (bool or places) selects."""
        return Walk(*(values[which] for values in vars(self).values()))


def document_pairs(store: TokenStore, first: int, stop: int, rules: PairRules, streams: Sequence[int]) -> np.ndarray:
    """The examples of documents ``first`` .. ``stop - 1``.

    Args:
        store: the documents of one split.
        first, stop: which of them.
        rules: as the phase wants them.
        streams: key of (seed, phase, pass) for each pass over the corpus.

    Returns:
        Examples of dtype :data:`PLAN`, [examples], ordered by document, pass and place.
    """
    document = np.repeat(np.arange(first, stop), len(streams))
    stream = np.tile(np.asarray(streams, np.uint64), stop - first)
    short = 2 + integers(stream, document, TARGET, rules.most - 1)
    target = np.where(uniform(stream, document, SHORT) < rules.short_seq_prob, short, rules.most)
    start, end = store.documents[document], store.documents[document + 1]
    walk = Walk(stream, document, target, start, end, np.zeros(len(document), np.int64))
    lane = np.arange(len(document))
    lanes: list[np.ndarray] = []
    made: list[np.ndarray] = []
    while len(lane):
        examples, after = _next_examples(store, walk, rules)
        lanes.append(lane)
        made.append(examples)
        going = after < walk.end
        lane, walk = lane[going], replace(walk, sentence=after, number=walk.number + 1).pick(going)
    if not made:
        return np.empty(0, PLAN)
    return np.concatenate(made)[np.argsort(np.concatenate(lanes), kind="stable")]


def _next_examples(store: TokenStore, walk: Walk, rules: PairRules) -> tuple[np.ndarray, np.ndarray]:
    """The next example of every walk, and the sentence at which each goes on."""
    a = store.sentences[walk.sentence]
    chunk_end = np.minimum(np.searchsorted(store.sentences, a + walk.target), walk.end)
    if rules.next_sentence:
        # A gets at least one of the chunk's sentences, and not all of several.
        sentences, slot = chunk_end - walk.sentence, walk.number * SLOTS
        a_end = walk.sentence + 1 + integers(walk.stream, walk.document, slot + A_END, np.maximum(sentences - 1, 1))
        coin = uniform(walk.stream, walk.document, slot + COIN)
        is_random = (sentences == 1) | (coin < rules.random_next_prob)
        a_stop = store.sentences[a_end]
        b, b_stop = a_stop.copy(), store.sentences[chunk_end]
        drawn = np.flatnonzero(is_random)
        wanted = walk.target - (a_stop - a)
        b[drawn], b_stop[drawn] = _random_segments(store, walk.pick(drawn), wanted[drawn])
        after = np.where(is_random, a_end, chunk_end)  # sentences of the chunk that A left unused are put back
    else:
        is_random = np.zeros(len(a), bool)
        a_stop, after = store.sentences[chunk_end], chunk_end
        b = b_stop = np.zeros(len(a), np.int64)
    examples = np.empty(len(a), PLAN)
    examples["is_random"] = is_random
    segments = _truncate(walk, a, a_stop - a, b, b_stop - b, rules.most)
    for name, values in zip(("a", "a_length", "b", "b_length"), segments, strict=True):
        examples[name] = values
    return examples, after


def _random_segments(store: TokenStore, walk: Walk, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sentences from a random place of another document until ``wanted`` tokens are there, at least one sentence."""
    slot = walk.number * SLOTS
    other = walk.document.copy()
    same = np.arange(len(other))
    for attempt in range(TRIES):
        again = walk.pick(same)
        other[same] = integers(again.stream, again.document, slot[same] + OTHER + attempt, len(store))
        same = same[other[same] == walk.document[same]]
        if not len(same):
            break
    first, stop = store.documents[other], store.documents[other + 1]
    first = first + integers(walk.stream, walk.document, slot + START, stop - first)
    start = store.sentences[first]
    reached = np.searchsorted(store.sentences, start + np.maximum(wanted, 1))
    return start, store.sentences[np.minimum(reached, stop)]


def _truncate(
    walk: Walk, a: np.ndarray, a_length: np.ndarray, b: np.ndarray, b_length: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Take tokens one by one from the longer segment (B on ties), front or back by a fair coin.

    Which segment loses its r-th token is known beforehand: first the longer one alone, until the other is as long;
    from then on both in turn. So the r-th coin is a bit, and 64 of them are thrown and counted at once.
    """
    surplus = np.maximum(a_length + b_length - most, 0)
    words = (surplus + 63) // 64
    row = np.repeat(np.arange(len(a)), words)
    word = np.arange(len(row)) - np.repeat(np.cumsum(words) - words, words)
    coins = bits(walk.stream[row], walk.document[row], CUTS + walk.number[row] * CUTS_EACH + word)
    longer_a = a_length > b_length
    alone = np.where(longer_a, a_length - b_length, b_length - a_length + 1)  # coins for the longer segment alone
    thrown, own = _first_bits(surplus[row] - 64 * word), _first_bits(alone[row] - 64 * word)
    in_turn = np.where((alone[row] & 1) == 1, ~EVEN, EVEN)  # the other segment's coins, once both take turns
    of_a = np.where(longer_a[row], ~in_turn | own, in_turn & ~own) & thrown

    def count(heads: np.ndarray) -> np.ndarray:
        return np.bincount(row, np.bitwise_count(heads), len(a)).astype(np.int64)

    a_cut, a_front, b_front = count(of_a), count(of_a & coins), count(thrown & ~of_a & coins)
    return a + a_front, a_length - a_cut, b + b_front, b_length - (surplus - a_cut)


def _first_bits(count: np.ndarray) -> np.ndarray:
    """Words of 64 bits with the lowest ``count`` of them set; all for 64 or more, none for 0 or less."""
    few = np.clip(count, 0, 63).astype(np.uint64)
    return np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << few) - np.uint64(1))
