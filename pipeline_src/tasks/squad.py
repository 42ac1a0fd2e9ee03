"""Extractive question answering: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3), as in google-research/bert."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

SHOWN_CHARACTERS = 300  # of a context in an ExampleResult

WINDOW_STEP = 128  # doc_stride; this and the next two as in google-research/bert, run_squad.py
QUESTION_TOKENS = 64
ANSWER_TOKENS = 30  # max_answer_length
TEXTS = 1024  # tokenised together

# Reasons that are counted, of the first answer (the one that is trained on):
NOT_THERE = "the answer is not in the context where the file says; learnt as no answer"
NO_TOKEN = "the answer holds no token; learnt as no answer"
INSIDE_A_WORD = "the answer begins or ends inside a token; learnt with the whole of it"
TOO_LONG = f"the answer is longer than the {ANSWER_TOKENS} tokens of a prediction"
NO_WINDOW = "the answer is longer than every window; learnt as no answer"
SPLIT = "the answer is whole in no window; learnt as no answer"
# and of the question and its context:
QUESTION_CUT = f"the question is cut to {QUESTION_TOKENS} tokens"
QUESTION_CUT_MORE = "the question is cut to half of the window"
EMPTY_CONTEXT = "the context holds no token"
SHORT_CONTEXT = "the context is shorter than the question, in tokens"

BEST = 20  # starts and ends per window, and spans per question: n_best_size in run_squad.py
QUESTIONS = 512  # searched together, their windows padded to the longest


class QuestionAnswering(Task[Question]):
    """Extractive question answering."""

    head = "span"

    @property
    def num_outputs(self) -> int:
        """A start logit and an end logit per token."""
        return 2

    def features(self, examples: Sequence[Question], tokenizer: Tokenizer, max_length: int) -> Features:
        """Make one item per window of a question's context; see :func:`window_features`."""
        return window_features(self.spec.name, examples, tokenizer, max_length)

    def predict(self, examples: Sequence[Question], features: Features, outputs: np.ndarray) -> list[dict[str, Any]]:
        """Make prediction rows from the start and end logits of every token, float [tokens, 2].

        A row has ``id``, ``prediction`` (the best span of the context; "" only if the context has no token), ``nbest``
        (see :func:`nbest_list`) and, if questions may have no answer, ``null_score_difference`` (the lowest null score
        of the windows minus the best span's score). Which questions are left without an answer is decided over all
        questions, in :meth:`score`.
        """
        assert isinstance(features, SpanFeatures)  # made by features() above
        self.check_outputs(outputs, (len(features.ids), 2))
        rows = []
        for example, spans in zip(examples, find_spans(features, outputs, len(examples)), strict=True):
            nbest = nbest_list(spans, example.context, features.offsets, self.spec.unanswerable)
            row: dict[str, Any] = {"id": example.id, "prediction": next((s["text"] for s in nbest if s["text"]), "")}
            if self.spec.unanswerable:  # 0 without a span: the answer is "" at any threshold
                row["null_score_difference"] = spans.null - float(spans.score[0]) if len(spans.score) else 0.0
            rows.append(row | {"nbest": nbest})
        return rows

    def score_answers(self, examples: Sequence[Question], predictions: Rows) -> AnswerScores:
        """Score prediction rows against the gold answers; the null threshold is searched on these predictions."""
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
        """``f1`` and ``em`` of one answer per question, 0 to 1, [questions] each."""
        golds = [[answer.text for answer in example.answers] for example in examples]
        return {
            name: np.array([score(text, gold, self.spec.unanswerable) for text, gold in zip(texts, golds, strict=True)])
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

        If questions may have no answer, the threshold is searched on these predictions, as the evaluator for 2.0 does:
        ``f1`` and ``em`` are those at the ``threshold`` that is best for F1. The result also has the two at threshold
        0, the two over questions with (``HasAns``) and without an answer (``NoAns``), if there are any, and the best
        exact match with its own threshold.
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
        """Compute each question's contribution to each metric, at the threshold of all questions."""
        values = [self.score_answers(examples, rows).values() for rows in systems]
        return {
            metric: ratio_statistics([each[metric] for each in values], yes_no=metric == "em")
            for metric in self.spec.eval_set(eval_set).metrics
        }

    def group(self, example: Question) -> str:
        """Return the question's paragraph."""
        return example.context

    def example_results(self, eval_set: str, examples: Sequence[Question], predictions: Rows) -> list[ExampleResult]:
        """Describe each answer at the threshold of :meth:`score`; ``right`` is its F1.

        The text is the question and the context around the answer; its words are those of question and context.
        """
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
        """Return the JSON files that SQuAD's evaluators read: answers, and null score differences for 2.0.

        Args:
            eval_set: names the files, unless its test file names that of the answers.
            threshold: greatest null score difference that is answered, found on another file; None searches it on this
                one, which must have answers then.
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
        """Return the best score, per metric, of one answer to every question: "" or a frequent gold answer."""
        frequent = Counter(
            answer for example in examples for answer in {normalise_answer(answer.text) for answer in example.answers}
        )
        # equally frequent ones in the order of their spelling: a set's order differs between runs
        ten = [answer for answer, _ in sorted(frequent.items(), key=lambda item: (-item[1], item[0]))[:10]]
        constants = [self._values(examples, [answer] * len(examples)) for answer in ["", *ten]]
        metrics = self.spec.eval_set(eval_set).metrics
        return {metric: max(percent(values[metric]) for values in constants) for metric in metrics}


def _context_around_answer(example: Question) -> str:
    """The part of the context with the first answer in its middle, or its beginning."""
    answer = example.answers[0] if example.answers else None
    middle = answer.start + min(len(answer.text), SHOWN_CHARACTERS) // 2 if answer else 0
    first = max(0, min(middle - SHOWN_CHARACTERS // 2, len(example.context) - SHOWN_CHARACTERS))
    part = " ".join(example.context[first : first + SHOWN_CHARACTERS].split())
    after = " …" if first + SHOWN_CHARACTERS < len(example.context) else ""
    return f"{'… ' if first else ''}{part}{after}"


def _confidence(text: str, prediction: dict[str, Any]) -> float | None:
    """Probability of an answer in the n-best list."""
    return next((span["probability"] for span in prediction.get("nbest") or () if span["text"] == text), None)


@dataclass(frozen=True)
class ContextWindow:
    """Tokens ``first`` to ``last`` (exclusive) of the context of question number ``owner``, and the window's label."""

    owner: int
    first: int
    last: int
    label: tuple[int, int]


def window_features(task: str, examples: Sequence[Question], tokenizer: Tokenizer, max_length: int) -> SpanFeatures:
    """Make windows of at most ``max_length`` tokens: [CLS] question [SEP] part of the context [SEP].

    The label of a window is its first gold answer, or (0, 0), the [CLS] token, if the answer is not entirely inside.
    ``counts`` has the number of questions for each of the reasons above.
    """
    if tokenizer.truncation or tokenizer.padding:
        raise PipelineError(
            "the tokenizer cuts or pads texts by itself", tokenizer.truncation or tokenizer.padding,
            where=f"task {task}", hint="set truncation and padding to null in the model folder's tokenizer.json",
        )  # fmt: skip
    template = read_templates(tokenizer).pair
    before = len(template.special_ids[0]) + len(template.special_ids[1])  # special tokens before the context
    longest_question = min(QUESTION_TOKENS, (max_length - template.size) // 2)
    counts: Counter[str] = Counter()
    questions: list[np.ndarray] = []
    for encoding in _encodings(tokenizer, [example.question for example in examples]):
        questions.append(np.array(encoding.ids[:longest_question], np.int32))
        if len(encoding.ids) > longest_question:
            counts[QUESTION_CUT if longest_question == QUESTION_TOKENS else QUESTION_CUT_MORE] += 1
    texts = list(dict.fromkeys(example.context for example in examples))  # several questions share a context
    contexts = {
        text: (np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int32).reshape(-1, 2))
        for text, encoding in zip(texts, _encodings(tokenizer, texts), strict=True)
    }
    windows: list[ContextWindow] = []
    for owner, (example, question) in enumerate(zip(examples, questions, strict=True)):
        offsets = contexts[example.context][1]
        counts[EMPTY_CONTEXT] += not len(offsets)
        counts[SHORT_CONTEXT] += 0 < len(offsets) < len(question)
        room = max_length - len(question) - template.size
        windows += _label(owner, example, offsets, room, len(question) + before, counts)
    counts = +counts
    for reason, count in sorted(counts.items()):
        log.info("%s: %d of %d questions: %s", task, count, len(examples), reason)
    return _lay_out(windows, examples, questions, contexts, template, dict(sorted(counts.items())))


def _encodings(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Encoding]:
    """Tokenise in chunks: an encoding takes a hundred times the memory of its ids."""
    for first in range(0, len(texts), TEXTS):
        yield from tokenizer.encode_batch(list(texts[first : first + TEXTS]), add_special_tokens=False)


def _label(
    owner: int, example: Question, offsets: np.ndarray, room: int, before: int, counts: Counter[str]
) -> list[ContextWindow]:
    """Windows of one question with ``room`` tokens of the context after ``before`` other tokens."""
    spans = window_spans(len(offsets), room)
    gold = None
    if example.answers:
        gold, reason = gold_tokens(example.context, example.answers[0], offsets)
        counts[reason] += bool(reason)
    if gold is None:
        return [ContextWindow(owner, *span, (0, 0)) for span in spans]
    first, last = gold
    counts[TOO_LONG] += last - first + 1 > ANSWER_TOKENS
    holds = [begin <= first and last < end for begin, end in spans]
    if not any(holds):
        counts[NO_WINDOW if last - first + 1 > room else SPLIT] += 1
    return [
        ContextWindow(owner, begin, end, (first - begin + before, last - begin + before) if whole else (0, 0))
        for (begin, end), whole in zip(spans, holds, strict=True)
    ]


def gold_tokens(context: str, answer: Answer, offsets: np.ndarray) -> tuple[tuple[int, int] | None, str]:
    """Return the first and last token that overlap an answer, and a reason.

    Args:
        offsets: first character of each token and the one after its last, [tokens, 2].

    Returns:
        The tokens, with reason "" if they give back the answer exactly, else ``INSIDE_A_WORD``; or None, with reason
        ``NOT_THERE`` or ``NO_TOKEN``.
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
    """Return the first token of each window and the one after its last; the last window reaches the end."""
    step = min(WINDOW_STEP, room)
    spans = [(0, min(room, tokens))]
    while spans[-1][1] < tokens:
        first = spans[-1][0] + step
        spans.append((first, min(first + room, tokens)))
    return spans


def most_context(spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return, for each token, the window with the most context on the token's shorter side, int64 [tokens].

    A longer window is slightly preferred, and the earlier of equal ones (run_squad.py, ``_check_is_max_context``).
    """
    best = np.full(spans[-1][1], -np.inf)
    window = np.zeros(len(best), np.int64)
    for number, (first, last) in enumerate(spans):
        token = np.arange(last - first)
        context = np.minimum(token, token[::-1]) + 0.01 * (last - first)
        better = context > best[first:last]
        best[first:last][better] = context[better]
        window[first:last][better] = number
    return window


def _lay_out(
    windows: Sequence[ContextWindow],
    examples: Sequence[Question],
    questions: Sequence[np.ndarray],
    contexts: dict[str, tuple[np.ndarray, np.ndarray]],
    template: Template,
    counts: dict[str, int],
) -> SpanFeatures:
    """Fill arrays of the final size: the 15 million tokens of training windows never exist as Python objects."""
    owners = np.array([window.owner for window in windows], np.int64)
    lengths = [len(questions[window.owner]) + template.size + window.last - window.first for window in windows]
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    before, between, after = (np.array(marks, np.int32) for marks in template.special_ids)
    of_run = np.array(template.token_type_ids, np.int8)
    ids = np.empty(cu_seqlens[-1], np.int32)
    segments = np.empty(cu_seqlens[-1], np.int8)
    offsets = np.zeros((cu_seqlens[-1], 2), np.int32)
    may_start = np.zeros(cu_seqlens[-1], bool)
    edges = np.searchsorted(owners, np.arange(len(examples) + 1)).tolist()
    for owner, (example, question) in enumerate(zip(examples, questions, strict=True)):
        own = windows[edges[owner] : edges[owner + 1]]
        best = most_context([(window.first, window.last) for window in own])
        context_ids, context_offsets = contexts[example.context]
        for number, window in enumerate(own):
            begin, end = int(cu_seqlens[edges[owner] + number]), int(cu_seqlens[edges[owner] + number + 1])
            part = slice(window.first, window.last)
            stop = end - len(after)
            place = slice(stop - (window.last - window.first), stop)
            runs = (before, question, between, context_ids[part], after)
            ids[begin:end] = np.concatenate(runs)
            segments[begin:end] = np.repeat(of_run, [len(run) for run in runs])
            offsets[place] = context_offsets[part]
            may_start[place] = best[part] == number
    return SpanFeatures(
        ids=ids,
        segments=segments,
        cu_seqlens=cu_seqlens,
        labels=np.array([window.label for window in windows], np.int64).reshape(-1, 2),
        example=owners,
        offsets=offsets,
        may_start=may_start,
        counts=counts,
    )


@dataclass(frozen=True)
class BestSpans:
    """Spans of one question, the highest score first.

    Attributes:
        first: index of each span's first token in ``features.ids``, [spans].
        last: index of its last token, [spans].
        score: start logit of the first token plus end logit of the last, float64 [spans].
        null: the lowest null score, start plus end logit of [CLS], of the question's windows.
    """

    first: np.ndarray
    last: np.ndarray
    score: np.ndarray
    null: float


def find_spans(features: SpanFeatures, outputs: np.ndarray, questions: int) -> Iterator[BestSpans]:
    """Yield the spans of each question in turn.

    A span joins one of the 20 best starts of a window with one of its 20 best ends; both must be in the context, the
    first token in its window with most context, and the span at most 30 tokens long (run_squad.py,
    ``write_predictions``). Equal scores keep the order of windows, starts and ends. If no span is left, for which
    run_squad.py answers "empty", the best of all spans that meet these conditions is yielded.

    Args:
        features: of the file; items in the order of the questions.
        outputs: start and end logit of every token, [tokens, 2].
    """
    edges = np.searchsorted(features.example, np.arange(questions + 1))
    for number in range(0, questions, QUESTIONS):
        ends = edges[number : number + QUESTIONS + 1]
        owner, first, last, score, null = _candidates(features, outputs, int(ends[0]), int(ends[-1]))
        order = np.lexsort((-score, owner))  # stable
        first, last, score = first[order], last[order], score[order]
        bounds = np.searchsorted(owner[order], np.arange(number, number + len(ends)))
        nulls = np.minimum.reduceat(null, ends[:-1] - ends[0])
        for begin, end, least, items in zip(
            bounds[:-1], bounds[1:], nulls.tolist(), zip(ends[:-1], ends[1:], strict=True), strict=True
        ):
            if begin < end:
                yield BestSpans(first[begin:end], last[begin:end], score[begin:end], least)
            else:
                yield _best_of_all(features, outputs, range(*items), least)


def _candidates(features: SpanFeatures, outputs: np.ndarray, begin: int, end: int) -> tuple[np.ndarray, ...]:
    """Question, first token, last token and score of each span in a range of windows; null score of each window."""
    offset = features.cu_seqlens[begin:end]
    tokens = slice(int(features.cu_seqlens[begin]), int(features.cu_seqlens[end]))
    lengths = np.diff(features.cu_seqlens[begin : end + 1])
    real = np.arange(lengths.max()) < lengths[:, None]
    scores = np.full((2, *real.shape), -np.inf)
    scores[:, real] = outputs[tokens].T
    allowed = np.zeros((2, *real.shape), bool)
    allowed[:, real] = features.may_start[tokens], features.offsets[tokens, 1] > 0
    best = np.argsort(-scores, axis=2, kind="stable")[:, :, :BEST]
    scores, allowed = np.take_along_axis(scores, best, 2), np.take_along_axis(allowed, best, 2)
    longer = best[1][:, None, :] - best[0][:, :, None]
    spans = allowed[0][:, :, None] & allowed[1][:, None, :] & (longer >= 0) & (longer < ANSWER_TOKENS)
    window, start, stop = np.nonzero(spans)
    return (
        features.example[begin:end][window],
        offset[window] + best[0][window, start],
        offset[window] + best[1][window, stop],
        scores[0][window, start] + scores[1][window, stop],
        outputs[offset].astype(float).sum(axis=1),
    )


def _best_of_all(features: SpanFeatures, outputs: np.ndarray, items: range, null: float) -> BestSpans:
    """The best span of a question's windows; none if the context has no token."""
    best = (-np.inf, 0, 0)
    for item in items:
        begin, end = int(features.cu_seqlens[item]), int(features.cu_seqlens[item + 1])
        starts, ends = outputs[begin:end].astype(float).T
        starts = np.where(features.may_start[begin:end], starts, -np.inf)
        ends = np.where(features.offsets[begin:end, 1] > 0, ends, -np.inf)
        for longer in range(min(ANSWER_TOKENS, len(starts))):
            sums = starts[: len(starts) - longer] + ends[longer:]
            first = int(np.argmax(sums))
            if sums[first] > best[0]:
                best = (float(sums[first]), begin + first, begin + first + longer)
    kept = slice(0, int(np.isfinite(best[0])))
    return BestSpans(np.array([best[1]])[kept], np.array([best[2]])[kept], np.array([best[0]])[kept], null)


def nbest_list(spans: BestSpans, context: str, offsets: np.ndarray, null: bool) -> list[dict[str, Any]]:
    """Return the 20 best spans with different texts as JSON-serialisable dictionaries.

    Each has ``text``, ``start`` and ``end`` in characters, ``score`` and ``probability``.

    Args:
        offsets: of every token, [tokens, 2].
        null: include "", no answer, with the null score; it is the last one if it is not among the 20 best.
    """
    nbest: list[dict[str, Any]] = []
    seen: set[str] = {""}
    places = zip(offsets[spans.first, 0].tolist(), offsets[spans.last, 1].tolist(), spans.score.tolist(), strict=True)
    for start, end, score in places:
        text = context[start:end]
        if text in seen:
            continue
        seen.add(text)
        nbest.append({"text": text, "start": start, "end": end, "score": score})
        if len(nbest) == BEST:
            break
    if null:
        better = sum(span["score"] >= spans.null for span in nbest)
        nbest.insert(better, {"text": "", "start": 0, "end": 0, "score": spans.null})
        if better < BEST:
            del nbest[BEST:]
    if nbest:
        weights = np.exp(np.array([span["score"] for span in nbest]) - nbest[0]["score"])
        for span, share in zip(nbest, (weights / weights.sum()).tolist(), strict=True):
            span |= {"score": round(span["score"], 5), "probability": round(share, 6)}
    return nbest
