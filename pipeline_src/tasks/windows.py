"""Windows over a context that is too long for one sequence, and the way back from tokens to its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding, Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import log
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.files.squad import Answer, Example, stands
from pipeline_src.tokenizer.frame import Frame, read_frames

WINDOW_STEP = 128  # from window start to window start; this and the next two as in google-research/bert, run_squad.py
QUESTION_TOKENS = 64
ANSWER_TOKENS = 30  # in a predicted answer at most
TEXTS = 1024  # encoded together

# What is counted of questions. Of the first answer, which is the one learnt:
NOT_THERE = "the answer is not in the context where the file says; learnt as no answer"
NO_TOKEN = "the answer holds no token; learnt as no answer"
INSIDE_A_WORD = "the answer begins or ends inside a token; learnt with the whole of it"
TOO_LONG = f"the answer is longer than the {ANSWER_TOKENS} tokens of a prediction"
NO_WINDOW = "the answer is longer than every window; learnt as no answer"
SPLIT = "the answer is whole in no window; learnt as no answer"
# Of the question and its context:
QUESTION_CUT = f"the question is cut to {QUESTION_TOKENS} tokens"
QUESTION_CUT_MORE = "the question is cut to half of the window"
EMPTY_CONTEXT = "the context holds no token"
SHORT_CONTEXT = "the context is shorter than the question, in tokens"


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


@dataclass(frozen=True)
class Window:
    """Tokens ``first`` to ``last`` (one past the end) of the context of question ``owner``, and the label there."""

    owner: int
    first: int
    last: int
    label: tuple[int, int]


def window_features(task: str, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> SpanFeatures:
    """Windows of ``max_length`` tokens: [CLS] question [SEP] part of the context [SEP].

    The label of a window is its first gold answer, or (0, 0), the [CLS] token, where that is not wholly inside.
    ``counts`` says of how many questions each of the reasons above holds.

    Raises:
        PipelineError: the tokenizer cuts or pads texts by itself, or puts no marks around them.
    """
    if tokenizer.truncation or tokenizer.padding:
        raise PipelineError(
            "the tokenizer cuts or pads texts by itself", tokenizer.truncation or tokenizer.padding,
            where=f"task {task}", remedy="set truncation and padding to null in the model folder's tokenizer.json",
        )  # fmt: skip
    frame = read_frames(tokenizer).pair
    before = len(frame.marks[0]) + len(frame.marks[1])  # marks before the context
    longest_question = min(QUESTION_TOKENS, (max_length - frame.size) // 2)
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
    windows: list[Window] = []
    for owner, (example, question) in enumerate(zip(examples, questions, strict=True)):
        offsets = contexts[example.context][1]
        counts[EMPTY_CONTEXT] += not len(offsets)
        counts[SHORT_CONTEXT] += 0 < len(offsets) < len(question)
        room = max_length - len(question) - frame.size
        windows += _label(owner, example, offsets, room, len(question) + before, counts)
    counts = +counts
    for reason, count in sorted(counts.items()):
        log.info("%s: %d of %d questions: %s", task, count, len(examples), reason)
    return _lay_out(windows, examples, questions, contexts, frame, dict(sorted(counts.items())))


def _encodings(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Encoding]:
    """Encode some at a time: an encoding takes a hundred times the room of its ids."""
    for first in range(0, len(texts), TEXTS):
        yield from tokenizer.encode_batch(list(texts[first : first + TEXTS]), add_special_tokens=False)


def _label(
    owner: int, example: Example, offsets: np.ndarray, room: int, before: int, counts: Counter[str]
) -> list[Window]:
    """The windows of one question, ``room`` tokens of the context in each, ``before`` tokens before them."""
    spans = window_spans(len(offsets), room)
    gold = None
    if example.answers:
        gold, reason = gold_tokens(example.context, example.answers[0], offsets)
        counts[reason] += bool(reason)
    if gold is None:
        return [Window(owner, *span, (0, 0)) for span in spans]
    first, last = gold
    counts[TOO_LONG] += last - first + 1 > ANSWER_TOKENS
    holds = [begin <= first and last < end for begin, end in spans]
    if not any(holds):
        counts[NO_WINDOW if last - first + 1 > room else SPLIT] += 1
    return [
        Window(owner, begin, end, (first - begin + before, last - begin + before) if whole else (0, 0))
        for (begin, end), whole in zip(spans, holds, strict=True)
    ]


def gold_tokens(context: str, answer: Answer, offsets: np.ndarray) -> tuple[tuple[int, int] | None, str]:
    """First and last token that overlap an answer, and a reason, "" if they give back the answer exactly.

    Args:
        context: the text.
        answer: of a question about it.
        offsets: of its tokens, in order, [tokens, 2].

    Returns:
        None in place of the tokens, with reason ``NOT_THERE`` or ``NO_TOKEN``, where there are none; else the reason
        may be ``INSIDE_A_WORD``.
    """
    if not stands(answer, context):
        return None, NOT_THERE
    end = answer.start + len(answer.text)
    first = int(np.searchsorted(offsets[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    if first > last:
        return None, NO_TOKEN
    exact = context[offsets[first, 0] : offsets[last, 1]] == answer.text
    return (first, last), "" if exact else INSIDE_A_WORD


def window_spans(tokens: int, room: int) -> list[tuple[int, int]]:
    """First token and one past the last of each window; the last window reaches the end."""
    step = min(WINDOW_STEP, room)
    spans = [(0, min(room, tokens))]
    while spans[-1][1] < tokens:
        first = spans[-1][0] + step
        spans.append((first, min(first + room, tokens)))
    return spans


def most_context(spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """For each token of a context, the window that gives it most context on its poorer side, int64 [tokens].

    A longer window is slightly preferred, and the earlier one among equals (run_squad.py, ``_check_is_max_context``).
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
    windows: Sequence[Window],
    examples: Sequence[Example],
    questions: Sequence[np.ndarray],
    contexts: dict[str, tuple[np.ndarray, np.ndarray]],
    frame: Frame,
    counts: dict[str, int],
) -> SpanFeatures:
    """Fill arrays of the final size; 15 million tokens of training windows never exist as Python objects."""
    owners = np.array([window.owner for window in windows], np.int64)
    lengths = [len(questions[window.owner]) + frame.size + window.last - window.first for window in windows]
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    before, between, after = (np.array(marks, np.int32) for marks in frame.marks)
    of_run = np.array(frame.segments, np.int8)
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
