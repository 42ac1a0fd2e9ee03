"""Windows over a context that is too long for one sequence, and the way back from tokens to its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding, Tokenizer

from pipeline_src.progress import log
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.sequences import Specials, frame
from pipeline_src.tasks.squad import Example

WINDOW_STEP = 128  # from window start to window start; this and the next as in google-research/bert, run_squad.py
QUESTION_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Features with the way back to the text.

    Attributes:
        offsets: first character of each token in its context and the one after its last, int32 [tokens, 2];
            (0, 0) outside the context.
        may_start: whether an answer may begin at the token in this window, bool [tokens].
    """

    offsets: np.ndarray
    may_start: np.ndarray


def window_features(task: str, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> SpanFeatures:
    """Windows of ``max_length`` tokens: [CLS] question [SEP] part of the context [SEP].

    The label of a window is its first gold answer, or (0, 0), the [CLS] token, where that is not wholly inside.
    """
    specials = Specials.of(tokenizer)
    questions = tokenizer.encode_batch([example.question for example in examples], add_special_tokens=False)
    texts = list(dict.fromkeys(example.context for example in examples))  # several questions share a context
    contexts = dict(zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True))
    longest_question = min(QUESTION_TOKENS, (max_length - 3) // 2)

    ids: list[int] = []
    segments: list[int] = []
    starts, labels, owners = [0], [], []
    offsets: list[tuple[int, int]] = []
    may_start: list[bool] = []
    counts: Counter[str] = Counter()
    for number, (example, encoding) in enumerate(zip(examples, questions, strict=True)):
        question = encoding.ids[:longest_question]
        counts["questions cut"] += len(encoding.ids) > longest_question
        context = contexts[example.context]
        gold = _gold_tokens(example, context, counts)
        room = max_length - len(question) - 3
        before = len(question) + 2
        spans = _windows(len(context.ids), room)
        for window, (first, last) in enumerate(spans):
            framed = frame(question, context.ids[first:last], specials)
            ids += framed[0]
            segments += framed[1]
            starts.append(len(ids))
            offsets += [(0, 0)] * before + context.offsets[first:last] + [(0, 0)]
            best = _most_context(spans, window)
            may_start += [False] * before + best + [False]
            inside = gold is not None and first <= gold[0] and gold[1] < last
            labels.append((gold[0] - first + before, gold[1] - first + before) if gold and inside else (0, 0))
            owners.append(number)
    for reason, count in sorted((+counts).items()):
        log.info("%s: %d of %d examples: %s", task, count, len(examples), reason)
    return SpanFeatures(
        ids=np.array(ids, np.int32),
        segments=np.array(segments, np.int8),
        starts=np.array(starts, np.int64),
        labels=np.array(labels, np.int64).reshape(-1, 2),
        example=np.array(owners, np.int64),
        offsets=np.array(offsets, np.int32).reshape(-1, 2),
        may_start=np.array(may_start, bool),
    )


def _windows(tokens: int, room: int) -> list[tuple[int, int]]:
    """First token and one past the last of each window; the last window reaches the end."""
    step = min(WINDOW_STEP, room)
    spans = [(0, min(room, tokens))]
    while spans[-1][1] < tokens:
        first = spans[-1][0] + step
        spans.append((first, min(first + room, tokens)))
    return spans


def _most_context(spans: list[tuple[int, int]], window: int) -> list[bool]:
    """For each token of a window, whether no other window gives it more context on its poorer side.

    A longer window is slightly preferred, and the earlier one among equals.
    """
    token = np.arange(*spans[window])
    poorer = [
        np.where((first <= token) & (token < last), np.minimum(token - first, last - 1 - token), -last)
        + 0.01 * (last - first)
        for first, last in spans
    ]
    return (np.argmax(poorer, axis=0) == window).tolist()  # type: ignore[no-any-return]


def _gold_tokens(example: Example, context: Encoding, counts: Counter[str]) -> tuple[int, int] | None:
    """First and last token that overlap the first gold answer; None where there is none."""
    if not example.answers:
        return None
    answer = example.answers[0]
    end = answer.start + len(answer.text)
    if not answer.text or example.context[answer.start : end] != answer.text:
        counts["the answer does not stand where the file says; learnt as no answer"] += 1
        return None
    inside = [i for i, (left, right) in enumerate(context.offsets) if left < end and right > answer.start]
    if not inside:
        counts["the answer holds no token; learnt as no answer"] += 1
        return None
    return inside[0], inside[-1]
