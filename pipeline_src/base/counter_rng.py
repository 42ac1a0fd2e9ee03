"""Random numbers keyed by what they decide (seed, example, position), never by batch, worker or order of calls.

A counter-based generator in the manner of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2, 3"): a
mixing function of the key, here the finaliser of SplitMix64 (Steele et al. 2014), evaluated for arrays at once.
``bits`` gives uint64, ``uniform`` float64 in [0, 1), ``integers`` int64 in [0, high), one for each (row, column).
"""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
# Rounds of the Feistel network; four already pass for random (Luby and Rackoff 1988).
_ROUNDS = 6
# The first two phases once had these names, which keep the random numbers of earlier studies.
PHASE_KEYS = {"phase1": "short", "phase2": "long"}


def phase_key(phase: str) -> str:
    return PHASE_KEYS.get(phase, phase)


def derive_seed(*parts: object) -> int:
    """Return the 64-bit key of a stream of random numbers, such as ``derive_seed(seed, "masks", duplicate)``."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def bits(stream: int | np.ndarray, rows: np.ndarray, columns: np.ndarray | int) -> np.ndarray:
    """Draw 64 random bits for each (row, column), such as (example, position). Arguments are broadcast.

    Args:
        stream: a key of ``derive_seed``, or an array of keys.
    """
    columns = np.asarray(columns, np.uint64)
    with np.errstate(over="ignore"):
        hashed = _mix(rows.astype(np.uint64) * _GOLDEN + np.asarray(stream, np.uint64))
        return _mix(hashed + (columns + np.uint64(1)) * _GOLDEN)


def uniform(stream: int | np.ndarray, rows: np.ndarray, columns: np.ndarray | int) -> np.ndarray:
    return (bits(stream, rows, columns) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(
    stream: int | np.ndarray, rows: np.ndarray, columns: np.ndarray | int, high: np.ndarray | int
) -> np.ndarray:
    return (uniform(stream, rows, columns) * high).astype(np.int64)


def permuted(stream: int, positions: np.ndarray, size: int) -> np.ndarray:
    """Return what a random permutation of [0, size) maps ``positions`` to, int64; it is computed, not stored.

    The key ``stream`` selects the permutation: a Feistel network on the (row, column) of a nearly square table of at
    least ``size`` cells, applied again while the result is not below ``size`` (Black and Rogaway 2002).
    """
    columns = math.isqrt(size - 1) + 1
    rows = -(-size // columns)
    sides = np.array([rows, columns], np.uint64)
    one = np.uint64(1)
    result = positions.astype(np.uint64)
    pending = np.arange(len(result))
    while len(pending):
        left, right = np.divmod(result[pending], sides[1])
        for turn in range(_ROUNDS):
            # Each half in turn is moved by a hash of the other.
            drawn = bits(stream, right, turn) >> one
            moved = (left + drawn) % sides[turn % 2]
            left, right = right, moved
        result[pending] = left * sides[1] + right
        pending = pending[result[pending] >= size]
    return result.astype(np.int64)


def _mix(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))
