"""Find near-duplicate texts with MinHash over 5-word shingles (Broder 1997), in bands on disk.

Words are compared in lower case and without punctuation, so that typesetting is ignored. In a script without spaces, a
word begins at each letter. MinHash finds candidates, whose shingles are then compared exactly. A text is a copy if it
is similar to an earlier text that is not itself a copy.
"""

from __future__ import annotations

import os
import string
from array import array
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple
from zlib import crc32

import numpy as np
from datasketch import MinHash
from numpy.typing import NDArray

from pipeline_src.text.documents import ShardSlice, read_slice
from pipeline_src.text.words import MAX_SPLIT_CHARACTERS, space_words

SHINGLE_WORDS = 5
PERMUTATIONS, SEED = 128, 1
# Fraction of the pairs with exactly the threshold similarity that the bands find.
RECALL = 0.99999
# Six standard errors of a similarity that is estimated with 128 hashes.
ESTIMATE_MARGIN = 0.25
# Compare a text with at most this many texts of a bucket. Texts from one template share many buckets.
MAX_BUCKET_TEXTS = 100
# Hash this many words at once, which fit into the CPU cache.
BATCH_WORDS = 1 << 10
BLOCK_TEXTS = 1 << 12
_MARKS = string.punctuation.encode()
_TYPOGRAPHIC = "‘’“”–—…"
# Multiplier for hashing, an odd number with irregular bits (Knuth, The Art of Computer Programming 3, 6.4).
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


# Cached, since `digest` and `hash_words` are called one after the other for the same text.
@lru_cache(1)
def normal_words(text: str) -> list[bytes]:
    for mark in _TYPOGRAPHIC:
        text = text.replace(mark, "")
    return space_words(text.lower()).encode("utf-8", "surrogatepass").translate(None, _MARKS).split()


def _stretches(text: str) -> list[str]:
    # Split a long text into lines, since a list of all words of 50 MB of text would take 500 MB. Lines of clean text
    # are short.
    return text.split("\n") if len(text) > MAX_SPLIT_CHARACTERS else [text]


def hash_words(text: str) -> NDArray[np.uint32]:
    words = chain.from_iterable(map(normal_words, _stretches(text)))
    return np.fromiter(map(crc32, words), np.uint32)


def digest(text: str) -> bytes:
    """Return a 16-byte hash of the ``normal_words`` of a text, or b"" if it has no words."""
    stretches = (b" ".join(normal_words(stretch)) for stretch in _stretches(text))
    words = b" ".join(filter(None, stretches))
    return blake2b(words, digest_size=16).digest() if words else b""


class Shingles(NamedTuple):
    """The shingles of several texts.

    Attributes:
        counts: number of unique shingles of each text, int64 [texts]. It is 0 for a text with fewer than 5 words.
        hashes: hashes of the shingles of all texts, concatenated and sorted within each text, uint32 [shingles].
        minhashes: MinHash signature of each text, uint32 [texts, 128].
    """

    counts: NDArray[np.int64]
    hashes: NDArray[np.uint32]
    minhashes: NDArray[np.uint32]


NONE = Shingles(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty((0, PERMUTATIONS), np.uint32))


def shingle(words: NDArray[np.uint32]) -> Shingles:
    # `words` has the hash of each word of one text.
    starts = range(0, max(1, len(words)), BATCH_WORDS)
    # A batch extends to the end of the shingle that begins at its last word.
    size = BATCH_WORDS + SHINGLE_WORDS - 1
    batches = [_mix(words[start : start + size]) for start in starts]
    hashes = np.concatenate(batches)
    hashes.sort()
    # np.unique would take a hundred times as long for millions of hashes.
    is_new = hashes[1:] != hashes[:-1]
    hashes = np.concatenate([hashes[:1], hashes[1:][is_new]])
    factors, offsets = _permutations()
    minhash = ~np.zeros(PERMUTATIONS, np.uint32)
    for start in range(0, len(hashes), BATCH_WORDS):
        batch = hashes[start : start + BATCH_WORDS]
        permuted = np.multiply.outer(batch, factors)
        permuted += offsets
        minhash = np.minimum(minhash, permuted.min(axis=0))
    counts = np.asarray([len(hashes)])
    return Shingles(counts, hashes, minhash[np.newaxis])


