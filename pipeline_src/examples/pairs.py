"""Sentence pairs, as offsets into the token store.

The algorithm is that of google-research/bert's ``create_pretraining_data.py`` (the paper, section 3.1 and appendix
A.2) or, with ``sop``, that of google-research/albert (Lan et al. 2020, section 3.1), but without copying text. Both
collect full sentences and truncate a segment at its ends, so a segment stays contiguous: an example is two offsets, two
lengths and a label. All documents and passes are processed together: a step makes the next example of each. Random
numbers are keyed by (pass, document, example, decision), so a document's examples do not depend on other documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_src.base.counter_rng import bits, integers, uniform
from pipeline_src.examples.token_store import SAMPLE_INDEX, TokenStore

# A row of the sample index is an example: starts and lengths of its segments (0 for B if examples are not pairs), and
# the pair's label (``is_random`` on disk): 1 if B is random, or A and B are swapped.

# Columns of random numbers in a document's stream. Example n of a document has the columns 16 n .. 16 n + 15: one for
# the end of A, one for the coin of the pair, ten for attempts to find another document, one for the start in it.
SLOTS = 16
A_END = 0
COIN = 1
RANDOM_DOCUMENT = 2
START = 12
# The coins of truncation: a column has 64 of them. An example has 2^20 columns, more than it needs.
CUTS = 1 << 62
CUTS_EACH = 1 << 20
# Two columns for the document itself: whether its examples are short, and how short.
SHORT = (1 << 63) - 2
TARGET = (1 << 63) - 1
# Attempts to find a document other than A's (google-research/bert).
TRIES = 10
# Every second coin of a word of 64: coins 0, 2, 4, ... and coins 1, 3, 5, ...
EVEN = np.uint64(0x5555555555555555)
ODD = ~EVEN


@dataclass(frozen=True)
class PairRules:
    """Parameters of the examples of one phase.

    Attributes:
        length: maximum number of tokens in an example, ``num_special`` special tokens included.
        short_seq_prob: probability that the examples of a document and pass have a shorter target length.
        random_next_prob: probability of a random segment B, or with ``sop`` of swapped segments. If a chunk is one
            sentence, B is always random.
        pairs: a key of ``PAIRS``.
    """

    length: int
    short_seq_prob: float
    random_next_prob: float
    pairs: str
    num_special: int

    @property
    def max_text_length(self) -> int:
        return self.length - self.num_special


@dataclass(frozen=True)
class Walk:
    """The states of walks, each through one document in one pass; arrays [walks], int64 (``stream``: uint64).

    Attributes:
        index: number of the walk, ordered by document and pass.
        stream, document: keys of the random numbers.
        target: target length of the document's examples in this pass.
        sentence: first sentence of the next chunk.
        end: the document's last sentence + 1.
        example: number of the next example in the document.
    """

    index: np.ndarray
    stream: np.ndarray
    document: np.ndarray
    target: np.ndarray
    sentence: np.ndarray
    end: np.ndarray
    example: np.ndarray

    def pick(self, selected: np.ndarray) -> Walk:
        # `selected` is a mask, or indices.
        return Walk(*(values[selected] for values in vars(self).values()))


@dataclass(frozen=True)
class Pairs:
    """Examples before truncation, [walks]: start and stop of A and B in the store, the label, and the next sentence."""

    a: np.ndarray
    a_stop: np.ndarray
    b: np.ndarray
    b_stop: np.ndarray
    label: np.ndarray
    after: np.ndarray


def document_pairs(store: TokenStore, first: int, stop: int, rules: PairRules, streams: Sequence[int]) -> np.ndarray:
    """Return the examples of documents ``first`` .. ``stop - 1``.

    Args:
        streams: for each pass over the corpus, a key that depends on seed, phase and pass.

    Returns:
        Examples of dtype ``SAMPLE_INDEX``, [examples], ordered by document, pass and position.
    """
    # A walk for each document and pass. Documents 5 and 6 in two passes: the walks go through 5, 5, 6, 6.
    document = np.repeat(np.arange(first, stop), len(streams))
    stream = np.tile(np.asarray(streams, np.uint64), stop - first)
    short_length = 2 + integers(stream, document, TARGET, rules.max_text_length - 1)
    is_short = uniform(stream, document, SHORT) < rules.short_seq_prob
    walk = Walk(
        index=np.arange(len(document)),
        stream=stream,
        document=document,
        target=np.where(is_short, short_length, rules.max_text_length),
        sentence=store.documents[document],
        end=store.documents[document + 1],
        example=np.zeros(len(document), np.int64),
    )

    # Every round makes the next example of each walk that has not reached the end of its document.
    indices = [np.empty(0, np.int64)]
    rounds = [np.empty(0, SAMPLE_INDEX)]
    while len(walk.index):
        # A chunk is the sentences that reach the target length, or the rest of the document.
        reached = store.sentences[walk.sentence] + walk.target
        chunk_end = np.minimum(np.searchsorted(store.sentences, reached), walk.end)
        pairs = PAIRS[rules.pairs](store, walk, chunk_end, rules)
        indices.append(walk.index)
        rounds.append(_truncate(walk, pairs, rules.max_text_length))
        continues = pairs.after < walk.end
        walk = replace(walk, sentence=pairs.after, example=walk.example + 1).pick(continues)

    # Rounds come one after another; a stable sort puts the examples of each walk together.
    order = np.argsort(np.concatenate(indices), kind="stable")
    return np.concatenate(rounds)[order]


def _next_sentence(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    # B is the rest of the chunk or, by a coin, text of another document (google-research/bert).
    a_end, coin, is_alone = _split(walk, chunk_end)
    is_random = is_alone | (coin < rules.random_next_prob)
    pairs = _pair(store, walk, a_end, chunk_end, is_random)
    # With a random B, the walk continues with the chunk's sentences after A.
    return replace(pairs, after=np.where(is_random, a_end, chunk_end))


def _balanced_next_sentence(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    # The coin alone decides whether B is random, by chunks of two sentences or more. A chunk of one sentence takes the
    # next sentence too; a chunk of a document's last sentence takes the one before it.
    document_start = store.documents[walk.document]
    sentence = np.maximum(np.minimum(walk.sentence, walk.end - 2), document_start)
    chunk_end = np.minimum(np.maximum(chunk_end, sentence + 2), walk.end)
    pairs = _next_sentence(store, replace(walk, sentence=sentence), chunk_end, rules)
    # The sentence before the last was used already. So with a random B, A is the last sentence itself.
    stepped_back = sentence < walk.sentence
    only_last = pairs.label & stepped_back
    return replace(
        pairs,
        a=np.where(only_last, store.sentences[walk.sentence], pairs.a),
        a_stop=np.where(only_last, store.sentences[walk.end], pairs.a_stop),
        after=np.maximum(pairs.after, walk.sentence + 1),
    )


def _sentence_order(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    # B is the rest of the chunk; a coin swaps A and B (google-research/albert). As in that code, a chunk of one
    # sentence, which cannot be split, gets a random B and the label of a swapped pair.
    a_end, coin, is_alone = _split(walk, chunk_end)
    swapped = ~is_alone & (coin < rules.random_next_prob)
    pairs = _pair(store, walk, a_end, chunk_end, is_alone)
    return replace(
        pairs,
        a=np.where(swapped, pairs.b, pairs.a),
        a_stop=np.where(swapped, pairs.b_stop, pairs.a_stop),
        b=np.where(swapped, pairs.a, pairs.b),
        b_stop=np.where(swapped, pairs.a_stop, pairs.b_stop),
        label=swapped | is_alone,
    )


def _single(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    zeros = np.zeros(len(chunk_end), np.int64)
    return Pairs(
        a=store.sentences[walk.sentence],
        a_stop=store.sentences[chunk_end],
        b=zeros,
        b_stop=zeros,
        label=zeros.astype(bool),
        after=chunk_end,
    )


# examples.pair_objective -> function that makes an example of every walk's next chunk
PAIRS: dict[str, Callable[[TokenStore, Walk, np.ndarray, PairRules], Pairs]] = {
    "nsp": _next_sentence,
    "nsp_balanced": _balanced_next_sentence,
    "sop": _sentence_order,
    "none": _single,
}


def _split(walk: Walk, chunk_end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Returns the sentence before which A ends, a coin for the pair, and whether the chunk is a single sentence. The
    # coin is uniform in [0, 1). A gets at least one of the chunk's sentences and, if there are several, not all.
    sentences = chunk_end - walk.sentence
    slot = walk.example * SLOTS
    choices = np.maximum(sentences - 1, 1)
    choice = integers(walk.stream, walk.document, slot + A_END, choices)
    a_end = walk.sentence + 1 + choice
    coin = uniform(walk.stream, walk.document, slot + COIN)
    return a_end, coin, sentences == 1


def _pair(store: TokenStore, walk: Walk, a_end: np.ndarray, chunk_end: np.ndarray, is_random: np.ndarray) -> Pairs:
    # B is the chunk's text after A or, with `is_random`, text of another document.
    a = store.sentences[walk.sentence]
    a_stop = store.sentences[a_end]
    b = a_stop.copy()
    b_stop = store.sentences[chunk_end]

    # A random B is as long as A leaves room for.
    room = walk.target - (a_stop - a)
    random = np.flatnonzero(is_random)
    start, stop = _random_segments(store, walk.pick(random), room[random])
    b[random] = start
    b_stop[random] = stop
    return Pairs(a, a_stop, b, b_stop, label=is_random, after=chunk_end)


def _random_segments(store: TokenStore, walk: Walk, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Chooses sentences of another document, from a random one on, with `length` tokens; returns start and stop.
    document = walk.document.copy()
    # The walks that still have A's document: all at first, then those whose attempts drew it again.
    same = np.arange(len(document))
    for attempt in range(TRIES):
        again = walk.pick(same)
        slot = again.example * SLOTS
        document[same] = integers(again.stream, again.document, slot + RANDOM_DOCUMENT + attempt, len(store))
        same = same[document[same] == again.document]
        if not len(same):
            break

    # From a random sentence on, as many sentences as reach the length.
    first = store.documents[document]
    stop = store.documents[document + 1]
    sentence = first + integers(walk.stream, walk.document, walk.example * SLOTS + START, stop - first)
    start = store.sentences[sentence]
    reached = np.searchsorted(store.sentences, start + np.maximum(length, 1))
    return start, store.sentences[np.minimum(reached, stop)]


def _truncate(walk: Walk, pairs: Pairs, max_length: int) -> np.ndarray:
    # Tokens are removed one by one from the longer segment (B on ties), at its front or back by a fair coin. Which
    # segment loses the r-th token is known in advance: the longer one until both are equally long, then the two
    # alternate. Only the end is random, a bit a token; the bits are drawn and counted in words of 64.
    a_length = pairs.a_stop - pairs.a
    b_length = pairs.b_stop - pairs.b
    surplus = np.maximum(a_length + b_length - max_length, 0)

    # One entry for each word of coins. Surpluses of 70, 0 and 3 tokens: words 0 and 1 of pair 0, word 0 of pair 2.
    words = (surplus + 63) // 64
    pair = np.repeat(np.arange(len(words)), words)
    first_word = np.cumsum(words) - words
    word = np.arange(len(pair)) - first_word[pair]
    is_front = bits(walk.stream[pair], walk.document[pair], CUTS + walk.example[pair] * CUTS_EACH + word)

    # Each coin removes a token of A or of B. A of 8 tokens and B of 5, with 7 too many, lose them as A A A B A B A: A
    # is longer three times, then B goes first. The shorter segment has every second coin from coin `alone` on.
    a_is_longer = a_length > b_length
    alone = np.where(a_is_longer, a_length - b_length, b_length - a_length + 1)[pair]
    every_second = np.where(alone % 2 == 1, ODD, EVEN)
    of_shorter = every_second & ~_first_bits(alone - 64 * word)
    used = _first_bits(surplus[pair] - 64 * word)
    of_a = np.where(a_is_longer[pair], ~of_shorter, of_shorter) & used
    of_b = ~of_a & used

    def count(coins: np.ndarray) -> np.ndarray:
        return np.bincount(pair, np.bitwise_count(coins), len(words)).astype(np.int64)

    examples = np.empty(len(words), SAMPLE_INDEX)
    examples["a"] = pairs.a + count(of_a & is_front)
    examples["a_length"] = a_length - count(of_a)
    examples["b"] = pairs.b + count(of_b & is_front)
    examples["b_length"] = b_length - count(of_b)
    examples["is_random"] = pairs.label
    return examples


def _first_bits(count: np.ndarray) -> np.ndarray:
    # 64-bit words whose lowest `count` bits are set: all if `count` >= 64, none if `count` <= 0.
    shift = np.clip(count, 0, 63).astype(np.uint64)
    return np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << shift) - np.uint64(1))
