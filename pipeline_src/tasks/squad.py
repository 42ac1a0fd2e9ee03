"""Extractive question answering: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3), as in google-research/bert."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import schema_error
from pipeline_src.common.progress import log
from pipeline_src.tasks.features import Features, SpanFeatures
from pipeline_src.tasks.metrics import BootstrapStatistics, ratio_statistics
from pipeline_src.tasks.readers import Answer, Question, is_at_start
from pipeline_src.tasks.squad_metrics import (
    AnswerScores,
    exact_match,
    find_null_threshold,
    normalise_answer,
    overlap_f1,
    percent,
)
from pipeline_src.tasks.task import ExampleResult, Rows, Task
from pipeline_src.tokenizer.special_tokens import Template, read_templates

MAX_SHOWN_CHARACTERS = 300  # of a context in an ExampleResult

DOC_STRIDE = 128  # this and the next three constants are those of google-research/bert, run_squad.py
MAX_QUESTION_TOKENS = 64
MAX_ANSWER_TOKENS = 30
N_BEST = 20  # starts and ends per window, and spans per question
TEXT_BATCH = 1024  # texts tokenised together
QUESTION_BATCH = 512  # questions searched together, their windows padded to the longest

# Reasons that are counted. On the first answer, which is trained on:
NOT_THERE = "the answer is not in the context where the file says"
NO_TOKEN = "the answer holds no token; learnt as no answer"
INSIDE_A_WORD = "the answer begins or ends inside a token; learnt with the whole of it"
TOO_LONG = f"the answer is longer than the {MAX_ANSWER_TOKENS} tokens of a prediction"
NO_WINDOW = "the answer is longer than every window; learnt as no answer"
SPLIT = "the answer is whole in no window; learnt as no answer"
# On the question and its context:
QUESTION_CUT = f"the question is cut to {MAX_QUESTION_TOKENS} tokens"
QUESTION_CUT_MORE = "the question is cut to half of the window"
EMPTY_CONTEXT = "the context holds no token"
SHORT_CONTEXT = "the context is shorter than the question, in tokens"


class QuestionAnswering(Task[Question]):
    """Extractive question answering."""

    head = "span"

    @property
    def num_outputs(self) -> int:
        return 2

    def features(self, examples: Sequence[Question], tokenizer: Tokenizer, max_length: int) -> SpanFeatures:
        """Make windows of at most ``max_length`` tokens: [CLS] question [SEP] part of the context [SEP].

        A window's label is the question's first gold answer, or (0, 0), the [CLS] token, if that is not all inside.
        """
        if tokenizer.truncation or tokenizer.padding:
            raise PipelineError(
                "the tokenizer cuts or pads texts", tokenizer.truncation or tokenizer.padding,
                where=f"task {self.spec.name}",
                hint="set truncation and padding to null in the model folder's tokenizer.json",
            )  # fmt: skip
        template = read_templates(tokenizer).pair
        before = len(template.special_ids[0]) + len(template.special_ids[1])  # special tokens before the context
        max_question = min(MAX_QUESTION_TOKENS, (max_length - template.size) // 2)
        counts: Counter[str] = Counter()
        questions: list[np.ndarray] = []
        for encoding in _encodings(tokenizer, [example.question for example in examples]):
            questions.append(np.array(encoding.ids[:max_question], np.int32))
            if len(encoding.ids) > max_question:
                counts[QUESTION_CUT if max_question == MAX_QUESTION_TOKENS else QUESTION_CUT_MORE] += 1
        texts = list(dict.fromkeys(example.context for example in examples))  # several questions share a context
        contexts = {
            text: (np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int32).reshape(-1, 2))
            for text, encoding in zip(texts, _encodings(tokenizer, texts), strict=True)
        }
        windows: list[ContextWindow] = []
        for index, (example, question) in enumerate(zip(examples, questions, strict=True)):
            offsets = contexts[example.context][1]
            counts[EMPTY_CONTEXT] += not len(offsets)
            counts[SHORT_CONTEXT] += 0 < len(offsets) < len(question)
            room = max_length - len(question) - template.size
            windows += _windows(index, example, offsets, room, len(question) + before, counts)
        counts = +counts
        for reason, count in sorted(counts.items()):
            log.info("%s: %d of %d questions: %s", self.spec.name, count, len(examples), reason)
        return _lay_out(windows, examples, questions, contexts, template, dict(sorted(counts.items())))

    def predict(self, examples: Sequence[Question], features: Features, outputs: np.ndarray) -> list[dict[str, Any]]:
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
            row: dict[str, Any] = {"id": example.id, "prediction": next((s["text"] for s in nbest if s["text"]), "")}
            if self.spec.unanswerable:  # 0 without a span: the answer is "" at any threshold
                row["null_score_difference"] = spans.null - float(spans.score[0]) if len(spans.score) else 0.0
            rows.append(row | {"nbest": nbest})
        return rows

    def answers(
        self, examples: Sequence[Question], features: Features, outputs: np.ndarray, threshold: float | None = None
    ) -> list[dict[str, Any]]:
        """Make predictions at the threshold: ``prediction`` is "" if the question has no answer.

        ``start`` and ``end`` are in the context's characters; ``confidence`` is the answer's share among the 20 best.
        """
        answers = []
        for row in self.predict(examples, features, outputs):
            text = row["prediction"]
            if threshold is not None and row["null_score_difference"] > threshold:
                text = ""
            # A context without a token has no span.
            best: dict[str, Any] = next((span for span in row["nbest"] if span["text"] == text), {})
            offsets = {"start": best.get("start", 0), "end": best.get("end", 0)}
            answers.append({"id": row["id"], "prediction": text, **offsets, "confidence": best.get("probability")})
        return answers

    def score_answers(self, examples: Sequence[Question], predictions: Rows) -> AnswerScores:
        """Score predictions against the gold answers, and find the null threshold that is best for them."""
        texts = [row["prediction"] for row in self.align(examples, predictions)]
        for value in texts:
            if not isinstance(value, str):
                raise self.not_a_prediction(value, 'an answer is a text, or "" for none')
        raw = self._values(examples, texts)
        is_text = np.array([bool(text) for text in texts])
        has_answer = np.array([bool(example.answers) for example in examples])
        if not self.spec.unanswerable:
            return AnswerScores(texts, raw, is_text, has_answer, np.zeros(len(texts)), None)
        differences = self._null_score_differences(examples, predictions)
        threshold = find_null_threshold(raw["f1"], is_text, has_answer, differences)
        return AnswerScores(texts, raw, is_text, has_answer, differences, threshold)

    def _values(self, examples: Sequence[Question], texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Return ``f1`` and ``em``, from 0 to 1, [questions] each, of one text per question as its answer."""
        pairs = [
            (text, [answer.text for answer in example.answers]) for example, text in zip(examples, texts, strict=True)
        ]
        return {
            name: np.array([score(text, gold, self.spec.unanswerable) for text, gold in pairs])
            for name, score in (("f1", overlap_f1), ("em", exact_match))
        }

    def _null_score_differences(self, examples: Sequence[Question], predictions: Rows) -> np.ndarray:
        by_id = {row["id"]: row.get("null_score_difference") for row in predictions}
        for name, value in by_id.items():
            if schema_error(value, float):
                hint = "make the predictions again; without it no threshold can be applied"
                where = f"task {self.spec.name}, question {name}"
                raise PipelineError("no null score difference", repr(value), where=where, hint=hint)
        return np.array([by_id[example.id] for example in examples], float)

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
        at_zero = answers.differences <= 0.0
        for metric, raw in answers.raw.items():
            scores[f"{metric}_at_zero"] = percent(np.where(at_zero, raw, ~answers.has_answer))
            for part, name in ((answers.has_answer, "HasAns"), (~answers.has_answer, "NoAns")):
                if part.any():
                    scores[f"{name}_{metric}"] = percent(values[metric][part])
        exact = find_null_threshold(answers.raw["em"], answers.is_text, answers.has_answer, answers.differences)
        return scores | {"best_em": 100.0 * exact.total / len(examples), "best_em_threshold": exact.threshold}

    def statistics(
        self, eval_set: str, examples: Sequence[Question], systems: Sequence[Rows]
    ) -> dict[str, BootstrapStatistics]:
        values = [self.score_answers(examples, rows).values() for rows in systems]
        return {
            metric: ratio_statistics([system[metric] for system in values], yes_no=metric == "em")
            for metric in self.spec.eval_set(eval_set).metrics
        }

    def group(self, example: Question) -> str:
        return example.context

    def example_results(self, eval_set: str, examples: Sequence[Question], predictions: Rows) -> list[ExampleResult]:
        """Describe each answer, at the threshold of ``score``; ``text`` is the question and part of the context."""
        answers = self.score_answers(examples, predictions)
        by_id = {row["id"]: row for row in predictions}
        return [
            ExampleResult(
                id=example.id,
                text=f"{example.question.strip()} ||| {_context_around_answer(example)}",
                words=len(example.question.split()) + len(example.context.split()),
                gold=example.answers[0].text if example.answers else "",
                predicted=text,
                right=float(right),
                confidence=_confidence(text, by_id[example.id]),
            )
            for example, text, right in zip(examples, answers.final_texts(), answers.values()["f1"], strict=True)
        ]

    def submission(
        self, eval_set: str, examples: Sequence[Question], predictions: Rows, threshold: float | None = None
    ) -> dict[str, str]:
        """Return the JSON files that SQuAD's evaluators read, name -> content; in 2.0 also null score differences.

        ``threshold`` is one found on another file. If it is None, the best for ``examples`` is taken, which must then
        be labelled.
        """
        answers = self.score_answers(examples, predictions)
        texts = answers.final_texts() if threshold is None else answers.final_texts(answers.differences <= threshold)
        ids = [example.id for example in examples]
        test = self.spec.scores[eval_set].test
        files: dict[str, list[Any]] = {f"{eval_set}_predictions.json" if test is None else test.submit: texts}
        if self.spec.unanswerable:
            files[f"{eval_set}_null_odds.json"] = answers.differences.tolist()
        return {
            name: json.dumps(dict(zip(ids, values, strict=True)), indent=2, ensure_ascii=False) + "\n"
            for name, values in files.items()
        }

    def majority_baseline(self, eval_set: str, examples: Sequence[Question]) -> dict[str, float]:
        """Return the best score, per metric, if all questions get the same answer: "" or a frequent gold answer."""
        frequent = Counter(
            answer for example in examples for answer in {normalise_answer(answer.text) for answer in example.answers}
        )
        # ties are broken by spelling: the order of a set differs between runs
        candidates = ["", *sorted(frequent, key=lambda answer: (-frequent[answer], answer))[:10]]
        constants = [self._values(examples, [answer] * len(examples)) for answer in candidates]
        metrics = self.spec.eval_set(eval_set).metrics
        return {metric: max(percent(values[metric]) for values in constants) for metric in metrics}


