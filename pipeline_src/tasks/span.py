"""Handler of extractive question answering: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks.features import Features
from pipeline_src.tasks.metrics import exact_match, normalise_answer, overlap_f1
from pipeline_src.tasks.predictions import align, check_outputs, not_a_prediction
from pipeline_src.tasks.spec import TaskSpec
from pipeline_src.tasks.squad import Example, read_questions
from pipeline_src.tasks.windows import SpanFeatures, window_features

ANSWER_TOKENS = 30  # in an answer at most, as in google-research/bert, run_squad.py
NULL_THRESHOLD = 0.0  # no answer is given if its score exceeds the best span's by more than this

head = "span"


def outputs(spec: TaskSpec) -> int:
    """Width of the head: a start score and an end score per token."""
    return 2


def read(spec: TaskSpec, path: str | Path, row: str | None = None) -> list[Example]:
    """Read the questions of a file; errors as in :func:`squad.read_questions`. All score rows have one layout."""
    return read_questions(spec, path)


def features(spec: TaskSpec, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> Features:
    """One item per window of a question's context; see :func:`windows.window_features`."""
    return window_features(spec.name, examples, tokenizer, max_length)


def predict(
    spec: TaskSpec, examples: Sequence[Example], features: Features, outputs: np.ndarray
) -> list[dict[str, Any]]:
    """Prediction rows from outputs, float [tokens, 2]: start and end score of every token.

    A row holds ``id``, ``prediction`` (a piece of the context, or "" for no answer) and, where questions may have no
    answer, ``null_score_difference`` (the score of no answer, least over windows, minus the best span's).

    Raises:
        PipelineError: an output is NaN or infinite.
    """
    assert isinstance(features, SpanFeatures)  # what features() above returns
    check_outputs(spec.name, outputs, (len(features.ids), 2))
    best: dict[int, tuple[float, int, int]] = {}
    null: dict[int, float] = {}
    for item, owner in enumerate(features.example.tolist()):
        begin, end = int(features.starts[item]), int(features.starts[item + 1])
        starts, ends = outputs[begin:end].astype(float).T
        null[owner] = min(null.get(owner, np.inf), float(starts[0] + ends[0]))
        found = _best_span(
            np.where(features.may_start[begin:end], starts, -np.inf),
            np.where(features.offsets[begin:end, 1] > 0, ends, -np.inf),
        )
        if found[0] > best.get(owner, (-np.inf, 0, 0))[0]:
            best[owner] = (found[0], begin + found[1], begin + found[2])
    rows = []
    for number, example in enumerate(examples):
        row: dict[str, Any] = {"id": example.id, "prediction": ""}
        if number in best:  # a context without tokens has no span
            value, first, last = best[number]
            row["prediction"] = example.context[features.offsets[first, 0] : features.offsets[last, 1]]
            if spec.unanswerable:
                row["null_score_difference"] = null[number] - value
                if row["null_score_difference"] > NULL_THRESHOLD:
                    row["prediction"] = ""
        rows.append(row)
    return rows


def _best_span(starts: np.ndarray, ends: np.ndarray) -> tuple[float, int, int]:
    """Highest start + end score of a span of at most ANSWER_TOKENS tokens, with its first and last token."""
    best = (-np.inf, 0, 0)
    for longer in range(min(ANSWER_TOKENS, len(starts))):
        sums = starts[: len(starts) - longer] + ends[longer:]
        first = int(np.argmax(sums))
        if sums[first] > best[0]:
            best = (float(sums[first]), first, first + longer)
    return best


def score(
    spec: TaskSpec, row: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Exact match and F1 over all questions, in percent, each against the answer that fits best.

    Raises:
        PipelineError: predictions and examples do not belong together, or a prediction is not a text.
    """
    values = align(spec.name, examples, predictions)
    for value in values:
        if not isinstance(value, str):
            raise not_a_prediction(spec.name, value, 'an answer is a text, or "" for none')
    return _judge(spec, row, examples, values)


def _judge(spec: TaskSpec, row: str, examples: Sequence[Example], values: Sequence[str]) -> dict[str, float]:
    golds = [[answer.text for answer in example.answers] for example in examples]
    both = list(zip(values, golds, strict=True))
    results = {
        "em": [exact_match(value, gold) for value, gold in both],
        "f1": [overlap_f1(value, gold, spec.unanswerable) for value, gold in both],
    }
    return {metric: 100.0 * float(np.mean(results[metric])) for metric in spec.row(row).metrics}


def chance(spec: TaskSpec, row: str, examples: Sequence[Example]) -> dict[str, float]:
    """The best that one answer to every question gets, per metric, among "" and the most frequent gold answers."""
    frequent = Counter(
        answer for example in examples for answer in {normalise_answer(answer.text) for answer in example.answers}
    )
    judged = [_judge(spec, row, examples, [answer] * len(examples)) for answer in ["", *_first(frequent)]]
    return {metric: max(result[metric] for result in judged) for metric in spec.row(row).metrics}


def _first(frequent: Counter[str]) -> list[str]:
    """The ten most frequent answers; ties by spelling, since a set's order is not the same in every run."""
    return [answer for answer, _ in sorted(frequent.items(), key=lambda item: (-item[1], item[0]))[:10]]
