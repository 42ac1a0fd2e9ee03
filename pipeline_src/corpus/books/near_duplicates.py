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
from pathlib import Path
from zlib import crc32

import numpy as np
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray

SHINGLE = 5  # words
PERMUTATIONS, SEED = 128, 1
RECALL = 0.99999  # of pairs exactly at the threshold, by the index
FAR = 0.25  # six standard errors of a similarity estimated by 128 hashes
_MARKS = bytes(code for code in range(128) if not chr(code).isalnum() and not chr(code).isspace())
_TYPOGRAPHIC = "‘’“”–—…"
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, of irregular bits (Knuth, The Art of Computer Programming 3, 6.4)
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
    """The shingles of one text.

    Attributes:
        all: sorted unique hashes, uint32 [shingles].
        lowest: the MinHash, uint32 [128].
    """

    all: NDArray[np.uint32]
    lowest: NDArray[np.uint32]


def shingle(words: list[bytes]) -> Shingles | None:
    """Return the shingles of a text, or None if it is too short to have one."""
    if len(words) < SHINGLE:
        return None
    a, b = _permutations()
    hashes = np.unique(shingle_hashes(words))
    lowest = np.empty(PERMUTATIONS, np.uint32)
    for number in range(PERMUTATIONS):  # one pass for each permutation is five times as fast as MinHash.update_batch
        lowest[number] = (hashes * a[number] + b[number]).min()
    return Shingles(hashes, lowest)


def shingle_hashes(words: list[bytes]) -> NDArray[np.uint32]:
    """Hash each run of five words, uint32 [words - 4]."""
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
    """Index of the books seen so far; needs about 8 kB of memory a book and 4 bytes a word in a temporary file.

    Args:
        threshold: Jaccard similarity of shingles (0 to 1) from which two books are near-duplicates; None finds only
            exact duplicates.
    """

    def __init__(self, threshold: float | None, folder: Path | None = None) -> None:
        self.threshold = threshold
        self._exact: dict[bytes, str] = {}
        self._near = MinHashLSH(num_perm=PERMUTATIONS, params=bands(threshold)) if threshold else None
        self._kept: dict[str, tuple[MinHash, int, int]] = {}  # signature, offset and number of its shingles in the file
        self._shingles = tempfile.TemporaryFile(dir=folder) if threshold else None

    def find(self, name: str, words: bytes, shingles: Shingles | None) -> tuple[str, str] | None:
        """Return the reason to drop a book and the earlier book it copies, or None after adding a new book."""
        if words in self._exact:
            return "duplicate", self._exact[words]
        if self._near is not None and shingles is not None:
            minhash = MinHash(hashvalues=shingles.lowest, seed=SEED, scheme=_SCHEME, permutations=_permutations())
            like = {other: self._similarity(minhash, shingles, other) for other in self._near.query(minhash)}
            nearest = min(like, key=lambda other: (-like[other], other), default=None)
            if nearest is not None and like[nearest] >= (self.threshold or 0):
                return "near_duplicate", nearest
            self._near.insert(name, minhash)
            self._keep(name, minhash, shingles)
        self._exact[words] = name
        return None

    def _similarity(self, minhash: MinHash, shingles: Shingles, other: str) -> float:
        """Jaccard similarity with a known book: exact, unless the estimate is far below the threshold."""
        signature, start, count = self._kept[other]
        estimate = minhash.jaccard(signature)
        if estimate < (self.threshold or 0) - FAR:
            return float(estimate)
        assert self._shingles is not None
        self._shingles.seek(start)
        theirs = np.frombuffer(self._shingles.read(4 * count), np.uint32)
        shared = len(np.intersect1d(shingles.all, theirs, assume_unique=True))
        return shared / (len(shingles.all) + count - shared)

    def _keep(self, name: str, minhash: MinHash, shingles: Shingles) -> None:
        assert self._shingles is not None
        start = self._shingles.seek(0, os.SEEK_END)
        self._shingles.write(shingles.all.tobytes())
        self._kept[name] = minhash, start, len(shingles.all)


def bands(threshold: float) -> tuple[int, int]:
    """Return the fewest bands, and their rows, that find a pair at the threshold with probability ``RECALL``."""
    for rows in range(PERMUTATIONS // 2, 0, -1):
        count = PERMUTATIONS // rows
        if 1 - (1 - threshold**rows) ** count >= RECALL:
            return count, rows
    return PERMUTATIONS, 1
