"""Handler of extractive question answering: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks.answers import percent, score_answers, values_of
from pipeline_src.tasks.example_result import ExampleResult
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.files.squad import Example, read_questions
from pipeline_src.tasks.nbest import find_spans, nbest_list
from pipeline_src.tasks.predictions import check_outputs
from pipeline_src.tasks.squad_scores import best_cut, normalise_answer
from pipeline_src.tasks.sums import Sums, shares
from pipeline_src.tasks.windows import SpanFeatures, window_features

SHOWN = 300  # most characters of a context in an ExampleResult

head = "span"


def outputs(spec: TaskSpec) -> int:
    """Width of the head: a start score and an end score per token."""
    return 2


def read(
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    test: bool = False,
    counts: Counter[str] | None = None,
) -> list[Example]:
    """Read the questions of a file, see :func:`squad.read_questions`; all evaluation sets have one layout."""
    return read_questions(spec, path, test, counts)


def features(spec: TaskSpec, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> Features:
    """One item per window of a question's context; see :func:`windows.window_features`."""
    return window_features(spec.name, examples, tokenizer, max_length)


def predict(
    spec: TaskSpec, examples: Sequence[Example], features: Features, outputs: np.ndarray
) -> list[dict[str, Any]]:
    """Prediction rows from outputs, float [tokens, 2]: start and end score of every token.

    A row holds ``id``, ``prediction`` (the best piece of the context; "" only where the context has no token),
    ``nbest`` (see :func:`nbest.nbest_list`) and, where questions may have no answer, ``null_score_difference`` (the
    score of no answer, least over windows, minus the best span's): which questions are left without an answer is
    decided when all are there, in :func:`score`.

    Raises:
        PipelineError: an output is NaN or infinite.
    """
    assert isinstance(features, SpanFeatures)  # what features() above returns
    check_outputs(spec.name, outputs, (len(features.ids), 2))
    rows = []
    for example, spans in zip(examples, find_spans(features, outputs, len(examples)), strict=True):
        nbest = nbest_list(spans, example.context, features.offsets, spec.unanswerable)
        row: dict[str, Any] = {"id": example.id, "prediction": next((s["text"] for s in nbest if s["text"]), "")}
        if spec.unanswerable:  # 0 where there is no span to compare with: then nothing is said anyway
            row["null_score_difference"] = spans.null - float(spans.score[0]) if len(spans.score) else 0.0
        rows.append(row | {"nbest": nbest})
    return rows


def score(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """F1 and exact match over all questions, in percent, each against the answer that fits best.

    Where questions may have no answer, the threshold is searched on these very predictions, as the evaluator for 2.0
    does: ``f1`` and ``em`` are those of the cut that is best for F1, ``threshold`` its place. Beside them stand the
    two at threshold 0, the two over questions with (``HasAns``) and without an answer (``NoAns``), where there are
    any, and the best exact match with its own threshold.

    Raises:
        PipelineError: predictions and examples do not belong together, or a prediction is not a text, or has no
            null score difference where it needs one.
    """
    answers = score_answers(spec, examples, predictions)
    values = answers.values()
    scores: dict[str, float] = {metric: percent(values[metric]) for metric in spec.eval_set(eval_set).metrics}
    if answers.cut is None:
        return scores
    scores["threshold"] = answers.cut.threshold
    at_zero = answers.differences <= 0.0
    for metric, raw in answers.raw.items():
        scores[f"{metric}_at_zero"] = percent(np.where(at_zero, raw, ~answers.has_answer))
        for part, name in ((answers.has_answer, "HasAns"), (~answers.has_answer, "NoAns")):
            if part.any():
                scores[f"{name}_{metric}"] = percent(values[metric][part])
    exact = best_cut(answers.raw["em"], answers.says, answers.has_answer, answers.differences)
    return scores | {"best_em": 100.0 * exact.total / len(examples), "best_em_threshold": exact.threshold}


def sums(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], systems: Sequence[Sequence[dict[str, Any]]]
) -> dict[str, Sums]:
    """What each question adds to each metric, at the threshold of the whole file; errors as :func:`score`."""
    values = [score_answers(spec, examples, predictions).values() for predictions in systems]
    return {
        metric: shares([of[metric] for of in values], yes_no=metric == "em")
        for metric in spec.eval_set(eval_set).metrics
    }


