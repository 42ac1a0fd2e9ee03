"""Counter-based random numbers, computed from keys such as (seed, example, position).

They do not depend on the batch, the worker or the order of calls. The design follows Salmon et al. 2011 ("Parallel
random numbers: as easy as 1, 2, 3"): a hash of the key, here the finaliser of SplitMix64 (Steele et al. 2014), computed
for whole arrays at once. For each (row, column), ``bits`` returns a uint64, ``uniform`` a float64 in [0, 1), and
``integers`` an int64 in [0, high).
"""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
# Rounds of the Feistel network; four already pass for random (Luby and Rackoff 1988).
_ROUNDS = 6
# Phases 1 and 2 were once called "short" and "long". Seeds still use the old names, so that the random numbers of
# earlier studies stay the same.
PHASE_KEYS = {"phase1": "short", "phase2": "long"}


def phase_key(phase: str) -> str:
    return PHASE_KEYS.get(phase, phase)


def derive_seed(*parts: object) -> int:
    """Hash ``parts`` to a 64-bit key of a random stream, as in ``derive_seed(seed, "masks", duplicate)``."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def bits(stream: int | np.ndarray, rows: np.ndarray, columns: np.ndarray | int) -> np.ndarray:
    """Draw 64 random bits for each (row, column), such as (example, position).

    The three arguments are broadcast against each other.

    Args:
        stream: a key from ``derive_seed``, or an array of such keys.
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
    """Map ``positions`` through a random permutation of [0, size).

    The permutation is computed for the given positions only and never stored. It is a Feistel network with the key
    ``stream``. The network permutes the cells (row, column) of a nearly square table with at least ``size`` cells.
    It is applied again to each result that is not below ``size`` (Black and Rogaway 2002).

    Returns:
        int64 array with the shape of ``positions``.
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
            # The two halves take turns: a hash of one half is added to the other.
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
