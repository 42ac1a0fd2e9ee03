"""Words as characters, the pieces that learning starts from: all of them end to end in one array."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

BLOCK = 1 << 17  # words turned into arrays at a time
CODES = 0x110000  # code points that there are
END = 0  # the piece that stands after each word


@dataclass(frozen=True)
class Spelling:
    """The words to learn from.

    Attributes:
        forms: the first pieces: the characters kept, by code point, then the ``##`` forms of those inside words.
        characters: how many of them are characters.
        pieces: int32 [letters], for each letter of each word the number of its form, from 1; END after each word.
        word: int32 [letters], which word each letter belongs to.
        counts: int64 [words], how often each occurs.
    """

    forms: list[str]
    characters: int
    pieces: np.ndarray
    word: np.ndarray
    counts: np.ndarray


def spell(words: Iterable[tuple[str, int]], alphabet: int, min_count: int) -> Spelling:
    """Choose an alphabet from all words, then spell those that are frequent enough and have no other characters.

    Args:
        words: each word once, with its count.
        alphabet: most characters kept: the most frequent ones, of equally frequent ones the lower code points.
        min_count: rarer words are not learnt from.
    """
    frequency = np.zeros(CODES)  # whole numbers, exact up to 2 ** 53
    continues = np.zeros(CODES, bool)
    texts, counts = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    stream = iter(words)
    while block := list(islice(stream, BLOCK)):
        text = np.frombuffer("".join(f"{word}\0" for word, _ in block).encode("utf-32-le"), np.uint32)
        count = np.array([count for _, count in block], np.int64)
        letter_counts = count[_word_of_letter(text)]
        frequency += np.bincount(text, letter_counts, CODES)
        continues[text[1:][text[:-1] != END]] = True
        texts.append(text[letter_counts >= min_count])
        counts.append(count[count >= min_count])
    frequency[END] = 0
    ranked = np.argsort(-frequency, kind="stable")[:alphabet]
    characters = np.sort(ranked[frequency[ranked] > 0])
    inner = characters[continues[characters]]

    text, count = np.concatenate(texts), np.concatenate(counts)
    del texts
    known = np.zeros(CODES, bool)
    known[characters] = known[END] = True
    word = _word_of_letter(text)
    kept = np.ones(len(count), bool)
    kept[word[~known[text]]] = False
    text, count = text[kept[word]], count[kept]
    number = np.zeros(CODES, np.int32)
    number[inner] = np.arange(len(inner)) + len(characters) + 1
    pieces = number[text]
    number[characters] = np.arange(len(characters)) + 1
    first = np.ones(len(text), bool)
    first[1:] = text[:-1] == END
    pieces[first] = number[text[first]]
    forms = [*map(chr, characters.tolist()), *(f"##{chr(code)}" for code in inner.tolist())]
    return Spelling(forms, len(characters), pieces, _word_of_letter(text), count)


def _word_of_letter(text: np.ndarray) -> np.ndarray:
    """Which word each letter belongs to, and the END after it, int32 [letters]."""
    is_end = text == END
    return np.cumsum(is_end, dtype=np.int32) - is_end
