"""Extractive question answering: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3), as in google-research/bert."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks.features import Features, SpanFeatures
from pipeline_src.tasks.metrics import BootstrapStatistics, ratio_statistics
from pipeline_src.tasks.questions import Question
from pipeline_src.tasks.squad_metrics import (
    AnswerScores,
    exact_match,
    find_null_threshold,
    normalise_answer,
    overlap_f1,
    percent,
)
from pipeline_src.tasks.squad_spans import find_spans, nbest_list
from pipeline_src.tasks.squad_windows import window_features
from pipeline_src.tasks.task import ExampleResult, Prediction, Rows, Task

# An ExampleResult shows this much of its context.
MAX_SHOWN_CHARACTERS = 300


class QuestionAnswering(Task):
    head = "span"

    @property
    def num_outputs(self) -> int:
        return 2

    def features(self, examples: Sequence[Question], tokenizer: Tokenizer, max_length: int) -> SpanFeatures:
        return window_features(self.spec.name, examples, tokenizer, max_length)

    def predict(self, examples: Sequence[Question], features: Features, outputs: np.ndarray) -> list[Prediction]:
        """Make predictions from the start and end logits of every token, float [tokens, 2].

        A prediction has ``id``, ``prediction`` (the best span of the context; "" only if the context has no token) and
        ``nbest`` (see ``nbest_list``). If the task has unanswerable questions, it also has ``null_score_difference``:
        the lowest null score of the windows minus the best span's score. ``score`` applies a threshold to it.
        """
        assert isinstance(features, SpanFeatures)
        self.check_outputs(outputs, (len(features.ids), 2))
        rows = []
        for example, spans in zip(examples, find_spans(features, outputs, len(examples)), strict=True):
            nbest = nbest_list(spans, example.context, features.offsets, self.spec.unanswerable)
            texts = [span["text"] for span in nbest if span["text"]]
            row: Prediction = {"id": example.id, "prediction": texts[0] if texts else ""}
            if self.spec.unanswerable:
                # 0 without a span: the answer is "" at any threshold.
                difference = 0.0
                if len(spans.score):
                    difference = spans.null - float(spans.score[0])
                row["null_score_difference"] = difference
            row["nbest"] = nbest
            rows.append(row)
        return rows

    def answers(
        self, examples: Sequence[Question], features: Features, outputs: np.ndarray, threshold: float | None = None
    ) -> list[Prediction]:
        # `prediction` is "" if the question has no answer. `start` and `end` are in the context's characters;
        # `confidence` is the answer's share among the 20 best.
        answers = []
        for row in self.predict(examples, features, outputs):
            text = row["prediction"]
            if threshold is not None and row["null_score_difference"] > threshold:
                text = ""
            span = _find_span(text, row)
            offsets = {"start": span.get("start", 0), "end": span.get("end", 0)}
            answers.append({"id": row["id"], "prediction": text, **offsets, "confidence": span.get("probability")})
        return answers

    def score_answers(self, examples: Sequence[Question], predictions: Rows) -> AnswerScores:
        rows = self.align(examples, predictions)
        texts = [row["prediction"] for row in rows]
        raw = self._values(examples, texts)
        is_text = np.array([bool(text) for text in texts])
        has_answer = np.array([bool(example.answers) for example in examples])
        differences = np.zeros(len(texts))
        threshold = None
        if self.spec.unanswerable:
            differences = np.array([row["null_score_difference"] for row in rows], float)
            threshold = find_null_threshold(raw["f1"], is_text, has_answer, differences)
        return AnswerScores(
            texts=texts,
            raw=raw,
            is_text=is_text,
            has_answer=has_answer,
            differences=differences,
            threshold=threshold,
        )

    def _values(self, examples: Sequence[Question], texts: Sequence[str]) -> dict[str, np.ndarray]:
        # F1 and exact match, from 0 to 1, [questions] each.
        f1 = []
        exact = []
        unanswerable = self.spec.unanswerable
        for example, text in zip(examples, texts, strict=True):
            gold = [answer.text for answer in example.answers]
            f1.append(overlap_f1(text, gold, unanswerable))
            exact.append(exact_match(text, gold, unanswerable))
        return {
            "f1": np.array(f1),
            "em": np.array(exact),
        }

    def score(self, eval_set: str, examples: Sequence[Question], predictions: Rows) -> dict[str, float]:
        """Compute F1 and exact match over all questions, in percent, against the gold answer that fits best.

        If questions may have no answer, ``f1`` and ``em`` are taken at the ``threshold`` with the best F1 on these
        predictions, as in the evaluator for SQuAD 2.0. The result then also has both metrics at threshold 0, both
        metrics over the questions with (``HasAns``) and without an answer (``NoAns``), and the best exact match.
        """
        answers = self.score_answers(examples, predictions)
        values = answers.values()
        scores: dict[str, float] = {metric: percent(values[metric]) for metric in self.spec.eval_set(eval_set).metrics}
        if answers.threshold is None:
            return scores
        scores["threshold"] = answers.threshold.threshold
        has_answer = answers.has_answer
        parts = {"HasAns": has_answer, "NoAns": ~has_answer}
        for metric, raw in answers.raw.items():
            # A question without an answer is right where none is given.
            at_zero = np.where(answers.differences <= 0.0, raw, ~has_answer)
            scores[f"{metric}_at_zero"] = percent(at_zero)
            for name, part in parts.items():
                if part.any():
                    scores[f"{name}_{metric}"] = percent(values[metric][part])
        exact = find_null_threshold(answers.raw["em"], answers.is_text, has_answer, answers.differences)
        scores["best_em"] = 100.0 * exact.total / len(examples)
        scores["best_em_threshold"] = exact.threshold
        return scores

    def statistics(
        self, eval_set: str, examples: Sequence[Question], systems: Sequence[Rows]
    ) -> dict[str, BootstrapStatistics]:
        values = [self.score_answers(examples, rows).values() for rows in systems]
        statistics: dict[str, BootstrapStatistics] = {}
        for metric in self.spec.eval_set(eval_set).metrics:
            of_systems = [system[metric] for system in values]
            statistics[metric] = ratio_statistics(of_systems, yes_no=metric == "em")
        return statistics

    def group(self, example: Question) -> str:
        return example.context

    def example_results(self, eval_set: str, examples: Sequence[Question], predictions: Rows) -> list[ExampleResult]:
        # Answers are those at the threshold of `score`.
        answers = self.score_answers(examples, predictions)
        rows = self.align(examples, predictions)
        texts = answers.final_texts()
        return [
            ExampleResult(
                id=example.id,
                text=f"{example.question.strip()} ||| {_context_around_answer(example)}",
                words=len(example.question.split()) + len(example.context.split()),
                gold=example.answers[0].text if example.answers else "",
                predicted=text,
                right=float(right),
                confidence=_find_span(text, row).get("probability"),
            )
            for example, row, text, right in zip(examples, rows, texts, answers.values()["f1"], strict=True)
        ]

    def submission(
        self, eval_set: str, examples: Sequence[Question], predictions: Rows, threshold: float | None = None
    ) -> dict[str, str]:
        # The JSON files that SQuAD's evaluators read. `threshold` was found on another file; without it, the best for
        # the examples is taken, which must then be labelled.
        answers = self.score_answers(examples, predictions)
        answered = None if threshold is None else answers.differences <= threshold
        test = self.spec.scores[eval_set].test
        name = f"{eval_set}_predictions.json" if test is None else test.submit
        files: dict[str, list[Any]] = {name: answers.final_texts(answered)}
        if self.spec.unanswerable:
            files[f"{eval_set}_null_odds.json"] = answers.differences.tolist()
        ids = [example.id for example in examples]
        submission = {}
        for name, values in files.items():
            by_id = dict(zip(ids, values, strict=True))
            submission[name] = json.dumps(by_id, indent=2, ensure_ascii=False) + "\n"
        return submission

    def majority_baseline(self, eval_set: str, examples: Sequence[Question]) -> dict[str, float]:
        # All questions get the same answer: "" or a frequent gold answer.
        frequent: Counter[str] = Counter()
        for example in examples:
            # Three people who gave one answer to a question count once.
            frequent.update({normalise_answer(answer.text) for answer in example.answers})
        # Ties are broken by spelling: the order of a set differs between runs.
        by_frequency = sorted(frequent, key=lambda answer: (-frequent[answer], answer))
        metrics = self.spec.eval_set(eval_set).metrics
        best: dict[str, float] = dict.fromkeys(metrics, 0.0)
        for answer in ["", *by_frequency[:10]]:
            values = self._values(examples, [answer] * len(examples))
            for metric in best:
                best[metric] = max(best[metric], percent(values[metric]))
        return best


def _context_around_answer(example: Question) -> str:
    # Around the first answer; without an answer, the beginning.
    middle = 0
    if example.answers:
        answer = example.answers[0]
        middle = answer.start + min(len(answer.text), MAX_SHOWN_CHARACTERS) // 2
    last_start = len(example.context) - MAX_SHOWN_CHARACTERS
    start = max(0, min(middle - MAX_SHOWN_CHARACTERS // 2, last_start))
    end = start + MAX_SHOWN_CHARACTERS
    before = "… " if start else ""
    part = " ".join(example.context[start:end].split())
    after = " …" if end < len(example.context) else ""
    return f"{before}{part}{after}"


def _find_span(text: str, row: Prediction) -> dict[str, Any]:
    # The best span that spells the text; none, for example, in a context without a token.
    return next((span for span in row.get("nbest") or () if span["text"] == text), {})
