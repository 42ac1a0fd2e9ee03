"""Extractive question answering: SQuAD 1.1 and 2.0 (BERT paper, sections 4.2 and 4.3), as in google-research/bert."""

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

# The text of an ExampleResult has at most this many characters of the context.
MAX_SHOWN_CHARACTERS = 300


class QuestionAnswering(Task):
    head = "span"

    @property
    def num_outputs(self) -> int:
        return 2

    def features(self, examples: Sequence[Question], tokenizer: Tokenizer, max_length: int) -> SpanFeatures:
        return window_features(self.spec.name, examples, tokenizer, max_length)

    def predict(self, examples: Sequence[Question], features: Features, outputs: np.ndarray) -> list[Prediction]:
        """Make predictions from the start and end logits of every token.

        Args:
            outputs: start and end logits, float [tokens, 2].

        Returns:
            For each question, ``id``, ``prediction`` (the best span; "" if the context has no token) and ``nbest`` (see
            ``nbest_list``). If the task has unanswerable questions, also ``null_score_difference``: the lowest null
            score of the windows minus the best span's score. ``score`` applies a threshold to this difference.
        """
        assert isinstance(features, SpanFeatures)
        self.check_outputs(outputs, (len(features.ids), 2))
        rows = []
        for example, spans in zip(examples, find_spans(features, outputs, len(examples)), strict=True):
            nbest = nbest_list(spans, example.context, features.offsets, self.spec.unanswerable)
            texts = [span["text"] for span in nbest if span["text"]]
            row: Prediction = {"id": example.id, "prediction": texts[0] if texts else ""}
            if self.spec.unanswerable:
                # Without a span, the difference does not matter: the answer is "" at every threshold.
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
        # `prediction` is "" if the model finds no answer. `start` and `end` are character offsets in the context.
        # `confidence` is the answer's probability in a softmax over the n-best list.
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
        # Returns F1 and exact match, each an array [questions] of values from 0 to 1.
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
        """Compute F1 and exact match over all questions, in percent, against the best-matching gold answer.

        If the task has unanswerable questions, ``f1`` and ``em`` are those at ``threshold``, which maximises F1 on
        these predictions, as in SQuAD 2.0's evaluator. The result then also has:

        - both metrics at threshold 0 (``f1_at_zero``, ``em_at_zero``)
        - both metrics over answerable questions (``HasAns_...``) and unanswerable questions (``NoAns_...``)
        - the best exact match, with its own threshold (``best_em``, ``best_em_threshold``)
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
            # Above the threshold no answer is given, which is correct only for an unanswerable question.
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
        # `predicted` is the answer at the threshold that `score` uses.
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
        # Returns the JSON files that SQuAD's evaluators read. If `threshold` is None, the best threshold on `examples`
        # is used, which must then have labels.
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
        # The constant answer is "" or one of the ten most frequent gold answers, whichever scores best.
        frequent: Counter[str] = Counter()
        for example in examples:
            # If three annotators gave the same answer to a question, it counts once.
            frequent.update({normalise_answer(answer.text) for answer in example.answers})
        # Ties are broken by spelling, because the iteration order of a set differs between runs.
        by_frequency = sorted(frequent, key=lambda answer: (-frequent[answer], answer))
        metrics = self.spec.eval_set(eval_set).metrics
        best: dict[str, float] = dict.fromkeys(metrics, 0.0)
        for answer in ["", *by_frequency[:10]]:
            values = self._values(examples, [answer] * len(examples))
            for metric in best:
                best[metric] = max(best[metric], percent(values[metric]))
        return best


def _context_around_answer(example: Question) -> str:
    # Returns the part of the context around the first answer. If there is no answer, it is the start of the context.
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
    # Returns the best span with this text, or {} if there is none, for example if the context has no tokens.
    return next((span for span in row.get("nbest") or () if span["text"] == text), {})
