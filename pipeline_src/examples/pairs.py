"""Make training examples (sentence pairs or single segments) as offsets into the token store.

The algorithm is that of google-research/bert's ``create_pretraining_data.py`` (the paper, section 3.1 and appendix
A.2). The pair objective ``sop`` follows google-research/albert instead (Lan et al. 2020, section 3.1). No text is
copied. Segments are whole sentences, truncated only at their ends, so an example is just two offsets, two lengths and a
label.

All documents and passes are processed together: each round makes the next example of every document. Random numbers
depend only on pass, document, example and decision, so a document's examples do not depend on other documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_src.base.counter_rng import bits, integers, uniform
from pipeline_src.examples.token_store import SAMPLE_INDEX, TokenStore

# Each row of the sample index is an example. It has the starts and lengths of segments A and B, which are 0 for B if
# examples are not pairs. It also has the label (`is_random` on disk), which is 1 if B is random or A and B are swapped.

# Indices of random numbers in the stream of a document. Example n has the indices 16 n to 16 n + 15: A_END for the end
# of A, COIN for the label, ten from RANDOM_DOCUMENT on for attempts to draw another document, START for the start in
# it.
SLOTS = 16
A_END = 0
COIN = 1
RANDOM_DOCUMENT = 2
START = 12
# Random numbers for truncation, from index CUTS on. Each gives 64 random bits. An example has 2^20 of them, more than
# it needs.
CUTS = 1 << 62
CUTS_EACH = 1 << 20
# Two random numbers for the document itself: whether its examples are short, and how short.
SHORT = (1 << 63) - 2
TARGET = (1 << 63) - 1
# Maximum number of attempts to draw a document other than that of A (google-research/bert).
TRIES = 10
# Masks for every second bit of 64: bits 0, 2, 4, ... and bits 1, 3, 5, ...
EVEN = np.uint64(0x5555555555555555)
ODD = ~EVEN


@dataclass(frozen=True)
class PairRules:
    """Settings for the examples of one phase.

    Attributes:
        length: maximum number of tokens in an example, special tokens included.
        short_seq_prob: probability that the examples of a document in one pass have a shorter target length.
        random_next_prob: probability of a random segment B or, with ``sop``, of swapped segments. If a chunk has only
            one sentence, B is always random.
        pairs: a key of ``PAIRS``.
        num_special: number of special tokens in an example.
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
    """The states of all walks. A walk goes through one document in one pass.

    The attributes are arrays [walks], int64, or uint64 for ``stream``.

    Attributes:
        index: index of the walk, in the order of documents and passes.
        stream: random number key of the pass.
        document: index of the document.
        target: target length of the document's examples in this pass, in tokens.
        sentence: index of the first sentence of the next chunk.
        end: index of the document's last sentence + 1.
        example: index of the next example in the document.
    """

    index: np.ndarray
    stream: np.ndarray
    document: np.ndarray
    target: np.ndarray
    sentence: np.ndarray
    end: np.ndarray
    example: np.ndarray

    def pick(self, selected: np.ndarray) -> Walk:
        # Return some of the walks. `selected` is a boolean mask or an array of indices.
        return Walk(*(values[selected] for values in vars(self).values()))


@dataclass(frozen=True)
class Pairs:
    """Untruncated examples, [walks]: token offsets of A and B, label, and sentence at which the walk continues."""

    a: np.ndarray
    a_stop: np.ndarray
    b: np.ndarray
    b_stop: np.ndarray
    label: np.ndarray
    after: np.ndarray


def document_pairs(store: TokenStore, first: int, stop: int, rules: PairRules, streams: Sequence[int]) -> np.ndarray:
    """Make the examples of the documents ``first`` to ``stop - 1``.

    Args:
        streams: a random number key for each pass over the corpus.

    Returns:
        Examples of dtype ``SAMPLE_INDEX``, [examples], ordered by document, pass and position in the document.
    """
    # One walk for each document and pass. With documents 5 and 6 and two passes, the documents of the walks are 5, 5,
    # 6, 6.
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

    # Each round makes the next example of every walk that has not reached the end of its document.
    indices = [np.empty(0, np.int64)]
    rounds = [np.empty(0, SAMPLE_INDEX)]
    while len(walk.index):
        # A chunk has as many sentences as reach the target length, or the rest of the document if it is shorter.
        reached = store.sentences[walk.sentence] + walk.target
        chunk_end = np.minimum(np.searchsorted(store.sentences, reached), walk.end)
        pairs = PAIRS[rules.pairs](store, walk, chunk_end, rules)
        indices.append(walk.index)
        rounds.append(_truncate(walk, pairs, rules.max_text_length))
        continues = pairs.after < walk.end
        walk = replace(walk, sentence=pairs.after, example=walk.example + 1).pick(continues)

    # The examples are ordered by round. A stable sort brings the examples of each walk together.
    order = np.argsort(np.concatenate(indices), kind="stable")
    return np.concatenate(rounds)[order]


