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

from pipeline_src.common.counter_rng import bits, integers, uniform
from pipeline_src.examples.token_store import SAMPLE_INDEX, TokenStore

# A row of the sample index is an example: starts and lengths of its segments (0 for B if examples are not pairs), and
# the pair's label (``is_random`` on disk): 1 if B is random, or A and B are swapped.

# positions of random numbers in a document's stream: 16 for each example, then its coins; two for the document
SLOTS, A_END, COIN, RANDOM_DOCUMENT, START = 16, 0, 1, 2, 12
CUTS, CUTS_EACH = 1 << 62, 1 << 20  # start of the coins; words of 64 coins per example, more than an example needs
SHORT, TARGET = (1 << 63) - 2, (1 << 63) - 1
TRIES = 10  # to find a document other than A's (google-research/bert)
EVEN = np.uint64(0x5555555555555555)  # every second coin, starting with the first


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
        stream, document: keys of the random numbers.
        target: target length of the document's examples in this pass.
        sentence: first sentence of the next chunk.
        end: the document's last sentence + 1.
        number: number of examples made so far.
    """

    stream: np.ndarray
    document: np.ndarray
    target: np.ndarray
    sentence: np.ndarray
    end: np.ndarray
    number: np.ndarray

    def pick(self, selected: np.ndarray) -> Walk:
        """Return the walks that a mask or indices select."""
        return Walk(*(values[selected] for values in vars(self).values()))


def document_pairs(store: TokenStore, first: int, stop: int, rules: PairRules, streams: Sequence[int]) -> np.ndarray:
    """Return the examples of documents ``first`` .. ``stop - 1``.

    Args:
        streams: for each pass over the corpus, a key that depends on seed, phase and pass.

    Returns:
        Examples of dtype ``SAMPLE_INDEX``, [examples], ordered by document, pass and position.
    """
    document = np.repeat(np.arange(first, stop), len(streams))
    stream = np.tile(np.asarray(streams, np.uint64), stop - first)
    short = 2 + integers(stream, document, TARGET, rules.max_text_length - 1)
    target = np.where(uniform(stream, document, SHORT) < rules.short_seq_prob, short, rules.max_text_length)
    start, end = store.documents[document], store.documents[document + 1]
    walk = Walk(stream, document, target, start, end, np.zeros(len(document), np.int64))
    lane = np.arange(len(document))
    lanes, blocks = [lane[:0]], [np.empty(0, SAMPLE_INDEX)]
    while len(lane):
        examples, after = _next_examples(store, walk, rules)
        lanes.append(lane)
        blocks.append(examples)
        continues = after < walk.end
        lane, walk = lane[continues], replace(walk, sentence=after, number=walk.number + 1).pick(continues)
    return np.concatenate(blocks)[np.argsort(np.concatenate(lanes), kind="stable")]


def _next_examples(store: TokenStore, walk: Walk, rules: PairRules) -> tuple[np.ndarray, np.ndarray]:
    """Return every walk's next example, and the sentence from which the walk continues."""
    a = store.sentences[walk.sentence]
    chunk_end = np.minimum(np.searchsorted(store.sentences, a + walk.target), walk.end)
    pair = PAIRS[rules.pairs](store, walk, chunk_end, rules)
    examples = np.empty(len(a), SAMPLE_INDEX)
    examples["is_random"] = pair.label
    segments = _truncate(walk, pair.a, pair.a_stop - pair.a, pair.b, pair.b_stop - pair.b, rules.max_text_length)
    for name, values in zip(("a", "a_length", "b", "b_length"), segments, strict=True):
        examples[name] = values
    return examples, pair.after


@dataclass(frozen=True)
class Pairs:
    """Examples before truncation, [walks]: start and stop of A and B in the store, the label, and the next sentence."""

    a: np.ndarray
    a_stop: np.ndarray
    b: np.ndarray
    b_stop: np.ndarray
    label: np.ndarray
    after: np.ndarray


