"""Random numbers keyed by what they decide (seed, example, position), never by batch, worker or order of calls.

A counter-based generator in the manner of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2, 3"): a
mixing function of the key, here the finaliser of SplitMix64 (Steele et al. 2014), evaluated for whole arrays at once.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def key(*parts: object) -> int:
    """A 64-bit key of what is decided, such as ``key(seed, "masks", duplicate)``."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def uniform(stream: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Uniform numbers in [0, 1), float64 of the shape that ``rows`` and ``columns`` broadcast to.

    Args:
        stream: as :func:`key` gives it.
        rows: non-negative integers, such as example numbers.
        columns: non-negative integers, such as positions.
    """
    with np.errstate(over="ignore"):
        hashed = _mix(rows.astype(np.uint64) * _GOLDEN + np.uint64(stream))
        hashed = _mix(hashed + (columns.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


class Draws:
    """Scalar draws, one after another, for one decision (one document in one pass); made in blocks for speed."""

    def __init__(self, stream: int, row: int) -> None:
        self._stream, self._row = stream, np.asarray([row])
        self._block: list[float] = []
        self._next = 0

    def random(self) -> float:
        """Uniform in [0, 1)."""
        if self._next % 64 == 0:
            columns = np.arange(self._next, self._next + 64)
            self._block = uniform(self._stream, self._row, columns).tolist()
        value = self._block[self._next % 64]
        self._next += 1
        return value

    def integer(self, low: int, high: int) -> int:
        """Uniform integer with both ends included (as Python's ``random.randint``)."""
        return low + int(self.random() * (high - low + 1))
