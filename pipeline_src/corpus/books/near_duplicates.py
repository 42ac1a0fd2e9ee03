"""Duplicate and near-duplicate books: MinHash over 5-word shingles (Broder 1997).

Words are compared in lower case and without punctuation, so that typesetting does not count. MinHash finds candidates;
the shingles themselves decide.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from zlib import crc32

import numpy as np
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray

SHINGLE_WORDS = 5
PERMUTATIONS, SEED = 128, 1
RECALL = 0.99999  # of pairs exactly at the threshold, by the index
ESTIMATE_MARGIN = 0.25  # six standard errors of a similarity estimated by 128 hashes
_MARKS = bytes(code for code in range(128) if not chr(code).isalnum() and not chr(code).isspace())
_TYPOGRAPHIC = "‘’“”–—…"
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, of irregular bits (Knuth, The Art of Computer Programming 3, 6.4)
_SCHEME = "affine32"


def normal_words(text: str) -> list[bytes]:
    """Return the words of ``text`` in lower case, without punctuation, as UTF-8."""
    for mark in _TYPOGRAPHIC:
        text = text.replace(mark, "")
    return text.lower().encode("utf-8", "surrogatepass").translate(None, _MARKS).split()


def digest(words: list[bytes]) -> bytes:
    """Return a 16-byte hash of the words."""
    return blake2b(b" ".join(words), digest_size=16).digest()


@dataclass(frozen=True)
class Shingles:
    """The shingles of one text: their sorted unique hashes, uint32 [shingles], and their MinHash, uint32 [128]."""

    hashes: NDArray[np.uint32]
    minhash: NDArray[np.uint32]


def shingle(words: list[bytes]) -> Shingles | None:
    """Return the shingles of a text, or None if it is too short to have one."""
    if len(words) < SHINGLE_WORDS:
        return None
    a, b = _permutations()
    hashes = np.unique(_shingle_hashes(words))
    minhash = np.empty(PERMUTATIONS, np.uint32)
    for index in range(PERMUTATIONS):  # one pass for each permutation is five times as fast as MinHash.update_batch
        minhash[index] = (hashes * a[index] + b[index]).min()
    return Shingles(hashes, minhash)


def _shingle_hashes(words: list[bytes]) -> NDArray[np.uint32]:
    hashes = np.fromiter(map(crc32, words), np.uint64, len(words))
    count = len(words) - SHINGLE_WORDS + 1
    mixed = np.zeros(count, np.uint64)
    for offset in range(SHINGLE_WORDS):
        mixed = mixed * _MULTIPLIER + hashes[offset : offset + count]
    return ((mixed ^ (mixed >> np.uint64(29))) * _MULTIPLIER >> np.uint64(32)).astype(np.uint32)


@cache
def _permutations() -> NDArray[np.uint32]:
    return MinHash(PERMUTATIONS, seed=SEED, scheme=_SCHEME).permutations


class Copies:
    """Index of the books seen so far; needs about 8 kB of memory a book and 4 bytes a word in a temporary file.

    Args:
        threshold: minimum Jaccard similarity of near-duplicates, 0 to 1; None finds only exact duplicates.
    """

    def __init__(self, threshold: float | None) -> None:
        self._exact: dict[bytes, str] = {}
        self._near = _NearCopies(threshold) if threshold else None

    def find(self, name: str, words: bytes, shingles: Shingles | None) -> tuple[str, str] | None:
        """Return the reason to drop a book and the earlier book it copies, or None after adding a new book."""
        if words in self._exact:
            return "duplicate", self._exact[words]
        if self._near is not None and shingles is not None and (nearest := self._near.find(name, shingles)):
            return "near_duplicate", nearest
        self._exact[words] = name
        return None


class _NearCopies:
    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._index = MinHashLSH(num_perm=PERMUTATIONS, params=bands(threshold))
        self._books: dict[str, tuple[MinHash, int, int]] = {}  # MinHash; offset and number of its hashes in the file
        self._file = tempfile.TemporaryFile()

    def find(self, name: str, shingles: Shingles) -> str | None:
        minhash = MinHash(hashvalues=shingles.minhash, seed=SEED, scheme=_SCHEME, permutations=_permutations())
        similarity = {book: self._similarity(minhash, shingles, book) for book in self._index.query(minhash)}
        nearest = min(similarity, key=lambda book: (-similarity[book], book), default=None)
        if nearest is not None and similarity[nearest] >= self._threshold:
            return str(nearest)
        self._index.insert(name, minhash)
        self._books[name] = minhash, self._file.seek(0, os.SEEK_END), len(shingles.hashes)
        self._file.write(shingles.hashes.tobytes())
        return None

    def _similarity(self, minhash: MinHash, shingles: Shingles, book: str) -> float:
        """Return the Jaccard similarity with a known book: exact, unless the estimate is far below the threshold."""
        book_minhash, start, count = self._books[book]
        estimate = minhash.jaccard(book_minhash)
        if estimate < self._threshold - ESTIMATE_MARGIN:
            return float(estimate)
        self._file.seek(start)
        hashes = np.frombuffer(self._file.read(4 * count), np.uint32)
        num_shared = len(np.intersect1d(shingles.hashes, hashes, assume_unique=True))
        return num_shared / (len(shingles.hashes) + count - num_shared)


def bands(threshold: float) -> tuple[int, int]:
    """Return the fewest bands, and their rows, that find a pair at the threshold with probability ``RECALL``."""
    for num_rows in range(PERMUTATIONS // 2, 0, -1):
        num_bands = PERMUTATIONS // num_rows
        if 1 - (1 - threshold**num_rows) ** num_bands >= RECALL:
            return num_bands, num_rows
    return PERMUTATIONS, 1
