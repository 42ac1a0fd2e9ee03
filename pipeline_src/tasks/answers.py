"""The answers given to a file of questions beside the gold ones, with the null threshold applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.files.squad import Example
from pipeline_src.tasks.predictions import align, not_a_prediction
from pipeline_src.tasks.squad_scores import NullCut, answered_values, best_cut, exact_match, overlap_f1


@dataclass(frozen=True)
class AnswerScores:
    """The answers given, beside the gold ones.

    Attributes:
        texts: the answers before any threshold.
        raw: their ``f1`` and ``em``, 0 to 1, [questions] each.
        says: whether an answer is a non-empty text, bool [questions].
        has_answer: whether a question has one, bool [questions].
        differences: null score differences, [questions]; zeros where every question has an answer.
        cut: the threshold's, best for F1; None where every question has an answer.
    """

    texts: Sequence[str]
    raw: dict[str, np.ndarray]
    says: np.ndarray
    has_answer: np.ndarray
    differences: np.ndarray
    cut: NullCut | None

    def given(self, answered: np.ndarray | None = None) -> list[str]:
        """The answers with "" for those not ``answered``, bool [questions]; None takes the cut."""
        if answered is None:
            answered = np.full(len(self.texts), True) if self.cut is None else self.cut.answered
        return [text if yes else "" for text, yes in zip(self.texts, answered, strict=True)]

    def values(self) -> dict[str, np.ndarray]:
        """``f1`` and ``em`` of what is given at the cut, 0 to 1, [questions] each."""
        if self.cut is None:
            return self.raw
        return {
            metric: answered_values(raw, self.says, self.has_answer, self.cut.answered)
            for metric, raw in self.raw.items()
        }


def score_answers(spec: TaskSpec, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> AnswerScores:
    """Score prediction rows against the gold answers; the null threshold is searched among them.

    Raises:
        PipelineError: predictions and examples do not belong together, or a prediction is not a text, or has no
            null score difference where it needs one.
    """
    texts = align(spec.name, examples, predictions)
    for value in texts:
        if not isinstance(value, str):
            raise not_a_prediction(spec.name, value, 'an answer is a text, or "" for none')
    raw = values_of(spec, examples, texts)
    says = np.array([bool(text) for text in texts])
    has_answer = np.array([bool(example.answers) for example in examples])
    if not spec.unanswerable:
        return AnswerScores(texts, raw, says, has_answer, np.zeros(len(texts)), None)
    differences = _differences(spec, examples, predictions)
    return AnswerScores(texts, raw, says, has_answer, differences, best_cut(raw["f1"], says, has_answer, differences))


def values_of(spec: TaskSpec, examples: Sequence[Example], texts: Sequence[str]) -> dict[str, np.ndarray]:
    """``f1`` and ``em`` of one text per question, 0 to 1, [questions] each."""
    golds = [[answer.text for answer in example.answers] for example in examples]
    return {
        name: np.array([score(text, gold, spec.unanswerable) for text, gold in zip(texts, golds, strict=True)])
        for name, score in (("f1", overlap_f1), ("em", exact_match))
    }


def _differences(spec: TaskSpec, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> np.ndarray:
    by_id = {prediction["id"]: prediction.get("null_score_difference") for prediction in predictions}
    for name, value in by_id.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            remedy = "make the predictions again; without it no threshold can be applied"
            raise PipelineError(
                "no null score difference", repr(value), where=f"task {spec.name}, question {name}", remedy=remedy
            )
    return np.array([by_id[example.id] for example in examples], float)


def percent(values: np.ndarray) -> float:
    """Their mean in percent, summed one by one as the published scripts do."""
    return 100.0 * float(sum(values.tolist())) / len(values)
