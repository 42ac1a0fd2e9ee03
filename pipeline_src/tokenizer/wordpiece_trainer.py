"""Learn a WordPiece vocabulary from word counts by merging the most frequent pair of pieces repeatedly.

The merges are those of WordPieceTrainer in `tokenizers`, but in a fixed order: among equally frequent pairs, the pair
whose left piece has the lowest id comes first, then the pair whose right piece has the lowest id. The letters of all
words are in one array, and a merge takes a few operations on arrays of positions. It needs about 40 bytes of memory per
letter of the distinct words, for any size of the text.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import Progress
from pipeline_src.tokenizer.special_tokens import Counted
from pipeline_src.tokenizer.wordpiece import reserved_tokens

# Numbers of words and of letters that are counted at once.
WORDS_PER_BLOCK = 1 << 17
LETTERS_PER_BLOCK = 1 << 22
# Number of Unicode code points.
CODES = 0x110000
# Piece number that marks the end of a word.
END = 0
# A pair is encoded as the number left * BASE + right. There are fewer than BASE pieces.
BASE = 1 << 20
# Marks letters in `Merger.pieces` that are neither the first nor the last letter of their piece.
INSIDE = -1


@dataclass(frozen=True)
class Spelling:
    """The words to learn from, as an array of letters.

    Attributes:
        forms: the initial pieces. First comes the alphabet by code point, then the ``##`` forms of characters that
            occur inside words.
        characters: number of ``forms`` without ``##``.
        pieces: for each letter, the number of its form, counted from 1, and END after each word, int32 [letters].
        word: for each letter, the index of its word, int32 [letters].
        counts: number of occurrences of each word, int64 [words].
    """

    forms: list[str]
    characters: int
    pieces: np.ndarray
    word: np.ndarray
    counts: np.ndarray


def spell(words: Iterable[tuple[str, int]], alphabet: int, min_count: int) -> Spelling:
    """Choose an alphabet, and spell the words that consist of it.

    Args:
        alphabet: size of the alphabet, which has the most frequent characters. Of equally frequent characters, those
            with lower code points are chosen.
        min_count: words that occur less often are left out.
    """
    # float64, as np.bincount returns. Counts are exact up to 2 ** 53.
    frequency = np.zeros(CODES)
    continues = np.zeros(CODES, bool)
    texts = [np.zeros(0, np.uint32)]
    counts = [np.zeros(0, np.int64)]
    stream = iter(words)
    while block := list(islice(stream, WORDS_PER_BLOCK)):
        # The words "ab" and "c": a b END c END.
        joined = "".join(f"{word}\0" for word, _ in block)
        text = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        count = np.array([count for _, count in block], np.int64)
        letter_counts = count[_word_of_letter(text)]
        frequency += np.bincount(text, letter_counts, CODES)
        follows_letter = text[:-1] != END
        continues[text[1:][follows_letter]] = True
        texts.append(text[letter_counts >= min_count])
        counts.append(count[count >= min_count])
    frequency[END] = 0
    ranked = np.argsort(-frequency, kind="stable")[:alphabet]
    characters = np.sort(ranked[frequency[ranked] > 0])
    inner = characters[continues[characters]]

    # Leave out the words with a character outside the alphabet.
    text = np.concatenate(texts)
    count = np.concatenate(counts)
    del texts
    known = np.zeros(CODES, bool)
    known[characters] = True
    known[END] = True
    word = _word_of_letter(text)
    is_known = np.ones(len(count), bool)
    is_known[word[~known[text]]] = False
    text = text[is_known[word]]
    count = count[is_known]

    # Give all letters the numbers of their ## forms, then overwrite the numbers of first letters.
    number = np.zeros(CODES, np.int32)
    number[inner] = np.arange(len(inner)) + len(characters) + 1
    pieces = number[text]
    number[characters] = np.arange(len(characters)) + 1
    first = np.ones(len(text), bool)
    first[1:] = text[:-1] == END
    pieces[first] = number[text[first]]
    forms = [chr(code) for code in characters.tolist()]
    forms += [f"##{chr(code)}" for code in inner.tolist()]
    return Spelling(forms, len(characters), pieces, _word_of_letter(text), count)


def _word_of_letter(text: np.ndarray) -> np.ndarray:
    # Return the index of the word of each letter and each END, int32 [letters].
    is_end = text == END
    return np.cumsum(is_end, dtype=np.int32) - is_end


def learn_vocabulary(words: Counted, size: int, alphabet: int, min_count: int, unused: int = 0) -> list[str]:
    """Learn pieces from word counts (Schuster and Nakajima 2012; the paper, section 3: "WordPiece embeddings").

    Args:
        words: counts of normalised words.
        size: maximum number of entries, special tokens and characters included.
        alphabet: maximum number of single characters, of which the most frequent are chosen. Words with other
            characters are ignored.
        min_count: words and pairs that occur less often are ignored.
        unused: number of entries to reserve for later use.

    Returns:
        Special and reserved tokens, characters, their ``##`` forms, then merged pieces in the order of learning.
    """
    spelling = spell(words.items(), alphabet, min_count)
    reserved = reserved_tokens(unused)
    room = size - len(reserved) - len(spelling.forms)
    if room < 0:
        raise PipelineError(
            "the vocabulary is too small",
            f"vocab_size is {size}, and {len(reserved)} special and unused tokens and {len(spelling.forms)} tokens of "
            f"a single character (of {spelling.characters}, with and without ##) are needed",
            where="params.yaml, block vocabulary",
            hint=f"set vocab_size to {size - room} or more, or lower unused or limit_alphabet",
        )
    with Progress("learning pieces", size, "piece") as progress:
        progress.advance(size - room)
        merger = Merger(spelling)
        for _ in islice(merger.learn(min_count), room):
            progress.advance()
    return reserved + merger.texts[1:]


class Merger:
    """The current split of the words, and how often each pair of neighbouring pieces occurs in it.

    Pieces are numbered in the order of the vocabulary, from 1 for the first character.

    Attributes:
        texts: number of a piece -> its spelling; ``##`` marks a piece that continues a word.
        pieces: int32 [letters]: at the first and the last letter of a piece, its number; INSIDE between these letters;
            END after each word.
        positions: for each piece, the indices of letters at which it starts, ascending, int32; some may be outdated.
        pair_counts: pair of neighbouring pieces -> its exact count.
    """

    def __init__(self, spelling: Spelling) -> None:
        self.texts = ["", *spelling.forms]
        self.pieces = spelling.pieces
        self._word = spelling.word
        self._word_counts = spelling.counts
        self._numbers = {text: number for number, text in enumerate(self.texts)}
        # Number of letters in each piece.
        self._lengths = [0] + [1] * len(spelling.forms)
        # Find the positions of each piece: sort all positions by piece, and split the result between pieces. For pieces
        # 2 1 2, this gives 1 | 0 2. Narrow integer types are sorted in linear time.
        narrow = self.pieces.astype(np.min_scalar_type(len(self.texts)))
        order = np.argsort(narrow, kind="stable").astype(np.int32)
        ends = np.cumsum(np.bincount(self.pieces, minlength=len(self.texts)))
        self.positions = [part.copy() for part in np.split(order, ends[:-1])]
        self.pair_counts = self._count_pairs()

    def _count_pairs(self) -> defaultdict[int, int]:
        totals: defaultdict[int, int] = defaultdict(int)
        for start in range(0, len(self.pieces), LETTERS_PER_BLOCK):
            # Include the first letter of the next block, which forms a pair with the last letter of this block.
            block = self.pieces[start : start + LETTERS_PER_BLOCK + 1].astype(np.int64)
            left = block[:-1]
            right = block[1:]
            is_pair = np.flatnonzero((left != END) & (right != END))
            numbers = left[is_pair] * BASE + right[is_pair]
            pairs, which = np.unique(numbers, return_inverse=True)
            # A pair counts as often as its word occurs.
            weights = self._word_counts[self._word[start + is_pair]]
            counts = np.bincount(which, weights)

            for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
                totals[pair] += int(count)
        return totals

    def learn(self, min_count: int) -> Iterator[str]:
        # Merge the most frequent pair until no pair occurs `min_count` times. Yield the new pieces.
        counts = self.pair_counts
        heap = [(-count, pair) for pair, count in counts.items() if count >= min_count]
        heapq.heapify(heap)
        while heap:
            count, pair = heapq.heappop(heap)
            now = counts.get(pair, 0)
            # If other merges have changed the count, push the pair again with its present count.
            if now != -count:
                if now >= min_count:
                    heapq.heappush(heap, (-now, pair))
                continue
            left, right = divmod(pair, BASE)
            text = self.texts[left] + self.texts[right].removeprefix("##")
            # Two pairs can give the same piece: "ab" + "c" and "a" + "bc".
            number = self._numbers.setdefault(text, len(self.texts))
            new = number == len(self.texts)
            if new:
                self.texts.append(text)
                self._lengths.append(self._lengths[left] + self._lengths[right])
                self.positions.append(np.empty(0, np.int32))
            for changed in self._merge(left, right, number):
                if counts[changed] >= min_count:
                    heapq.heappush(heap, (-counts[changed], changed))
            if new:
                yield text

    def _merge(self, left: int, right: int, merged: int) -> set[int]:
        # Replace every `left` that `right` follows by `merged`. Return the pairs that have become more frequent.
        pieces = self.pieces
        counts = self.pair_counts
        positions = self._find(left, right)
        weights = self._word_counts[self._word[positions]]
        size = self._lengths[merged]
        right_start = self._lengths[left]

        # Where x left right y becomes x merged y, pairs (x, left) and (right, y) become (x, merged) and (merged, y).
        before = pieces[positions - 1].astype(np.int64)
        after = pieces[positions + size].astype(np.int64)
        has_before = before != END
        # Also False if the next occurrence follows directly, since that occurrence counts the same pair as its (x,
        # left).
        has_after = after != END
        has_after[:-1] &= positions[1:] != positions[:-1] + size
        lost_before = before * BASE + left
        lost_after = right * BASE + after

        pieces[positions + (right_start - 1)] = INSIDE
        pieces[positions + right_start] = INSIDE
        pieces[positions] = merged
        pieces[positions + (size - 1)] = merged
        # If two occurrences are neighbours, the piece before the second one is now `merged`.
        now_before = pieces[positions - 1].astype(np.int64)
        gained_before = now_before * BASE + merged
        gained_after = merged * BASE + after

        weight = np.concatenate([weights[has_before], weights[has_after]]).tolist()
        less = np.concatenate([lost_before[has_before], lost_after[has_after]]).tolist()
        more = np.concatenate([gained_before[has_before], gained_after[has_after]]).tolist()
        for pair, count in zip(less, weight, strict=True):
            counts[pair] -= count
            if not counts[pair]:
                del counts[pair]
        for pair, count in zip(more, weight, strict=True):
            counts[pair] += count
        counts.pop(left * BASE + right, None)
        known = self.positions[merged]
        self.positions[merged] = np.sort(np.concatenate([known, positions])) if len(known) else positions
        return set(more)

    def _find(self, left: int, right: int) -> np.ndarray:
        # Return where `left` followed by `right` starts, ascending, without overlaps.
        pieces = self.pieces
        size = self._lengths[left]
        # Search the positions of the rarer piece, and drop its outdated positions.
        rarer = min(left, right, key=lambda piece: len(self.positions[piece]))
        candidates = self.positions[rarer]
        positions = candidates[pieces[candidates] == rarer]
        self.positions[rarer] = positions
        if rarer == left:
            starts = positions[pieces[positions + size] == right]
        else:
            starts = positions[pieces[positions - 1] == left] - size
        if left == right:
            # In a run of the same piece, every second occurrence starts a pair: in x x x x x, occurrences 0 and 2. The
            # last occurrence of a run is not in `starts`, since the same piece does not follow it.
            index = np.arange(len(starts))
            starts_run = np.diff(starts, prepend=-size - 1) != size
            run_start = np.maximum.accumulate(np.where(starts_run, index, 0))
            starts = starts[(index - run_start) % 2 == 0]
        return starts
