"""Means over words, with bootstrap intervals that resample documents (Efron 1979)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from pipeline_src.base.counter_rng import derive_seed, integers

NUM_RESAMPLES = 1000


def intervals(values: np.ndarray, documents: Sequence[str], seed: int) -> list[list[float]]:
    """Return the 95 % interval of the mean of each row of ``values``, [N, W].

    ``documents`` has the document of each word. The bootstrap resamples whole documents, or words if all are in the
    same document.
    """
    names, document_of_word = np.unique(np.asarray(documents), return_inverse=True)
    if len(names) == 1:
        # Every resample of one document is that document, so the interval would have no width.
        names = document_of_word = np.arange(len(documents))
    # Number of words, and the sum of each row's values, by document.
    words = np.bincount(document_of_word)
    by_row = [np.bincount(document_of_word, row.astype(float)) for row in values]
    sums = np.stack(by_row)
    # Divide by the number of words in a resample, since documents differ in length.
    counts = _resampled_counts(seed, len(names))
    means = sums @ counts.T / (counts @ words)
    ends = np.quantile(means, [0.025, 0.975], axis=1)
    return [rounded_list(interval) for interval in ends.T]


# The cache has two entries: for training documents and test documents.
@lru_cache(maxsize=2)
def _resampled_counts(seed: int, documents: int) -> np.ndarray:
    # Returns how often each resample contains each document, float64 [NUM_RESAMPLES, documents].
    columns = np.arange(documents)
    resamples = np.arange(NUM_RESAMPLES)[:, None]
    sampled = integers(derive_seed(seed, "documents drawn"), resamples, columns, documents)
    return np.stack([np.bincount(row, minlength=documents) for row in sampled]).astype(float)


def interval(first: np.ndarray, second: np.ndarray, documents: Sequence[str], seed: int) -> list[float]:
    # Returns the interval of the mean of `first - second`, by a paired bootstrap.
    difference = first.astype(float) - second.astype(float)
    return intervals(difference[None], documents, seed)[0]


def balancing(correct: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Weight ``correct`` so that its mean is the balanced accuracy, in which every label has equal weight."""
    counts = np.bincount(labels)
    num_labels = (counts > 0).sum()
    return correct * len(labels) / (num_labels * counts[labels])


def mean(values: np.ndarray) -> float | None:
    return rounded(values.mean()) if len(values) else None


def balanced(correct: np.ndarray, labels: np.ndarray) -> float | None:
    return mean(balancing(correct, labels)) if len(correct) else None


def rounded(value: float) -> float:
    return round(float(value), 4)


def rounded_list(values: Iterable[float]) -> list[float]:
    return [rounded(value) for value in values]
