"""Answers in words, scored as SQuAD's published evaluation scripts do (Rajpurkar et al. 2016, section 6; 2018).

Every value here equals those of the evaluators for 1.1 and 2.0, their peculiarities included.
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


@lru_cache(maxsize=1 << 16)  # gold answers are asked for again and again
def normalise_answer(text: str) -> str:
    """Lower case, then without ASCII punctuation, without articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def accepted(gold: Sequence[str], unanswerable: bool) -> Sequence[str]:
    """The answers to compare with: SQuAD 2.0 leaves out those without words, and "" is right if none remains."""
    return [answer for answer in gold if not unanswerable or normalise_answer(answer)] or [""]


def exact_match(predicted: str, gold: Sequence[str], unanswerable: bool) -> float:
    """1 if the normalised prediction equals a gold answer, else 0; arguments as in :func:`overlap_f1`."""
    return float(normalise_answer(predicted) in map(normalise_answer, accepted(gold, unanswerable)))


def overlap_f1(predicted: str, gold: Sequence[str], unanswerable: bool) -> float:
    """F1 over the words in common (with repetitions) with the gold answer that fits best, 0 to 1.

    Args:
        predicted: the answer given.
        gold: accepted answers; none means that the question has no answer.
        unanswerable: score as SQuAD 2.0 does, where an answer without words is right exactly if the other is too;
            SQuAD 1.1 gives 0 there.
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
    precision, recall = common / len(words), common / len(gold)
    return 2 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class NullCut:
    """Which questions are best answered, the others being left without an answer.

    Attributes:
        total: sum of the scores so reached; ``100 * total / questions`` is what the evaluator reports.
        threshold: greatest null score difference that is still answered; 0 where it is best to answer none.
        answered: bool [questions].
    """

    total: float
    threshold: float
    answered: np.ndarray


def best_cut(values: np.ndarray, says: np.ndarray, has_answer: np.ndarray, differences: np.ndarray) -> NullCut:
    """Answer one question after another, least null score difference first, and stop where the score is highest.

    This is ``find_best_thresh`` of the evaluator for 2.0. Like that, it gives nothing for a text without words where
    there is no answer, may stop between questions of one difference, and calls the threshold 0 where answering none
    is best, though differences may lie below. Equal differences are taken in the order of the file, and of equally
    good cuts the one with fewer answers. ``answered`` says what is answered, whatever the threshold.

    Args:
        values: score of the answer to each question, 0 to 1, [questions].
        says: whether that answer is a non-empty text, bool [questions].
        has_answer: whether the question has one, bool [questions].
        differences: score of no answer minus that of the answer, [questions].
    """
    order = np.argsort(differences, kind="stable")
    gains = np.where(has_answer, values, -says.astype(float))[order]
    totals = np.cumsum(np.concatenate([[float(np.sum(~has_answer))], gains]))
    count = int(np.argmax(totals))
    answered = np.zeros(len(values), bool)
    answered[order[:count]] = True
    return NullCut(float(totals[count]), float(differences[order[count - 1]]) if count else 0.0, answered)


def answered_values(values: np.ndarray, says: np.ndarray, has_answer: np.ndarray, answered: np.ndarray) -> np.ndarray:
    """What each question scores where only some are answered; they add up to :attr:`NullCut.total`.

    Args:
        values: as in :func:`best_cut`, and so the next two.
        says: see there.
        has_answer: see there.
        answered: the questions whose answer is given, bool [questions].
    """
    return np.where(has_answer, values * answered, 1.0 - (says & answered))