def _next_sentence(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    # A coin decides whether B is the rest of the chunk or text of another document (google-research/bert).
    a_end, coin, is_alone = _split(walk, chunk_end)
    is_random = is_alone | (coin < rules.random_next_prob)
    pairs = _pair(store, walk, a_end, chunk_end, is_random)
    # If B is random, the sentences of the chunk after A were not used, and the walk continues with them.
    return replace(pairs, after=np.where(is_random, a_end, chunk_end))


def _balanced_next_sentence(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    # Like `_next_sentence`, but only the coin decides whether B is random, since every chunk gets at least two
    # sentences. A chunk with one sentence also takes the next one. If the document has no next one, it takes the
    # previous one.
    document_start = store.documents[walk.document]
    sentence = np.maximum(np.minimum(walk.sentence, walk.end - 2), document_start)
    chunk_end = np.minimum(np.maximum(chunk_end, sentence + 2), walk.end)
    pairs = _next_sentence(store, replace(walk, sentence=sentence), chunk_end, rules)
    # If the chunk took a previous sentence, that sentence was already used. So if B is random, A is only the last
    # sentence.
    stepped_back = sentence < walk.sentence
    only_last = pairs.label & stepped_back
    return replace(
        pairs,
        a=np.where(only_last, store.sentences[walk.sentence], pairs.a),
        a_stop=np.where(only_last, store.sentences[walk.end], pairs.a_stop),
        after=np.maximum(pairs.after, walk.sentence + 1),
    )


def _sentence_order(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    # B is the rest of the chunk, and a coin decides whether A and B are swapped (google-research/albert). As in that
    # code, a chunk of one sentence, which cannot be split, gets a random B and the label of a swapped pair.
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


# examples.pair_objective -> function that makes an example from the next chunk of every walk.
PAIRS: dict[str, Callable[[TokenStore, Walk, np.ndarray, PairRules], Pairs]] = {
    "nsp": _next_sentence,
    "nsp_balanced": _balanced_next_sentence,
    "sop": _sentence_order,
    "none": _single,
}


def _split(walk: Walk, chunk_end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Return, for every walk: the index of the sentence at which A ends (exclusive); a coin, uniform in [0, 1); and
    # whether the chunk has only one sentence. If it has several, A gets at least one of them, but not all.
    sentences = chunk_end - walk.sentence
    slot = walk.example * SLOTS
    choices = np.maximum(sentences - 1, 1)
    choice = integers(walk.stream, walk.document, slot + A_END, choices)
    a_end = walk.sentence + 1 + choice
    coin = uniform(walk.stream, walk.document, slot + COIN)
    return a_end, coin, sentences == 1


def _pair(store: TokenStore, walk: Walk, a_end: np.ndarray, chunk_end: np.ndarray, is_random: np.ndarray) -> Pairs:
    # B is the text of the chunk after A or, where `is_random`, text of another document.
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
    # Choose at least `length` tokens of another document, from a random sentence on. Return start and stop in the
    # store.
    document = walk.document.copy()
    # Indices of the walks that have not yet drawn a document other than that of A.
    same = np.arange(len(document))
    for attempt in range(TRIES):
        again = walk.pick(same)
        slot = again.example * SLOTS
        document[same] = integers(again.stream, again.document, slot + RANDOM_DOCUMENT + attempt, len(store))
        same = same[document[same] == again.document]
        if not len(same):
            break

    # Take as many sentences as reach the length, or the rest of the document if it is shorter.
    first = store.documents[document]
    stop = store.documents[document + 1]
    sentence = first + integers(walk.stream, walk.document, walk.example * SLOTS + START, stop - first)
    start = store.sentences[sentence]
    reached = np.searchsorted(store.sentences, start + np.maximum(length, 1))
    return start, store.sentences[np.minimum(reached, stop)]


def _truncate(walk: Walk, pairs: Pairs, max_length: int) -> np.ndarray:
    # As in google-research/bert, remove tokens one by one from the longer segment (B if both are equally long). A fair
    # coin decides between its front and its back. The segment that loses the r-th token is known in advance: the longer
    # one until both are equally long, then B and A in turn. So only the coins are random. They are drawn and counted 64
    # at a time, as the bits of a word.
    a_length = pairs.a_stop - pairs.a
    b_length = pairs.b_stop - pairs.b
    surplus = np.maximum(a_length + b_length - max_length, 0)

    # The arrays `pair` and `word` have an entry for each word of 64 coins. With surpluses of 70, 0 and 3 tokens, they
    # are 0 0 2 and 0 1 0: two words for pair 0, and one for pair 2.
    words = (surplus + 63) // 64
    pair = np.repeat(np.arange(len(words)), words)
    first_word = np.cumsum(words) - words
    word = np.arange(len(pair)) - first_word[pair]
    is_front = bits(walk.stream[pair], walk.document[pair], CUTS + walk.example[pair] * CUTS_EACH + word)

    # Each coin removes a token from A or B. If A has 8 tokens, B has 5, and 7 must go, the order is A A A B A B A. The
    # longer segment has the first coins, up to coin `alone`. From there on, the shorter segment has every second coin.
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
    # Return 64-bit words whose lowest `count` bits are set (all bits if `count` >= 64, none if `count` <= 0).
    shift = np.clip(count, 0, 63).astype(np.uint64)
    return np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << shift) - np.uint64(1))
