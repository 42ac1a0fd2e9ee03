"""Copies of a book: the same words, or nearly the same ones (MinHash over 5-word shingles: Broder 1997).

Words are compared in lower case and without punctuation, so that typesetting does not count.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from zlib import crc32

import numpy as np
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray

SHINGLE = 5  # words
PERMUTATIONS, SEED = 128, 1
RECALL = 0.99  # share of pairs right at the threshold that the index must find
_MARKS = bytes(code for code in range(128) if not chr(code).isalnum() and not chr(code).isspace())
_TYPOGRAPHIC = "‘’“”–—…"
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, of irregular bits (Knuth, The Art of Computer Programming 3, 6.4)
_SCHEME = "affine32"


def normal_words(text: str) -> list[bytes]:
    """The words of ``text`` in lower case, without punctuation, as UTF-8."""
    for mark in _TYPOGRAPHIC:
        text = text.replace(mark, "")
    return text.lower().encode("utf-8", "surrogatepass").translate(None, _MARKS).split()


def digest(words: list[bytes]) -> bytes:
    """16 bytes that are the same for the same words alone."""
    return blake2b(b" ".join(words), digest_size=16).digest()


def signature(words: list[bytes]) -> NDArray[np.uint32] | None:
    """The MinHash of a text, uint32 [128]; None where it is too short to have a shingle."""
    if len(words) < SHINGLE:
        return None
    a, b = _permutations()
    shingles = shingle_hashes(words)
    lowest = np.empty(PERMUTATIONS, np.uint32)
    for number in range(PERMUTATIONS):  # one long pass each is five times as fast as MinHash.update_batch
        lowest[number] = (shingles * a[number] + b[number]).min()
    return lowest


def shingle_hashes(words: list[bytes]) -> NDArray[np.uint32]:
    """A hash of each run of five words, uint32 [words - 4]."""
    hashes = np.fromiter(map(crc32, words), np.uint64, len(words))
    count = len(words) - SHINGLE + 1
    mixed = np.zeros(count, np.uint64)
    for place in range(SHINGLE):
        mixed = mixed * _MIX + hashes[place : place + count]
    return ((mixed ^ (mixed >> np.uint64(29))) * _MIX >> np.uint64(32)).astype(np.uint32)


@cache
def _permutations() -> NDArray[np.uint32]:
    return MinHash(PERMUTATIONS, seed=SEED, scheme=_SCHEME).permutations


class Copies:
    """The books seen so far, by what they say; holds about 8 kB a book, never its text.

    Args:
        threshold: Jaccard similarity of shingles (0 to 1) from which two books are near copies; None asks for exact
            copies alone.
    """

    def __init__(self, threshold: float | None) -> None:
        self.threshold = threshold
        self._exact: dict[bytes, str] = {}
        self._near = MinHashLSH(num_perm=PERMUTATIONS, params=bands(threshold)) if threshold else None
        self._signatures: dict[str, MinHash] = {}

    def find(self, name: str, words: bytes, shingles: NDArray[np.uint32] | None) -> tuple[str, str] | None:
        """The reason to drop a book and the earlier one that it copies; None for a new one, which is then known.

        Args:
            name: its id.
            words: its :func:`digest`.
            shingles: its :func:`signature`.
        """
        if words in self._exact:
            return "duplicate", self._exact[words]
        if self._near is not None and shingles is not None:
            minhash = MinHash(hashvalues=shingles, seed=SEED, scheme=_SCHEME, permutations=_permutations())
            like = {other: minhash.jaccard(self._signatures[other]) for other in self._near.query(minhash)}
            nearest = min(like, key=lambda other: (-like[other], other), default=None)
            if nearest is not None and like[nearest] >= (self.threshold or 0):
                return "near_duplicate", nearest
            self._near.insert(name, minhash)
            self._signatures[name] = minhash
        self._exact[words] = name
        return None


def bands(threshold: float) -> tuple[int, int]:
    """Bands of the index and rows of each: as few bands as find a pair at the threshold with chance ``RECALL``.

    What they find besides is sorted out by the whole signatures.
    """
    for rows in range(PERMUTATIONS // 2, 0, -1):
        count = PERMUTATIONS // rows
        if 1 - (1 - threshold**rows) ** count >= RECALL:
            return count, rows
    return PERMUTATIONS, 1
