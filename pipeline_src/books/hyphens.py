"""Whether a word broken at a line's end was written with its hyphen: the book's own other words tell.

A scanned book breaks words anywhere (``con-`` / ``cerning``); a transcriber leaves only hyphens that belong to the word
(``every-`` / ``day``). So the form that stands whole elsewhere in the book is right, and where neither does, what most
of its other broken words turned out to be.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

_WORD = r"[^\W\d_]+(?:['’][^\W\d_]+)*"
_WORDS = re.compile(rf"{_WORD}(?:-{_WORD})*")
# Begun at the start of a piece alone, of few pieces: a line of 100,000 letters is read once, not 100,000 times.
_PIECE = r"[^\W\d_]++(?:['’][^\W\d_]++){0,8}"
_BROKEN = re.compile(rf"(?<![^\W\d_])((?:{_PIECE}-){{0,8}}{_PIECE})-[ \t]*+\n[ \t]*+({_WORD})")
_LAST = re.compile(rf"((?:{_WORD}-)*{_WORD})-\Z")
_FIRST = re.compile(_WORD)
_WINDOW = 100  # characters; no word is longer
PART = 2  # times that a part stands alone before it is taken for a word


class Hyphens:
    """The broken words of one book.

    Args:
        text: the book, with its line ends.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def belongs(self, before: str, after: str) -> bool:
        """Whether the hyphen at the end of ``before`` is part of the word that goes on at the start of ``after``."""
        left, right = _LAST.search(before[-_WINDOW:]), _FIRST.match(after)
        if left is None or right is None:
            return True
        told = self._told(left[1].lower(), right[0].lower())
        if told is not None:
            return told
        if right[0][0].isupper() or self._mostly_belong:
            return True
        return all(self._counts[part] >= PART for part in (left[1].lower().rpartition("-")[2], right[0].lower()))

    def _told(self, left: str, right: str) -> bool | None:
        """What the rest of the book says; None where it has neither form, or both alike."""
        joined, hyphenated = self._counts[left + right], self._counts[f"{left}-{right}"]
        return None if joined == hyphenated else hyphenated > joined

    @cached_property
    def _counts(self) -> Counter[str]:
        """How often each word stands whole on a line."""
        return Counter(map(str.lower, _WORDS.findall(_BROKEN.sub(" ", self._text))))

    @cached_property
    def _mostly_belong(self) -> bool:
        told = [self._told(left.lower(), right.lower()) for left, right in _BROKEN.findall(self._text)]
        known = [each for each in told if each is not None]
        return 2 * sum(known) >= len(known)
