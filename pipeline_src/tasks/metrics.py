"""Metrics in percent (0 to 100) and what a model that learnt nothing would get, metric by metric."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats
from seqeval.metrics import f1_score as seqeval_f1
from sklearn import metrics as sklearn_metrics


def accuracy(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Share of equal labels."""
    return 100.0 * float(np.mean(np.asarray(gold) == np.asarray(predicted)))


def f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """F1 of class 1 against class 0; 0 where neither holds a 1."""
    return 100.0 * float(sklearn_metrics.f1_score(gold, predicted, zero_division=0.0))


def matthews(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Matthews correlation, in Gorodkin's form for more than two classes; 0 for a constant prediction."""
    if len(set(predicted)) == 1:
        return 0.0
    return 100.0 * float(sklearn_metrics.matthews_corrcoef(gold, predicted))


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson correlation; 0 for a constant side, where it is not defined."""
    return _correlation(stats.pearsonr, gold, predicted)


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman rank correlation; 0 for a constant side, where it is not defined."""
    return _correlation(stats.spearmanr, gold, predicted)


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
    return 100.0 * float(seqeval_f1(list(map(list, gold)), list(map(list, predicted)), zero_division=0))


METRICS: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "accuracy": accuracy,  # type: ignore[dict-item]
    "f1": f1,  # type: ignore[dict-item]
    "matthews": matthews,  # type: ignore[dict-item]
    "pearson": pearson,
    "spearman": spearman,
}


def judge(names: Sequence[str], gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Each named metric, in percent."""
    return {name: METRICS[name](gold, predicted) for name in names}


def chance_level(metric: str, gold: Sequence[float]) -> float:
    """The best that one constant prediction gets: majority class, the better constant's F1, 0 for correlations."""
    if metric == "accuracy":
        return 100.0 * max(Counter(gold).values()) / len(gold)
    if metric == "f1":
        return f1([int(label) for label in gold], [1] * len(gold))  # always 0 gets 0
    return 0.0


# Answers in words: Rajpurkar et al. 2016, section 6, and the evaluation scripts published with SQuAD 1.1 and 2.0.

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower case, then without ASCII punctuation, without articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(predicted: str, gold: Sequence[str]) -> float:
    """1 if the normalised prediction equals a gold answer, else 0. No gold answer means that "" is right."""
    return float(normalise_answer(predicted) in {normalise_answer(answer) for answer in gold or [""]})


def overlap_f1(predicted: str, gold: Sequence[str], unanswerable: bool) -> float:
    """F1 over the words in common (with repetitions) with the gold answer that fits best, 0 to 1.

    Args:
        predicted: the answer given.
        gold: accepted answers; none means that the question has no answer.
        unanswerable: judge as SQuAD 2.0 does, where an answer without words is right exactly if the other is too;
            SQuAD 1.1 gives 0 there.
    """
    words = normalise_answer(predicted).split()
    return max(_one_f1(words, normalise_answer(answer).split(), unanswerable) for answer in gold or [""])


def _one_f1(words: list[str], gold: list[str], unanswerable: bool) -> float:
    if unanswerable and not (words and gold):
        return float(words == gold)
    common = sum((Counter(words) & Counter(gold)).values())
    return 2.0 * common / (len(words) + len(gold)) if common else 0.0
