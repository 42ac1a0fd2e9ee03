"""What a model made of one example, in words that a person reads; the same form for every kind of task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExampleResult:
    """One example, what was asked and what was answered.

    Attributes:
        id: the example's id.
        text: what the model read.
        words: of that text, split at white space.
        gold: the right answer, as people spell it.
        predicted: the model's answer.
        right: 0 to 1: 1 or 0 for classes, word F1 for spans, share of right tags for tagging, 1 - |difference| / range
            for regressions.
        confidence: the model's probability of its answer, 0 to 1; None where it gives none.
    """

    id: str
    text: str
    words: int
    gold: str
    predicted: str
    right: float
    confidence: float | None
