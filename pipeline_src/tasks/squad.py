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

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import schema_error
from pipeline_src.base.progress import log
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
from pipeline_src.tasks.task import ExampleResult, Prediction, Rows, Task
from pipeline_src.tokenizer.special_tokens import Template, read_templates

# An ExampleResult shows this much of its context.
MAX_SHOWN_CHARACTERS = 300

# These four constants are those of google-research/bert, run_squad.py. N_BEST is the number of starts and of ends that
# are tried per window, and of spans that are kept per question.
DOC_STRIDE = 128
MAX_QUESTION_TOKENS = 64
MAX_ANSWER_TOKENS = 30
N_BEST = 20

# Texts are tokenised, and questions searched, in batches of this size: both need memory for all of a batch.
TEXT_BATCH = 1024
QUESTION_BATCH = 512

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
        cuts_or_pads = tokenizer.truncation or tokenizer.padding
        if cuts_or_pads:
            where = f"task {self.spec.name}"
            hint = "set truncation and padding to null in the model folder's tokenizer.json"
            raise PipelineError("the tokenizer cuts or pads texts", cuts_or_pads, where=where, hint=hint)
        template = read_templates(tokenizer).pair
        counts: Counter[str] = Counter()

        max_question = min(MAX_QUESTION_TOKENS, (max_length - template.size) // 2)
        cut = QUESTION_CUT if max_question == MAX_QUESTION_TOKENS else QUESTION_CUT_MORE
        questions: list[np.ndarray] = []
        for encoding in _encodings(tokenizer, [example.question for example in examples]):
            questions.append(np.array(encoding.ids[:max_question], np.int32))
            counts[cut] += len(encoding.ids) > max_question

        # Several questions share a context: it is tokenised once.
        texts = list(dict.fromkeys(example.context for example in examples))
        contexts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for text, encoding in zip(texts, _encodings(tokenizer, texts), strict=True):
            offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
            contexts[text] = (np.array(encoding.ids, np.int32), offsets)

        # [CLS] and the first [SEP], in BERT's template.
        special_before_context = len(template.special_ids[0]) + len(template.special_ids[1])
        windows: list[ContextWindow] = []
        for index, (example, question) in enumerate(zip(examples, questions, strict=True)):
            _, offsets = contexts[example.context]
            counts[EMPTY_CONTEXT] += not len(offsets)
            counts[SHORT_CONTEXT] += 0 < len(offsets) < len(question)
            room = max_length - len(question) - template.size
            before = len(question) + special_before_context
            windows += _windows(index, example, offsets, room, before, counts)

        # A reason that was never found is not listed.
        reasons = dict(sorted((+counts).items()))
        for reason, count in reasons.items():
            log.info("%s: %d of %d questions: %s", self.spec.name, count, len(examples), reason)
        return _lay_out(windows, examples, questions, contexts, template, reasons)

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
        """Make predictions at the threshold: ``prediction`` is "" if the question has no answer.

        ``start`` and ``end`` are in the context's characters; ``confidence`` is the answer's share among the 20 best.
        """
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
        """Score predictions against the gold answers, and find the null threshold that is best for them."""
        rows = self.align(examples, predictions)
        texts = [row["prediction"] for row in rows]
        for value in texts:
            if not isinstance(value, str):
                raise self.not_a_prediction(value, 'an answer is a text, or "" for none')
        raw = self._values(examples, texts)
        is_text = np.array([bool(text) for text in texts])
        has_answer = np.array([bool(example.answers) for example in examples])
        differences = np.zeros(len(texts))
        threshold = None
        if self.spec.unanswerable:
            differences = self._null_score_differences(rows)
            threshold = find_null_threshold(raw["f1"], is_text, has_answer, differences)
        return AnswerScores(texts, raw, is_text, has_answer, differences, threshold)

    def _values(self, examples: Sequence[Question], texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Return ``f1`` and ``em``, from 0 to 1, [questions] each, of one text per question as its answer."""
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

    def _null_score_differences(self, rows: Rows) -> np.ndarray:
        for row in rows:
            value = row.get("null_score_difference")
            if schema_error(value, float):
                where = f"task {self.spec.name}, question {row['id']}"
                hint = "make the predictions again; without it no threshold can be applied"
                raise PipelineError("no null score difference", repr(value), where=where, hint=hint)
        return np.array([row["null_score_difference"] for row in rows], float)

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
        """Describe each answer, at the threshold of ``score``; ``text`` is the question and part of the context."""
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
        """Return the JSON files that SQuAD's evaluators read, name -> content; in 2.0 also null score differences.

        ``threshold`` is one found on another file. If it is None, the best for ``examples`` is taken, which must then
        be labelled.
        """
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
        """Return the best score, per metric, if all questions get the same answer: "" or a frequent gold answer."""
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
    """Return the part of the context around the first answer; if there is no answer, its beginning."""
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
    """Return the best span that spells ``text``; empty if there is none, as in a context without a token."""
    return next((span for span in row.get("nbest") or () if span["text"] == text), {})


@dataclass(frozen=True)
class ContextWindow:
    """Tokens ``first`` to ``last`` (exclusive) of a question's context, and their label; ``question`` is an index."""

    question: int
    first: int
    last: int
    label: tuple[int, int]


def _encodings(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Encoding]:
    # In batches: an encoding takes a hundred times the memory of its ids.
    for first in range(0, len(texts), TEXT_BATCH):
        yield from tokenizer.encode_batch(list(texts[first : first + TEXT_BATCH]), add_special_tokens=False)


def _windows(
    index: int, example: Question, offsets: np.ndarray, room: int, before: int, counts: Counter[str]
) -> list[ContextWindow]:
    """Make the windows of question ``index``: ``before`` tokens, then up to ``room`` tokens of the context."""
    spans = window_spans(len(offsets), room)
    gold = None
    if example.answers:
        gold, reason = gold_tokens(example.context, example.answers[0], offsets)
        if reason:
            counts[reason] += 1
    if gold is None:
        return [ContextWindow(index, first, last, (0, 0)) for first, last in spans]
    gold_first, gold_last = gold
    gold_length = gold_last - gold_first + 1
    counts[TOO_LONG] += gold_length > MAX_ANSWER_TOKENS
    windows = []
    is_whole = False
    for first, last in spans:
        label = (0, 0)
        if first <= gold_first and gold_last < last:
            # Counted from the start of the window's sequence, which opens with the question.
            label = (gold_first - first + before, gold_last - first + before)
            is_whole = True
        windows.append(ContextWindow(index, first, last, label))
    if not is_whole:
        counts[NO_WINDOW if gold_length > room else SPLIT] += 1
    return windows


def gold_tokens(context: str, answer: Answer, offsets: np.ndarray) -> tuple[tuple[int, int] | None, str]:
    """Return the first and last token that overlap an answer, or None; and what is wrong with the answer, or "".

    The tokens may spell more than the answer (``INSIDE_A_WORD``). There are no tokens if the answer is ``NOT_THERE``,
    or holds ``NO_TOKEN``. ``offsets``: where each token begins and ends (exclusive), in characters, [tokens, 2].
    """
    if not is_at_start(answer, context):
        return None, NOT_THERE
    answer_end = answer.start + len(answer.text)
    starts, ends = offsets.T
    # The first token that ends after the answer starts, and the last one that starts before it ends.
    first = int(np.searchsorted(ends, answer.start, side="right"))
    last = int(np.searchsorted(starts, answer_end, side="left")) - 1
    if first > last:
        return None, NO_TOKEN
    spelt = context[starts[first] : ends[last]]
    reason = "" if spelt == answer.text else INSIDE_A_WORD
    return (first, last), reason


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
    num_tokens = spans[-1][1]
    window = np.zeros(num_tokens, np.int64)
    most = np.full(num_tokens, -np.inf)
    for index, (first, last) in enumerate(spans):
        length = last - first
        # The third of five tokens has two before it and two after it: [0, 1, 2, 1, 0].
        before = np.arange(length)
        shorter_side = np.minimum(before, before[::-1])
        context = shorter_side + 0.01 * length
        better = context > most[first:last]
        most[first:last][better] = context[better]
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
    # Arrays of the final size: the 15 million tokens of training windows never exist as Python objects.
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
    # The windows of question q are numbers windows[q] to windows[q + 1].
    windows = np.searchsorted(features.example, np.arange(questions + 1))
    cls = features.cu_seqlens[:-1]
    null = outputs[cls].astype(float).sum(axis=1)
    lowest_null = np.minimum.reduceat(null, windows[:-1]).tolist()

    for start in range(0, questions, QUESTION_BATCH):
        stop = min(start + QUESTION_BATCH, questions)
        window, first, last, score = _candidates(features, outputs, windows[start], windows[stop], N_BEST)

        # Question by question, the highest score first. The sort is stable.
        question = features.example[window]
        order = np.lexsort((-score, question))
        next_question = np.searchsorted(question[order], np.arange(start + 1, stop))
        for index, spans in enumerate(np.split(order, next_question), start):
            # No start and end among the best of a window may be near enough: then all of them are tried.
            if len(spans):
                yield BestSpans(first[spans], last[spans], score[spans], lowest_null[index])
            else:
                begin, end = windows[index : index + 2]
                yield _best_of_all(features, outputs, begin, end, lowest_null[index])


def _candidates(
    features: SpanFeatures, outputs: np.ndarray, begin: int, end: int, n_best: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (window, first token, last token, score) of every span between the best starts and ends of a window.

    Windows are those from ``begin`` to ``end``. If ``n_best`` is None, all starts and ends of a window are tried.
    """
    lengths = np.diff(features.cu_seqlens[begin : end + 1])
    tokens = slice(features.cu_seqlens[begin], features.cu_seqlens[end])
    is_token = np.arange(lengths.max()) < lengths[:, None]

    def pad(values: np.ndarray, fill: float) -> np.ndarray:
        """Lay out values of all tokens as [windows, tokens of the longest window]."""
        padded = np.full(is_token.shape, fill)
        padded[is_token] = values
        return padded

    start_logits = pad(outputs[tokens, 0], -np.inf)
    end_logits = pad(outputs[tokens, 1], -np.inf)
    may_start = pad(features.may_start[tokens], False)
    may_end = pad(features.offsets[tokens, 1] > 0, False)

    # Positions in the window, the highest logit first: [windows, n_best].
    best_starts = np.argsort(-start_logits, axis=1, kind="stable")[:, :n_best]
    best_ends = np.argsort(-end_logits, axis=1, kind="stable")[:, :n_best]

    # Every start with every end of its window: [windows, starts, ends].
    distance = best_ends[:, None, :] - best_starts[:, :, None]
    is_span = (distance >= 0) & (distance < MAX_ANSWER_TOKENS)
    is_span &= np.take_along_axis(may_start, best_starts, 1)[:, :, None]
    is_span &= np.take_along_axis(may_end, best_ends, 1)[:, None, :]
    window, i, j = np.nonzero(is_span)

    first = best_starts[window, i]
    last = best_ends[window, j]
    score = start_logits[window, first] + end_logits[window, last]
    offset = features.cu_seqlens[begin + window]
    return begin + window, offset + first, offset + last, score


def _best_of_all(features: SpanFeatures, outputs: np.ndarray, begin: int, end: int, null: float) -> BestSpans:
    """Return the best span over the windows of a question; no span if the context has no token."""
    window, first, last, score = _candidates(features, outputs, begin, end, None)
    # Of equal scores, the earlier window is first, then the shorter span, then the earlier one.
    order = np.lexsort((first, last - first, window, -score))
    best = order[:1]
    return BestSpans(first[best], last[best], score[best], null)


def nbest_list(spans: BestSpans, context: str, offsets: np.ndarray, null: bool) -> list[Prediction]:
    """Return the 20 best spans with different texts as JSON-serialisable dictionaries.

    Each has ``text``, ``start`` and ``end`` in characters, ``score`` and ``probability``. With ``null``, the text ""
    (no answer) is included with the null score, at the end if it is not among the 20 best.
    """
    best: dict[str, dict[str, Any]] = {}
    starts = offsets[spans.first, 0].tolist()
    ends = offsets[spans.last, 1].tolist()
    for start, end, score in zip(starts, ends, spans.score.tolist(), strict=True):
        if len(best) == N_BEST:
            break
        text = context[start:end]
        if text:
            best.setdefault(text, {"text": text, "start": start, "end": end, "score": score})
    nbest = list(best.values())
    if null:
        better = sum(span["score"] >= spans.null for span in nbest)
        nbest.insert(better, {"text": "", "start": 0, "end": 0, "score": spans.null})
        # The null answer is listed even if 20 spans are better than it.
        if better < N_BEST:
            del nbest[N_BEST:]
    if nbest:
        scores = np.array([span["score"] for span in nbest])
        weights = np.exp(scores - scores[0])
        probabilities = weights / weights.sum()
        for span, probability in zip(nbest, probabilities.tolist(), strict=True):
            span["score"] = round(span["score"], 5)
            span["probability"] = round(probability, 6)
    return nbest
