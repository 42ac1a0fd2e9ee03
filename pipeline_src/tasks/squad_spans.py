"""Search for the best answer spans, given start and end logits, as in google-research/bert's run_squad.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_src.tasks.features import SpanFeatures
from pipeline_src.tasks.task import Prediction

# As in run_squad.py. N_BEST is the number of start positions and of end positions that are tried per window. It is also
# the number of spans that are kept per question.
MAX_ANSWER_TOKENS = 30
N_BEST = 20

# Number of questions whose spans are in memory at once.
QUESTION_BATCH = 512


@dataclass(frozen=True)
class BestSpans:
    """Answer spans of one question, in order of decreasing score.

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
    """Yield the best spans of each question, in the order of the questions.

    A span starts at one of a window's 20 best start tokens and ends at one of its 20 best end tokens. As in
    ``write_predictions`` of run_squad.py, these conditions hold:

    - Both tokens are in the context.
    - The window is the one with the most context around the start token.
    - The span has at most 30 tokens.

    Spans with equal scores keep the order of windows, start tokens and end tokens. If no span of a question meets the
    conditions, run_squad.py answers "empty". Here, all start and end tokens are then tried under the same conditions.

    Args:
        outputs: start and end logits of every token, [tokens, 2].
        questions: number of questions.
    """
    # The windows of question q are those from windows[q] to windows[q + 1] (exclusive).
    windows = np.searchsorted(features.example, np.arange(questions + 1))
    cls = features.cu_seqlens[:-1]
    null = outputs[cls].astype(float).sum(axis=1)
    lowest_null = np.minimum.reduceat(null, windows[:-1]).tolist()

    for start in range(0, questions, QUESTION_BATCH):
        stop = min(start + QUESTION_BATCH, questions)
        window, first, last, score = _candidates(features, outputs, windows[start], windows[stop], N_BEST)

        # Sort by question, then by decreasing score. The sort is stable.
        question = features.example[window]
        order = np.lexsort((-score, question))
        next_question = np.searchsorted(question[order], np.arange(start + 1, stop))
        for index, spans in enumerate(np.split(order, next_question), start):
            # If all best start tokens are too far from all best end tokens, the question has no span yet.
            if len(spans):
                yield BestSpans(first[spans], last[spans], score[spans], lowest_null[index])
            else:
                begin, end = windows[index : index + 2]
                yield _best_of_all(features, outputs, begin, end, lowest_null[index])


def _candidates(
    features: SpanFeatures, outputs: np.ndarray, begin: int, end: int, n_best: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    # Returns arrays (window, first token, last token, score) of all valid spans in the windows from `begin` to `end`
    # (exclusive). In each window, the `n_best` start tokens and end tokens are tried, or all tokens if it is None.
    lengths = np.diff(features.cu_seqlens[begin : end + 1])
    tokens = slice(features.cu_seqlens[begin], features.cu_seqlens[end])
    is_token = np.arange(lengths.max()) < lengths[:, None]

    def pad(values: np.ndarray, fill: float) -> np.ndarray:
        # [tokens] -> [windows, tokens of the longest window].
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

    # Combine every start with every end of the same window: [windows, starts, ends].
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
    # Returns the single best span over all start and end tokens; no span if the context has no tokens.
    window, first, last, score = _candidates(features, outputs, begin, end, None)
    # If scores are equal, the earlier window wins, then the shorter span, then the earlier start.
    order = np.lexsort((first, last - first, window, -score))
    best = order[:1]
    return BestSpans(first[best], last[best], score[best], null)


def nbest_list(spans: BestSpans, context: str, offsets: np.ndarray, null: bool) -> list[Prediction]:
    # Returns the 20 best spans with different texts, as JSON values; `start` and `end` are character offsets. If `null`
    # is true, the list includes the text "" (no answer) with the null score: in order of score, or as the 21st entry
    # if 20 spans are better.
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
        # If 20 spans are better than the null answer, it stays in the list as the 21st entry.
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
