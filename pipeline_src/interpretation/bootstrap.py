"""Means over words with bootstrap intervals over documents (Efron 1979)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from pipeline_src.common.counter_rng import derive_seed, integers

NUM_RESAMPLES = 1000


def intervals(values: np.ndarray, documents: Sequence[str], seed: int) -> list[list[float]]:
    """Return the 95 % interval of the mean of each row of ``values`` [N, W]; ``documents`` of words are resampled."""
    names, of_word = np.unique(np.asarray(documents), return_inverse=True)
    words = np.bincount(of_word, minlength=len(names))
    sums = np.stack([np.bincount(of_word, weights=row.astype(float), minlength=len(names)) for row in values])
    counts = _resampled_counts(seed, len(names))
    # The mean of a resample is over words, since documents differ in length.
    ends = np.quantile(sums @ counts.T / (counts @ words), [0.025, 0.975], axis=1)
    return [rounded_list(interval) for interval in ends.T]


@lru_cache(maxsize=2)  # for training documents and test documents
def _resampled_counts(seed: int, documents: int) -> np.ndarray:
    """Return how often each resample contains each document, float64 [NUM_RESAMPLES, documents]."""
    columns, resamples = np.arange(documents), np.arange(NUM_RESAMPLES)[:, None]
    sampled = integers(derive_seed(seed, "documents drawn"), resamples, columns, documents)
    return np.stack([np.bincount(row, minlength=documents) for row in sampled]).astype(float)


def interval(first: np.ndarray, second: np.ndarray, documents: Sequence[str], seed: int) -> list[float]:
    """Return the 95 % interval of the mean of ``first`` minus that of ``second`` (paired bootstrap)."""
    return intervals((first.astype(float) - second.astype(float))[None], documents, seed)[0]


def balancing(correct: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return ``correct`` with weights that make its mean the balanced accuracy: every label counts the same."""
    counts = np.bincount(labels)
    return correct * len(labels) / ((counts > 0).sum() * counts[labels])


def mean(values: np.ndarray) -> float | None:
    """Return the rounded mean; None if there are no values."""
    return rounded(values.mean()) if len(values) else None


def balanced(correct: np.ndarray, labels: np.ndarray) -> float | None:
    """Return the balanced accuracy: the accuracy of each label, averaged over labels."""
    return mean(balancing(correct, labels)) if len(correct) else None


def rounded(value: float) -> float:
    """Round to four digits, as results are written."""
    return round(float(value), 4)


def rounded_list(values: Iterable[float]) -> list[float]:
    """Round every value to four digits."""
    return [rounded(value) for value in values]