def _next_sentence(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    """Make B the rest of the chunk or, by a coin, text of another document (google-research/bert)."""
    a_end, coin, alone = _split(walk, chunk_end)
    is_random = alone | (coin < rules.random_next_prob)
    pair = _pair(store, walk, a_end, chunk_end, is_random)
    # with a random B, the walk continues with the chunk's sentences after A
    return Pairs(*pair, is_random, np.where(is_random, a_end, chunk_end))


def _balanced_next_sentence(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    """Let the coin alone decide: a chunk of one sentence takes the next too, a document's last one that before it."""
    sentence = np.maximum(np.minimum(walk.sentence, walk.end - 2), store.documents[walk.document])
    chunk_end = np.minimum(np.maximum(chunk_end, sentence + 2), walk.end)
    pair = _next_sentence(store, replace(walk, sentence=sentence), chunk_end, rules)
    last = pair.label & (sentence < walk.sentence)  # with a random B, A is the last sentence itself
    a = np.where(last, store.sentences[walk.sentence], pair.a)
    a_stop = np.where(last, store.sentences[walk.end], pair.a_stop)
    return replace(pair, a=a, a_stop=a_stop, after=np.maximum(pair.after, walk.sentence + 1))


def _sentence_order(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    """Make B the rest of the chunk and, by a coin, swap A and B (google-research/albert).

    As in that code, a chunk of one sentence, which cannot be split, gets a random B and the label of a swapped pair.
    """
    a_end, coin, alone = _split(walk, chunk_end)
    swapped = ~alone & (coin < rules.random_next_prob)
    a, a_stop, b, b_stop = _pair(store, walk, a_end, chunk_end, alone)
    a, b = np.where(swapped, b, a), np.where(swapped, a, b)
    a_stop, b_stop = np.where(swapped, b_stop, a_stop), np.where(swapped, a_stop, b_stop)
    return Pairs(a, a_stop, b, b_stop, swapped | alone, chunk_end)


def _single(store: TokenStore, walk: Walk, chunk_end: np.ndarray, rules: PairRules) -> Pairs:
    """Make A the full chunk; B is empty."""
    nothing = np.zeros(len(chunk_end), np.int64)
    a, a_stop = store.sentences[walk.sentence], store.sentences[chunk_end]
    return Pairs(a, a_stop, nothing, nothing, nothing.astype(bool), chunk_end)


# examples.pair_objective -> function that makes an example of every walk's next chunk
PAIRS: dict[str, Callable[[TokenStore, Walk, np.ndarray, PairRules], Pairs]] = {
    "nsp": _next_sentence,
    "nsp_balanced": _balanced_next_sentence,
    "sop": _sentence_order,
    "none": _single,
}


def _split(walk: Walk, chunk_end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sentence before which A ends, a coin for the pair, and whether the chunk is a single sentence.

    The coin is uniform in [0, 1). A gets at least one of the chunk's sentences and, if there are several, not all.
    """
    sentences, slot = chunk_end - walk.sentence, walk.number * SLOTS
    a_end = walk.sentence + 1 + integers(walk.stream, walk.document, slot + A_END, np.maximum(sentences - 1, 1))
    return a_end, uniform(walk.stream, walk.document, slot + COIN), sentences == 1


def _pair(
    store: TokenStore, walk: Walk, a_end: np.ndarray, chunk_end: np.ndarray, is_random: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return start and stop of A, and of B: the text after A or, with ``is_random``, text of another document."""
    a, a_stop = store.sentences[walk.sentence], store.sentences[a_end]
    b, b_stop = a_stop.copy(), store.sentences[chunk_end]
    random = np.flatnonzero(is_random)
    length = walk.target - (a_stop - a)
    b[random], b_stop[random] = _random_segments(store, walk.pick(random), length[random])
    return a, a_stop, b, b_stop


def _random_segments(store: TokenStore, walk: Walk, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose sentences of another document, from a random one on, with ``length`` tokens; return start and stop."""
    slot = walk.number * SLOTS
    document = walk.document.copy()
    same = np.arange(len(document))
    for attempt in range(TRIES):
        again = walk.pick(same)
        document[same] = integers(again.stream, again.document, slot[same] + RANDOM_DOCUMENT + attempt, len(store))
        same = same[document[same] == walk.document[same]]
        if not len(same):
            break
    first, stop = store.documents[document], store.documents[document + 1]
    first = first + integers(walk.stream, walk.document, slot + START, stop - first)
    start = store.sentences[first]
    reached = np.searchsorted(store.sentences, start + np.maximum(length, 1))
    return start, store.sentences[np.minimum(reached, stop)]


def _truncate(
    walk: Walk, a: np.ndarray, a_length: np.ndarray, b: np.ndarray, b_length: np.ndarray, max_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Remove tokens one by one from the longer segment (B on ties), at the front or back by a fair coin.

    Which segment loses the r-th token is known in advance: the longer one until both are equally long, then the two
    alternate. Only its end (front or back) is random, one bit a token; 64 of these bits are drawn and counted at once.
    """
    surplus = np.maximum(a_length + b_length - max_length, 0)
    words = (surplus + 63) // 64
    pair = np.repeat(np.arange(len(a)), words)
    word = np.arange(len(pair)) - np.repeat(np.cumsum(words) - words, words)
    coins = bits(walk.stream[pair], walk.document[pair], CUTS + walk.number[pair] * CUTS_EACH + word)
    longer_a = a_length > b_length
    alone = np.where(longer_a, a_length - b_length, b_length - a_length + 1)  # coins of the longer segment alone
    used, first = _first_bits(surplus[pair] - 64 * word), _first_bits(alone[pair] - 64 * word)
    in_turn = np.where((alone[pair] & 1) == 1, ~EVEN, EVEN)  # the other segment's coins, once both alternate
    of_a = np.where(longer_a[pair], ~in_turn | first, in_turn & ~first) & used

    def count(heads: np.ndarray) -> np.ndarray:
        return np.bincount(pair, np.bitwise_count(heads), len(a)).astype(np.int64)

    a_cut, a_front, b_front = count(of_a), count(of_a & coins), count(used & ~of_a & coins)
    return a + a_front, a_length - a_cut, b + b_front, b_length - (surplus - a_cut)


def _first_bits(count: np.ndarray) -> np.ndarray:
    """Return 64-bit words whose lowest ``count`` bits are set: all if ``count`` >= 64, none if ``count`` <= 0."""
    shift = np.clip(count, 0, 63).astype(np.uint64)
    return np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << shift) - np.uint64(1))