def _context_around_answer(example: Question) -> str:
    """Return the part of the context around the first answer; if there is no answer, its beginning."""
    answer = example.answers[0] if example.answers else None
    middle = answer.start + min(len(answer.text), MAX_SHOWN_CHARACTERS) // 2 if answer else 0
    first = max(0, min(middle - MAX_SHOWN_CHARACTERS // 2, len(example.context) - MAX_SHOWN_CHARACTERS))
    part = " ".join(example.context[first : first + MAX_SHOWN_CHARACTERS].split())
    after = " …" if first + MAX_SHOWN_CHARACTERS < len(example.context) else ""
    return f"{'… ' if first else ''}{part}{after}"


def _confidence(text: str, prediction: dict[str, Any]) -> float | None:
    return next((span["probability"] for span in prediction.get("nbest") or () if span["text"] == text), None)


@dataclass(frozen=True)
class ContextWindow:
    """Tokens ``first`` to ``last`` (exclusive) of a question's context, and their label; ``question`` is an index."""

    question: int
    first: int
    last: int
    label: tuple[int, int]


def _encodings(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Encoding]:
    # in batches: an encoding takes a hundred times the memory of its ids
    for first in range(0, len(texts), TEXT_BATCH):
        yield from tokenizer.encode_batch(list(texts[first : first + TEXT_BATCH]), add_special_tokens=False)


def _windows(
    index: int, example: Question, offsets: np.ndarray, room: int, before: int, counts: Counter[str]
) -> list[ContextWindow]:
    """Make the windows of question ``index``: ``before`` tokens, then up to ``room`` tokens of the context."""
    spans = window_spans(len(offsets), room)
    gold, reason = gold_tokens(example.context, example.answers[0], offsets) if example.answers else (None, "")
    counts[reason] += bool(reason)
    if gold is None:
        return [ContextWindow(index, *span, (0, 0)) for span in spans]
    first, last = gold
    counts[TOO_LONG] += last - first + 1 > MAX_ANSWER_TOKENS
    if not any(begin <= first and last < end for begin, end in spans):
        counts[NO_WINDOW if last - first + 1 > room else SPLIT] += 1
    return [
        ContextWindow(
            index, begin, end,
            (first - begin + before, last - begin + before) if begin <= first and last < end else (0, 0),
        )
        for begin, end in spans
    ]  # fmt: skip


def gold_tokens(context: str, answer: Answer, offsets: np.ndarray) -> tuple[tuple[int, int] | None, str]:
    """Return the first and last token that overlap an answer, or None; and what is wrong with the answer, or "".

    The tokens may spell more than the answer (``INSIDE_A_WORD``). There are no tokens if the answer is ``NOT_THERE``,
    or holds ``NO_TOKEN``. ``offsets``: where each token begins and ends (exclusive), in characters, [tokens, 2].
    """
    if not is_at_start(answer, context):
        return None, NOT_THERE
    end = answer.start + len(answer.text)
    first = int(np.searchsorted(offsets[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    if first > last:
        return None, NO_TOKEN
    exact = context[offsets[first, 0] : offsets[last, 1]] == answer.text
    return (first, last), "" if exact else INSIDE_A_WORD


def window_spans(tokens: int, room: int) -> list[tuple[int, int]]:
    """Return (first token, last token, exclusive) of each window of at most ``room`` tokens."""
    step = min(DOC_STRIDE, room)
    spans = [(0, min(room, tokens))]
    while spans[-1][1] < tokens:
        first = spans[-1][0] + step
        spans.append((first, min(first + room, tokens)))
    return spans


def most_context(spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return, for each token, the number of the window with the most context on its shorter side, int64 [tokens].

    A longer window is slightly preferred, and of equal windows the earlier (run_squad.py, ``_check_is_max_context``).
    """
    best = np.full(spans[-1][1], -np.inf)
    window = np.zeros(len(best), np.int64)
    for index, (first, last) in enumerate(spans):
        token = np.arange(last - first)
        context = np.minimum(token, token[::-1]) + 0.01 * (last - first)
        better = context > best[first:last]
        best[first:last][better] = context[better]
        window[first:last][better] = index
    return window


def _lay_out(
    windows: Sequence[ContextWindow],
    examples: Sequence[Question],
    questions: Sequence[np.ndarray],
    contexts: dict[str, tuple[np.ndarray, np.ndarray]],
    template: Template,
    counts: dict[str, int],
) -> SpanFeatures:
    # arrays of the final size: the 15 million tokens of training windows never exist as Python objects
    lengths = [len(questions[window.question]) + template.size + window.last - window.first for window in windows]
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    before, between, after = (np.array(special, np.int32) for special in template.special_ids)
    token_type_ids = np.array(template.token_type_ids, np.int8)
    ids = np.empty(cu_seqlens[-1], np.int32)
    segments = np.empty(cu_seqlens[-1], np.int8)
    offsets = np.zeros((cu_seqlens[-1], 2), np.int32)
    may_start = np.zeros(cu_seqlens[-1], bool)
    bounds = iter(zip(cu_seqlens.tolist(), cu_seqlens[1:].tolist(), strict=False))
    for question, group in groupby(windows, lambda window: window.question):
        question_windows = list(group)
        best = most_context([(window.first, window.last) for window in question_windows])
        context_ids, context_offsets = contexts[examples[question].context]
        for number, window in enumerate(question_windows):
            begin, end = next(bounds)
            part = slice(window.first, window.last)
            stop = end - len(after)
            context = slice(stop - (window.last - window.first), stop)
            runs = (before, questions[question], between, context_ids[part], after)
            ids[begin:end] = np.concatenate(runs)
            segments[begin:end] = np.repeat(token_type_ids, [len(run) for run in runs])
            offsets[context] = context_offsets[part]
            may_start[context] = best[part] == number
    return SpanFeatures(
        ids=ids,
        segments=segments,
        cu_seqlens=cu_seqlens,
        labels=np.array([window.label for window in windows], np.int64).reshape(-1, 2),
        example=np.array([window.question for window in windows], np.int64),
        offsets=offsets,
        may_start=may_start,
        counts=counts,
    )


@dataclass(frozen=True)
class BestSpans:
    """Spans of one question, the highest score first.

    Attributes:
        first, last: indices in ``features.ids`` of each span's first and last token, [spans].
        score: start logit of the first token plus end logit of the last token, float64 [spans].
        null: the lowest null score (start plus end logit of [CLS]) among the question's windows.
    """

    first: np.ndarray
    last: np.ndarray
    score: np.ndarray
    null: float


def find_spans(features: SpanFeatures, outputs: np.ndarray, questions: int) -> Iterator[BestSpans]:
    """Yield the spans of each question in turn.

    A span joins one of the 20 best starts of a window with one of its 20 best ends. Both must be in the context; the
    window must be the one with most context for the start; and the span must have at most 30 tokens (run_squad.py,
    ``write_predictions``). Spans with equal scores keep the order of windows, starts and ends. If a question has no
    such span, for which run_squad.py answers "empty", all its starts and ends are tried under these conditions.

    Args:
        outputs: start and end logits of every token, [tokens, 2].
        questions: number of questions.
    """
    edges = np.searchsorted(features.example, np.arange(questions + 1))
    for number in range(0, questions, QUESTION_BATCH):
        ends = edges[number : number + QUESTION_BATCH + 1]
        owner, first, last, score, null = _candidates(features, outputs, int(ends[0]), int(ends[-1]))
        order = np.lexsort((-score, owner))  # stable
        first, last, score = first[order], last[order], score[order]
        bounds = np.searchsorted(owner[order], np.arange(number, number + len(ends)))
        nulls = np.minimum.reduceat(null, ends[:-1] - ends[0])
        for index, null_score in enumerate(nulls.tolist()):
            spans = slice(*bounds[index : index + 2])
            if spans.start < spans.stop:
                yield BestSpans(first[spans], last[spans], score[spans], null_score)
            else:
                yield _best_of_all(features, outputs, range(*ends[index : index + 2]), null_score)


def _candidates(features: SpanFeatures, outputs: np.ndarray, begin: int, end: int) -> tuple[np.ndarray, ...]:
    """Return (question, first, last, score) of spans in windows ``begin`` to ``end``, and each window's null score."""
    offset = features.cu_seqlens[begin:end]
    tokens = slice(int(features.cu_seqlens[begin]), int(features.cu_seqlens[end]))
    lengths = np.diff(features.cu_seqlens[begin : end + 1])
    is_token = np.arange(lengths.max()) < lengths[:, None]
    scores = np.full((2, *is_token.shape), -np.inf)
    scores[:, is_token] = outputs[tokens].T
    allowed = np.zeros((2, *is_token.shape), bool)
    allowed[:, is_token] = features.may_start[tokens], features.offsets[tokens, 1] > 0
    best = np.argsort(-scores, axis=2, kind="stable")[:, :, :N_BEST]
    scores, allowed = np.take_along_axis(scores, best, 2), np.take_along_axis(allowed, best, 2)
    distance = best[1][:, None, :] - best[0][:, :, None]
    spans = allowed[0][:, :, None] & allowed[1][:, None, :] & (distance >= 0) & (distance < MAX_ANSWER_TOKENS)
    window, start, stop = np.nonzero(spans)
    return (
        features.example[begin:end][window],
        offset[window] + best[0][window, start],
        offset[window] + best[1][window, stop],
        scores[0][window, start] + scores[1][window, stop],
        outputs[offset].astype(float).sum(axis=1),
    )


def _best_of_all(features: SpanFeatures, outputs: np.ndarray, items: range, null: float) -> BestSpans:
    """Return the best span over the windows ``items`` of a question; no span if the context has no token."""
    best = (-np.inf, 0, 0)
    for item in items:
        begin, end = int(features.cu_seqlens[item]), int(features.cu_seqlens[item + 1])
        starts, ends = outputs[begin:end].astype(float).T
        starts = np.where(features.may_start[begin:end], starts, -np.inf)
        ends = np.where(features.offsets[begin:end, 1] > 0, ends, -np.inf)
        for distance in range(min(MAX_ANSWER_TOKENS, len(starts))):
            sums = starts[: len(starts) - distance] + ends[distance:]
            first = int(np.argmax(sums))
            if sums[first] > best[0]:
                best = (float(sums[first]), begin + first, begin + first + distance)
    count = int(np.isfinite(best[0]))
    return BestSpans(np.array([best[1]])[:count], np.array([best[2]])[:count], np.array([best[0]])[:count], null)


def nbest_list(spans: BestSpans, context: str, offsets: np.ndarray, null: bool) -> list[dict[str, Any]]:
    """Return the 20 best spans with different texts as JSON-serialisable dictionaries.

    Each has ``text``, ``start`` and ``end`` in characters, ``score`` and ``probability``. With ``null``, the text ""
    (no answer) is included with the null score, at the end if it is not among the 20 best.
    """
    best: dict[str, dict[str, Any]] = {}
    bounds = zip(offsets[spans.first, 0].tolist(), offsets[spans.last, 1].tolist(), spans.score.tolist(), strict=True)
    for start, end, score in bounds:
        if len(best) == N_BEST:
            break
        if text := context[start:end]:
            best.setdefault(text, {"text": text, "start": start, "end": end, "score": score})
    nbest = list(best.values())
    if null:
        better = sum(span["score"] >= spans.null for span in nbest)
        nbest.insert(better, {"text": "", "start": 0, "end": 0, "score": spans.null})
        if better < N_BEST:
            del nbest[N_BEST:]
    if nbest:
        weights = np.exp(np.array([span["score"] for span in nbest]) - nbest[0]["score"])
        for span, probability in zip(nbest, (weights / weights.sum()).tolist(), strict=True):
            span |= {"score": round(span["score"], 5), "probability": round(probability, 6)}
    return nbest
