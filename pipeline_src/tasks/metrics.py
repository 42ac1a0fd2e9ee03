"""Metrics in percent (0 to 100) and what a model that learnt nothing would get, metric by metric.

scipy, scikit-learn and seqeval are imported where they count: together they take a second, and few tasks need any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np


def accuracy(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Share of equal labels."""
    return 100.0 * float(np.mean(np.asarray(gold) == np.asarray(predicted)))


def f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """F1 of class 1 against class 0; 0 where neither holds a 1."""
    from sklearn.metrics import f1_score

    return 100.0 * float(f1_score(gold, predicted, zero_division=0.0))


def matthews(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Matthews correlation, in Gorodkin's form for more than two classes; 0 for a constant prediction."""
    if len(set(predicted)) == 1:
        return 0.0
    from sklearn.metrics import matthews_corrcoef

    return 100.0 * float(matthews_corrcoef(gold, predicted))


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson correlation; 0 for a constant side, where it is not defined."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, gold, predicted)


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman rank correlation; 0 for a constant side, where it is not defined."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, gold, predicted)


def _correlation(
    function: Callable[[Sequence[float], Sequence[float]], object], gold: Sequence[float], predicted: Sequence[float]
) -> float:
    if len(gold) < 2 or len(set(gold)) == 1 or len(set(predicted)) == 1:
        return 0.0
    return 100.0 * float(function(gold, predicted).statistic)  # type: ignore[attr-defined]


def entity_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """F1 over entities of all types together, as conlleval counts them: the same words and the same type.

    Args:
        gold: IOB tags of each sentence; an I- that continues nothing begins an entity.
        predicted: as many of each.
    """
    from seqeval.metrics import f1_score

    return 100.0 * float(f1_score(list(map(list, gold)), list(map(list, predicted)), zero_division=0))


METRICS: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "accuracy": accuracy,  # type: ignore[dict-item]
    "f1": f1,  # type: ignore[dict-item]
    "matthews": matthews,  # type: ignore[dict-item]
    "pearson": pearson,
    "spearman": spearman,
}


def compute_metrics(names: Sequence[str], gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Each named metric, in percent."""
    return {name: METRICS[name](gold, predicted) for name in names}


def majority_score(metric: str, gold: Sequence[float]) -> float:
    """The best that one constant prediction gets: majority class, the better constant's F1, 0 for correlations."""
    if metric == "accuracy":
        return 100.0 * max(Counter(gold).values()) / len(gold)
    if metric == "f1":
        return f1([int(label) for label in gold], [1] * len(gold))  # always 0 gets 0
    return 0.0
