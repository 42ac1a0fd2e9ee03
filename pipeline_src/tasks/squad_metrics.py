"""Exact match, F1 and the null threshold of SQuAD's evaluation scripts (Rajpurkar et al. 2016, section 6; 2018).

Every value equals the value that the scripts for SQuAD 1.1 and 2.0 compute, including their quirks.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


# Cached because the same gold answers are normalised many times.
@lru_cache(maxsize=1 << 16)
def normalise_answer(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def accepted(gold: Sequence[str], unanswerable: bool) -> Sequence[str]:
    # SQuAD 2.0 drops gold answers without words. If no gold answer is left, it accepts "".
    return [answer for answer in gold if not unanswerable or normalise_answer(answer)] or [""]


def exact_match(predicted: str, gold: Sequence[str], unanswerable: bool) -> float:
    return float(normalise_answer(predicted) in map(normalise_answer, accepted(gold, unanswerable)))


def overlap_f1(predicted: str, gold: Sequence[str], unanswerable: bool) -> float:
    """Compute the word F1 (repeated words count) against the best-matching gold answer, from 0 to 1.

    Args:
        gold: the gold answers; empty for an unanswerable question.
        unanswerable: whether to score as in SQuAD 2.0: if the prediction and the gold answer both have no words, F1
            is 1. In SQuAD 1.1, it is 0.
    """
    words = normalise_answer(predicted).split()
    return max(
        _one_f1(words, normalise_answer(answer).split(), unanswerable) for answer in accepted(gold, unanswerable)
    )


def _one_f1(words: list[str], gold: list[str], unanswerable: bool) -> float:
    if unanswerable and not (words and gold):
        return float(words == gold)
    common = sum((Counter(words) & Counter(gold)).values())
    if not common:
        return 0.0
    precision = common / len(words)
    recall = common / len(gold)
    return 2 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class NullThreshold:
    """The threshold on the null score difference that gives the highest total score.

    Attributes:
        total: sum of the scores of all questions. SQuAD's script reports ``100 * total / questions``.
        threshold: greatest null score difference among answered questions; 0 if no question is answered.
        answered: which questions are answered, bool [questions].
    """

    total: float
    threshold: float
    answered: np.ndarray


def find_null_threshold(
    values: np.ndarray, is_text: np.ndarray, has_answer: np.ndarray, differences: np.ndarray
) -> NullThreshold:
    """Find the threshold on the null score difference with the highest total score.

    This is ``find_best_thresh`` of the SQuAD 2.0 script. It answers questions in order of increasing null score
    difference, and stops where the total score is highest. It has these quirks:

    - For an unanswerable question, a predicted text scores 0 even if it has no words.
    - Questions with equal differences keep the file's order, and the search may stop between them.
    - If it is best to answer no question, the threshold is 0, although some differences may be lower.
    - If several stops are equally good, the one with the fewest answers wins.

    Because of the second and third quirk, use ``answered`` and not ``threshold`` to tell which questions are answered.

    Args:
        values: score of the prediction for each question, 0 to 1, [questions].
        is_text: whether the prediction is a non-empty text, bool [questions].
        has_answer: whether the question has a gold answer, bool [questions].
        differences: null score minus the score of the prediction, [questions].
    """
    order = np.argsort(differences, kind="stable")
    # Answering an answerable question gains its score. Answering an unanswerable question loses its point.
    gains = np.where(has_answer, values, -is_text.astype(float))[order]
    none_answered = float(np.sum(~has_answer))
    # totals[n] is the total score if the first n questions in `order` are answered.
    totals = np.cumsum(np.concatenate([[none_answered], gains]))
    count = int(np.argmax(totals))
    answered = np.zeros(len(values), bool)
    answered[order[:count]] = True
    threshold = 0.0
    if count:
        threshold = float(differences[order[count - 1]])
    return NullThreshold(float(totals[count]), threshold, answered)


def thresholded_values(
    values: np.ndarray, is_text: np.ndarray, has_answer: np.ndarray, answered: np.ndarray
) -> np.ndarray:
    # Returns the score of each question, given which questions are answered (bool [questions]).
    return np.where(has_answer, values * answered, 1.0 - (is_text & answered))


@dataclass(frozen=True)
class AnswerScores:
    """Scores of the predicted answers, before and after the null threshold.

    Attributes:
        texts: the predicted answers before any threshold.
        raw: ``f1`` and ``em`` of ``texts``, each an array [questions] of values from 0 to 1.
        is_text: whether a predicted answer is a non-empty text, bool [questions].
        has_answer: whether a question has a gold answer, bool [questions].
        differences: null score differences, [questions]; zeros for SQuAD 1.1.
        threshold: the best threshold for F1; None for SQuAD 1.1.
    """

    texts: Sequence[str]
    raw: dict[str, np.ndarray]
    is_text: np.ndarray
    has_answer: np.ndarray
    differences: np.ndarray
    threshold: NullThreshold | None

    def final_texts(self, answered: np.ndarray | None = None) -> list[str]:
        # Returns the predicted text of answered questions, and "" for unanswered ones. `answered` is bool [questions].
        # By default, the best threshold decides.
        if answered is None:
            answered = np.full(len(self.texts), True) if self.threshold is None else self.threshold.answered
        return [text if yes else "" for text, yes in zip(self.texts, answered, strict=True)]

    def values(self) -> dict[str, np.ndarray]:
        # Returns `f1` and `em` at the best threshold, each an array [questions] of values from 0 to 1.
        if self.threshold is None:
            return self.raw
        return {
            metric: thresholded_values(raw, self.is_text, self.has_answer, self.threshold.answered)
            for metric, raw in self.raw.items()
        }


def percent(values: np.ndarray) -> float:
    # Adds values one by one, like the published scripts, so that rounding errors are equal.
    return 100.0 * float(sum(values.tolist())) / len(values)
