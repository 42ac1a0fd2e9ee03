"""Split text of any script into words, to measure the length of documents.

Words end at white space. Chinese, Japanese, Thai and some other languages have no spaces between words. In their
scripts, a word is a fixed number of letters, about the average length of a word.
"""

from __future__ import annotations

import re
from itertools import islice

# One Han, kana or Hangul character counts as 2.5 letters of an alphabet. A word has two such characters, or five
# letters.
DENSE_WEIGHT = 2.5
# Han, kana, Bopomofo and Yi, without their punctuation. Hangul is left out, since it has spaces between words.
DENSE_LETTERS = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u303c\u3041-\u3096\u309d-\u30fa\u30fc-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\ua48c\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Thai and Lao are separate from the other scripts, since they have no full stops either.
THAI_AND_LAO = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf"
ALPHABETS = THAI_AND_LAO + (
    # Tibetan, with the mark between its syllables.
    "\u0f00\u0f0b\u0f0c\u0f40-\u0fbc"
    # Burmese, Mon, Shan and related scripts.
    "\u1000-\u103f\u1050-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"
    # Khmer
    "\u1780-\u17d3\u17d7\u17dc"
    # Tai Le, New Tai Lue, Tai Tham, Tai Viet
    "\u1950-\u1974\u1980-\u19c9\u1a20-\u1a7c\u1aa7\uaa80-\uaadd"
    # Balinese, Javanese
    "\u1b00-\u1b4c\ua980-\ua9c0\ua9cf"
)
LETTERS = DENSE_LETTERS + ALPHABETS
# A longer text is not split into a list of words, which would take ten times the memory of the text.
MAX_SPLIT_CHARACTERS = 1 << 20

_UNSPACED = re.compile(f"[{LETTERS}]")
_DENSE = re.compile(f"[{DENSE_LETTERS}]")
# All bytes except those that begin one of LETTERS in UTF-8. Deleting these bytes is faster than a search: if nothing is
# left, the text has none of LETTERS.
_OTHER_BYTES = bytes(set(range(256)) - {0xE0, 0xE1, *range(0xE3, 0xEB), 0xEF, 0xF0})
_CUT = f"(?:[{DENSE_LETTERS}]{{1,2}}|[{ALPHABETS}]{{1,5}})"
# Punctuation belongs to the word that it touches, as in scripts with spaces.
_MARKS = rf"[^\w\s{LETTERS}]*+"
_WORD = re.compile(rf"{_MARKS}{_CUT}{_MARKS}|[^\s{LETTERS}]++")
_LETTER_OR_MARK = re.compile(rf"(?=({_CUT}))[{LETTERS}]|[^\w\s]")


def is_unspaced(text: str) -> bool:
    # Return whether a text has letters of a script that has no spaces between words.
    if text.isascii() or not text.encode("utf-8", "surrogatepass").translate(None, _OTHER_BYTES):
        return False
    return _UNSPACED.search(text) is not None


def split_words(text: str) -> list[str]:
    # Words include their punctuation. The result equals text.split() for scripts with spaces.
    return _WORD.findall(text) if is_unspaced(text) else text.split()


def count_words(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text)) if len(text) > MAX_SPLIT_CHARACTERS else len(split_words(text))


def first_words(text: str, count: int) -> str:
    last = next(islice(_WORD.finditer(text), count - 1, None), None)
    return text if last is None else text[: last.end()]


def space_words(text: str) -> str:
    """Insert spaces into text of a script without spaces, so that a word begins at each letter.

    The words overlap: 水车转。 becomes 水车 车转 转. Two texts therefore have the same words again after a place where
    they differ. Punctuation is removed.
    """
    return _LETTER_OR_MARK.sub(r" \1 ", text) if is_unspaced(text) else text


def num_letters(text: str) -> float:
    # Count the letters of a text. A Han or kana character counts as 2.5 letters.
    return len(text) + (DENSE_WEIGHT - 1) * len(_DENSE.findall(text))