def _mix(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    count = max(len(words) - SHINGLE_WORDS + 1, 0)
    mixed = np.zeros(count, np.uint64)
    for offset in range(SHINGLE_WORDS):
        mixed = mixed * _MULTIPLIER + words[offset : offset + count]
    mixed ^= mixed >> np.uint64(29)
    return (mixed * _MULTIPLIER >> np.uint64(32)).astype(np.uint32)


def shingle_slice(part: ShardSlice) -> Shingles:
    texts = [shingle(hash_words(document.text)) for document in read_slice(part)]
    return Shingles(*map(np.concatenate, zip(NONE, *texts, strict=True)))


@cache
def _permutations() -> NDArray[np.uint32]:
    return MinHash(PERMUTATIONS, seed=SEED, scheme="affine32").permutations


def find_copies(batches: Iterable[Shingles], threshold: float, folder: Path) -> NDArray[np.int64]:
    """Find, for each text, the earlier text that it copies.

    Memory: about 50 bytes per text, and 20 bytes per bucket that has several texts. Temporary files in ``folder``:
    about 800 bytes per text (512, and 8 per band), and 4 bytes per word.

    Args:
        threshold: minimum Jaccard similarity of a copy, 0 to 1.

    Returns:
        For each text, the index of the most similar earlier text that is not itself a copy, or -1 if no such text
        reaches the threshold, int64 [texts].
    """
    num_bands, num_rows = bands(threshold)
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile(dir=folder)) for _ in range(2 + num_bands)]
        minhash_file = files[0]
        hash_file = files[1]
        band_files = files[2:]
        counts = array("q")
        for batch in batches:
            counts.frombytes(batch.counts.tobytes())
            minhash_file.write(batch.minhashes.tobytes())
            hash_file.write(batch.hashes.tobytes())
            keys = _band_keys(batch.minhashes, num_bands, num_rows)
            for file, band in zip(band_files, keys.T, strict=True):
                file.write(band.tobytes())
        for file in files:
            file.flush()
        index = _CopyIndex(threshold, minhash_file, hash_file, np.frombuffer(counts, np.int64))
        starts = _number_buckets(band_files, index.counts == 0)
        return index.find(band_files, starts)


# Return the hash key of each text in each band, uint64 [texts, bands].
def _band_keys(minhashes: NDArray[np.uint32], num_bands: int, num_rows: int) -> NDArray[np.uint64]:
    used = minhashes[:, : num_bands * num_rows].astype(np.uint64)
    rows = used.reshape(-1, num_bands, num_rows)
    keys = np.zeros(rows.shape[:2], np.uint64)
    for row in range(num_rows):
        keys = (keys ^ (keys >> np.uint64(29))) * _MULTIPLIER + rows[:, :, row]
    return keys


