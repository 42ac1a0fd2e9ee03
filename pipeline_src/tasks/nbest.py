"""The spans of a context that score highest, and their texts: n-best lists as google-research/bert makes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_src.tasks.windows import ANSWER_TOKENS, SpanFeatures

BEST = 20  # starts and ends looked at in a window, and spans kept of a question: n_best_size in run_squad.py
QUESTIONS = 512  # looked at together; their windows are padded to the longest for that


@dataclass(frozen=True)
class BestSpans:
    """Spans of one question, the highest score first.

    Attributes:
        first: number of each span's first token in ``features.ids``, [spans].
        last: of its last token, [spans].
        score: start score of the first plus end score of the last, float64 [spans].
        null: the least score of [CLS] as start and end over the question's windows.
    """

    first: np.ndarray
    last: np.ndarray
    score: np.ndarray
    null: float


def find_spans(features: SpanFeatures, outputs: np.ndarray, questions: int) -> Iterator[BestSpans]:
    """Yield the spans of each question in turn.

    A span joins one of the 20 best starts of a window with one of its 20 best ends; both must be in the context, the
    first token in the window that gives it most context, and the span no longer than 30 tokens (run_squad.py,
    ``write_predictions``). Equal scores keep the order of windows, starts and ends. Where that leaves nothing, and
    run_squad.py would answer "empty", it is the best span of all that the last conditions allow.

    Args:
        features: of the file; items in the order of the questions.
        outputs: start and end score of every token, [tokens, 2].
        questions: how many there are.
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
    """The one best span of a question's windows; none where the context has no token."""
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
    """The first 20 spans of different texts: ``text``, ``start`` and ``end`` in characters, ``score``, ``probability``.

    Args:
        spans: of one question.
        context: what the offsets count in.
        offsets: of every token, [tokens, 2].
        null: put "", no answer, among them, with its score; last where it is not among the first 20.
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
