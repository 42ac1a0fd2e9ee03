"""Where a batch is cut into micro-batches, so that each fits the memory there is."""

from __future__ import annotations

import numpy as np


def cut_in_order(lengths: np.ndarray, tokens: int) -> list[slice]:
    """Runs of neighbours, each as long as ``tokens`` allow; what is left over is the last one.

    Args:
        lengths: tokens of each sequence, int64 [sequences].
        tokens: most tokens of a run; a longer sequence is a run of its own.
    """
    ends = np.cumsum(lengths)
    runs: list[slice] = []
    first = 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        runs.append(slice(first, last))
        first = last
    return runs


def cut_evenly(lengths: np.ndarray, tokens: int | None) -> list[slice]:
    """No more runs than :func:`cut_in_order` makes, of which the largest is as small as it can be.

    A short run at the end costs a GPU nearly as much time as a full one. None for ``tokens`` never cuts.
    """
    if tokens is None:
        return [slice(0, len(lengths))]
    runs = cut_in_order(lengths, tokens)
    if len(runs) == 1:
        return runs
    low, high = 1, tokens  # the smallest limit that needs no more runs lies in between
    while low < high:
        middle = (low + high) // 2
        if len(cut_in_order(lengths, middle)) <= len(runs):
            high = middle
        else:
            low = middle + 1
    return cut_in_order(lengths, low)
