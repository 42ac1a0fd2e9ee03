"""Exact match, F1 and the null threshold as in SQuAD's evaluation scripts (Rajpurkar et al. 2016, section 6; 2018).

Every value equals that of SQuAD's evaluators for 1.1 and 2.0, peculiarities included.
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


# The same gold answers are normalised many times.
@lru_cache(maxsize=1 << 16)
def normalise_answer(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def accepted(gold: Sequence[str], unanswerable: bool) -> Sequence[str]:
    # SQuAD 2.0 drops gold answers without words, and accepts "" if none is left.
    return [answer for answer in gold if not unanswerable or normalise_answer(answer)] or [""]


def exact_match(predicted: str, gold: Sequence[str], unanswerable: bool) -> float:
    return float(normalise_answer(predicted) in map(normalise_answer, accepted(gold, unanswerable)))


def overlap_f1(predicted: str, gold: Sequence[str], unanswerable: bool) -> float:
    """Return the word F1 (with repetitions) against the gold answer that fits best, 0 to 1.

    With ``unanswerable``, as in SQuAD 2.0, a prediction without words is correct if the gold answer has no words
    either; SQuAD 1.1 gives 0. An unanswerable question has no gold answers.
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
    """The threshold on null score differences with the highest score.

    Attributes:
        total: sum of the scores; the evaluator reports ``100 * total / questions``.
        threshold: greatest null score difference of a question that is answered; 0 if it is best to answer no question.
        answered: which questions are answered, bool [questions].
    """

    total: float
    threshold: float
    answered: np.ndarray


def find_null_threshold(
    values: np.ndarray, is_text: np.ndarray, has_answer: np.ndarray, differences: np.ndarray
) -> NullThreshold:
    """Answer questions in order of increasing null score difference, and stop where the score is highest.

    This is ``find_best_thresh`` of the evaluator for 2.0, with its peculiarities. A predicted text without words scores
    0 for an unanswerable question. The search may stop between questions with equal differences, which keep the file's
    order. The threshold is 0 if it is best to answer no question, though differences may be lower. So ``answered``, not
    the threshold, tells which questions are answered. Of equally good thresholds, the one with fewer answers wins.

    Args:
        values: score of the prediction for each question, 0 to 1, [questions].
        is_text: whether the prediction is a non-empty text, bool [questions].
        has_answer: whether the question has a gold answer, bool [questions].
        differences: null score minus the score of the prediction, [questions].
    """
    order = np.argsort(differences, kind="stable")
    # An answered question adds its score, or takes away the point of a question that is rightly left unanswered.
    gains = np.where(has_answer, values, -is_text.astype(float))[order]
    none_answered = float(np.sum(~has_answer))
    # totals[n] is the score if the first n questions are answered.
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
    # The score of each question if only those in `answered` (bool) are answered.
    return np.where(has_answer, values * answered, 1.0 - (is_text & answered))


@dataclass(frozen=True)
class AnswerScores:
    """Scores of one answer to each question.

    Attributes:
        texts: the predicted answers before any threshold.
        raw: ``f1`` and ``em`` of these texts, 0 to 1, [questions] each.
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
        # By default, those questions are answered that `threshold` answers.
        if answered is None:
            answered = np.full(len(self.texts), True) if self.threshold is None else self.threshold.answered
        return [text if yes else "" for text, yes in zip(self.texts, answered, strict=True)]

    def values(self) -> dict[str, np.ndarray]:
        # `f1` and `em` at the threshold, 0 to 1, [questions] each.
        if self.threshold is None:
            return self.raw
        return {
            metric: thresholded_values(raw, self.is_text, self.has_answer, self.threshold.answered)
            for metric, raw in self.raw.items()
        }


def percent(values: np.ndarray) -> float:
    # Values are added one after another, as the published scripts do.
    return 100.0 * float(sum(values.tolist())) / len(values)