def group(example: Example) -> str:
    """Its paragraph."""
    return example.context


def example_results(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> list[ExampleResult]:
    """One per question: F1 of the answer given, the threshold applied as in :func:`score`, whose errors it shares.

    The text is the question and what stands around the answer; its words are those of question and context.
    """
    answers = score_answers(spec, examples, predictions)
    by_id = {prediction["id"]: prediction for prediction in predictions}
    return [
        ExampleResult(
            id=example.id,
            text=f"{example.question.strip()} ||| {_around(example)}",
            words=len(example.question.split()) + len(example.context.split()),
            gold=example.answers[0].text if example.answers else "",
            predicted=given,
            right=float(right),
            confidence=_confidence(given, by_id[example.id]),
        )
        for example, given, right in zip(examples, answers.given(), answers.values()["f1"], strict=True)
    ]


def _around(example: Example) -> str:
    """The part of the context that has the first answer in its middle, or its beginning."""
    answer = example.answers[0] if example.answers else None
    middle = answer.start + min(len(answer.text), SHOWN) // 2 if answer else 0
    first = max(0, min(middle - SHOWN // 2, len(example.context) - SHOWN))
    part = " ".join(example.context[first : first + SHOWN].split())
    return f"{'… ' if first else ''}{part}{' …' if first + SHOWN < len(example.context) else ''}"


def _confidence(given: str, prediction: dict[str, Any]) -> float | None:
    """Probability of the answer given among the n best."""
    return next((span["probability"] for span in prediction.get("nbest", ()) if span["text"] == given), None)


def submission(
    spec: TaskSpec,
    eval_set: str,
    examples: Sequence[Example],
    predictions: Sequence[dict[str, Any]],
    threshold: float | None = None,
) -> dict[str, str]:
    """The JSON files that SQuAD's evaluators read, text by name: answers, and null score differences for 2.0.

    Args:
        spec: the task.
        eval_set: names the files, where its test file gives the answers no name of their own.
        examples: of the file.
        predictions: rows for it.
        threshold: greatest null score difference that is answered, found on another file; None searches it on this
            one, which must tell the answers then.

    Raises:
        PipelineError: as :func:`score`.
    """
    answers = score_answers(spec, examples, predictions)
    given = answers.given() if threshold is None else answers.given(answers.differences <= threshold)
    ids = [example.id for example in examples]
    test = spec.scores[eval_set].test
    files: dict[str, list[Any]] = {f"{eval_set}_predictions.json" if test is None else test.submit: given}
    if spec.unanswerable:
        files[f"{eval_set}_null_odds.json"] = answers.differences.tolist()
    return {
        name: json.dumps(dict(zip(ids, values, strict=True)), indent=2, ensure_ascii=False) + "\n"
        for name, values in files.items()
    }


def majority_baseline(spec: TaskSpec, eval_set: str, examples: Sequence[Example]) -> dict[str, float]:
    """The best that one answer to every question gets, per metric, among "" and the most frequent gold answers."""
    frequent = Counter(
        answer for example in examples for answer in {normalise_answer(answer.text) for answer in example.answers}
    )
    constants = [values_of(spec, examples, [answer] * len(examples)) for answer in ["", *_first(frequent)]]
    return {metric: max(percent(values[metric]) for values in constants) for metric in spec.eval_set(eval_set).metrics}


def _first(frequent: Counter[str]) -> list[str]:
    """The ten most frequent answers; ties by spelling, since a set's order is not the same in every run."""
    return [answer for answer, _ in sorted(frequent.items(), key=lambda item: (-item[1], item[0]))[:10]]