def _number_buckets(band_files: Sequence[IO[bytes]], empty: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Replace the keys in each band's file by bucket numbers, int32 [texts].

    A text that is alone in its bucket gets the number -1.

    Returns:
        Offset of each bucket in an array that has room for the texts of all buckets, int64 [buckets + 1]. The last
        entry is the length of this array.
    """
    capacities = [np.zeros(1, np.uint8)]
    num_buckets = 0
    for file in band_files:
        file.seek(0)
        keys = np.fromfile(file, np.uint64)
        order = np.argsort(keys)
        keys = keys[order]
        equals_previous = np.zeros(len(keys), np.bool_)
        np.equal(keys[1:], keys[:-1], out=equals_previous[1:])
        shared = equals_previous.copy()
        shared[:-1] |= equals_previous[1:]
        numbers = np.cumsum(~equals_previous[shared]) - 1
        buckets = np.full(len(keys), -1, np.int32)
        buckets[order[shared]] = numbers + num_buckets
        buckets[empty] = -1
        file.seek(0)
        file.write(buckets.tobytes())
        file.flush()
        # No text is compared with the last text of a bucket, so the bucket needs no room for it.
        capacity = np.minimum(np.bincount(numbers) - 1, MAX_BUCKET_TEXTS)
        capacities.append(capacity.astype(np.uint8))
        num_buckets += len(capacity)
    return np.cumsum(np.concatenate(capacities), dtype=np.int64)


class _CopyIndex:
    def __init__(
        self, threshold: float, minhash_file: IO[bytes], hash_file: IO[bytes], counts: NDArray[np.int64]
    ) -> None:
        self.counts = counts
        self._threshold = threshold
        self._minhash_file, self._hash_file = minhash_file, hash_file
        self._starts = np.cumsum(counts) - counts

    def find(self, band_files: Sequence[IO[bytes]], starts: NDArray[np.int64]) -> NDArray[np.int64]:
        copy_of = np.full(len(self.counts), -1, np.int64)
        # For each bucket, its texts so far that are not copies.
        texts = np.empty(starts[-1], np.int32)
        sizes = np.zeros(len(starts) - 1, np.uint8)
        for block in range(0, len(copy_of), BLOCK_TEXTS):
            stop = min(block + BLOCK_TEXTS, len(copy_of))
            # The bucket of each text in each band, int32 [bands, texts].
            numbers = np.stack([_read(file, np.int32, block, stop - block) for file in band_files])
            has_bucket = (numbers >= 0).any(axis=0)
            for position in np.flatnonzero(has_bucket).tolist():
                text = block + position
                buckets = numbers[:, position]
                # Skip bands in which the text is alone (-1).
                buckets = buckets[buckets >= 0]
                ends = starts[buckets] + sizes[buckets]
                spans = [texts[start:end] for start, end in zip(starts[buckets], ends, strict=True)]
                candidates = np.unique(np.concatenate(spans))
                if len(candidates):
                    copy_of[text] = self._nearest(text, candidates)
                if copy_of[text] >= 0:
                    continue
                is_free = ends < starts[buckets + 1]
                texts[ends[is_free]] = text
                sizes[buckets[is_free]] += 1
        return copy_of

    def _nearest(self, text: int, candidates: NDArray[np.int32]) -> int:
        minhash = self._minhash(text)
        hashes = self._hashes(text)
        best = 0.0
        nearest = -1
        # Skip texts whose length differs too much to reach the threshold.
        counts = self.counts[candidates]
        shorter = np.minimum(counts, len(hashes))
        longer = np.maximum(counts, len(hashes))
        candidates = candidates[shorter >= self._threshold * longer]
        for candidate in candidates.tolist():
            estimate = (minhash == self._minhash(candidate)).mean()
            if estimate < self._threshold - ESTIMATE_MARGIN:
                continue
            others = self._hashes(candidate)
            num_shared = len(np.intersect1d(hashes, others, assume_unique=True))
            similarity = num_shared / (len(hashes) + len(others) - num_shared)
            if similarity >= self._threshold and similarity > best:
                best = similarity
                nearest = candidate
        return nearest

    def _minhash(self, text: int) -> NDArray[np.uint32]:
        return _read(self._minhash_file, np.uint32, PERMUTATIONS * text, PERMUTATIONS)

    def _hashes(self, text: int) -> NDArray[np.uint32]:
        return _read(self._hash_file, np.uint32, int(self._starts[text]), int(self.counts[text]))


def _read(file: IO[bytes], dtype: type[np.int32 | np.uint32], start: int, count: int) -> NDArray:
    return np.frombuffer(os.pread(file.fileno(), 4 * count, 4 * start), dtype)


def bands(threshold: float) -> tuple[int, int]:
    # Return the numbers of bands and of rows per band. They are the fewest bands that find a pair with threshold
    # similarity with at least the probability RECALL.
    for num_rows in range(PERMUTATIONS // 2, 0, -1):
        num_bands = PERMUTATIONS // num_rows
        if 1 - (1 - threshold**num_rows) ** num_bands >= RECALL:
            return num_bands, num_rows
    return PERMUTATIONS, 1
