"""Model inputs of SQuAD: windows with a question and a part of its context, as in google-research/bert."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from tokenizers import Encoding, Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import log
from pipeline_src.tasks.features import SpanFeatures
from pipeline_src.tasks.questions import Answer, Question, is_at_start
from pipeline_src.tasks.squad_spans import MAX_ANSWER_TOKENS
from pipeline_src.tokenizer.special_tokens import Template, read_templates

# As in run_squad.py.
DOC_STRIDE = 128
MAX_QUESTION_TOKENS = 64

# Number of texts that are tokenised at once. The encodings of all texts together would need too much memory.
TEXT_BATCH = 1024

# Counted problems of the first gold answer, which is the one that the model is trained on.
NOT_THERE = "the answer is not in the context where the file says"
NO_TOKEN = "the answer holds no token; learnt as no answer"
INSIDE_A_WORD = "the answer begins or ends inside a token; learnt with the whole of it"
TOO_LONG = f"the answer is longer than the {MAX_ANSWER_TOKENS} tokens of a prediction"
NO_WINDOW = "the answer is longer than every window; learnt as no answer"
SPLIT = "the answer is whole in no window; learnt as no answer"
# Counted problems of the question and its context.
QUESTION_CUT = f"the question is cut to {MAX_QUESTION_TOKENS} tokens"
QUESTION_CUT_MORE = "the question is cut to half of the window"
EMPTY_CONTEXT = "the context holds no token"
SHORT_CONTEXT = "the context is shorter than the question, in tokens"


def window_features(task: str, examples: Sequence[Question], tokenizer: Tokenizer, max_length: int) -> SpanFeatures:
    """Make windows of at most ``max_length`` tokens: [CLS] question [SEP] part of the context [SEP].

    The label of a window is the first and last token of the question's first gold answer. It is (0, 0), the [CLS]
    token, if the window does not contain the whole answer.
    """
    cuts_or_pads = tokenizer.truncation or tokenizer.padding
    if cuts_or_pads:
        where = f"task {task}"
        hint = "set truncation and padding to null in the model folder's tokenizer.json"
        raise PipelineError("the tokenizer truncates or pads texts", cuts_or_pads, where=where, hint=hint)
    template = read_templates(tokenizer).pair
    counts: Counter[str] = Counter()

    max_question = min(MAX_QUESTION_TOKENS, (max_length - template.size) // 2)
    cut = QUESTION_CUT if max_question == MAX_QUESTION_TOKENS else QUESTION_CUT_MORE
    questions: list[np.ndarray] = []
    for encoding in _encodings(tokenizer, [example.question for example in examples]):
        questions.append(np.array(encoding.ids[:max_question], np.int32))
        counts[cut] += len(encoding.ids) > max_question

    # A context that several questions share is tokenised once.
    texts = list(dict.fromkeys(example.context for example in examples))
    contexts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for text, encoding in zip(texts, _encodings(tokenizer, texts), strict=True):
        offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
        contexts[text] = (np.array(encoding.ids, np.int32), offsets)

    # In BERT's template, these are [CLS] and the first [SEP].
    special_before_context = len(template.special_ids[0]) + len(template.special_ids[1])
    windows: list[ContextWindow] = []
    for index, (example, question) in enumerate(zip(examples, questions, strict=True)):
        _, offsets = contexts[example.context]
        counts[EMPTY_CONTEXT] += not len(offsets)
        counts[SHORT_CONTEXT] += 0 < len(offsets) < len(question)
        room = max_length - len(question) - template.size
        before = len(question) + special_before_context
        windows += _windows(index, example, offsets, room, before, counts)

    # Unary plus drops reasons with a count of 0.
    reasons = dict(sorted((+counts).items()))
    for reason, count in reasons.items():
        log.info("%s: %d of %d questions: %s", task, count, len(examples), reason)
    return _lay_out(windows, examples, questions, contexts, template, reasons)


@dataclass(frozen=True)
class ContextWindow:
    # The tokens from `first` to `last` (exclusive) of a context. `question` is the index of the question.

    question: int
    first: int
    last: int
    label: tuple[int, int]


def _encodings(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Encoding]:
    # Texts are encoded in batches, because an encoding takes a hundred times the memory of its ids.
    for first in range(0, len(texts), TEXT_BATCH):
        yield from tokenizer.encode_batch(list(texts[first : first + TEXT_BATCH]), add_special_tokens=False)


def _windows(
    index: int, example: Question, offsets: np.ndarray, room: int, before: int, counts: Counter[str]
) -> list[ContextWindow]:
    # `before`: number of tokens before the context in each window. `room`: maximum number of context tokens.
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
            # Positions are counted from the start of the window's sequence, where [CLS] is 0.
            label = (gold_first - first + before, gold_last - first + before)
            is_whole = True
        windows.append(ContextWindow(index, first, last, label))
    if not is_whole:
        counts[NO_WINDOW if gold_length > room else SPLIT] += 1
    return windows


def gold_tokens(context: str, answer: Answer, offsets: np.ndarray) -> tuple[tuple[int, int] | None, str]:
    # Returns ((first, last token that overlap the answer), problem). The problem is "" if the tokens spell exactly the
    # answer, or INSIDE_A_WORD if they spell more. The tokens are None if the problem is NOT_THERE or NO_TOKEN.
    # `offsets`: where each token begins and ends (exclusive), in characters, [tokens, 2].
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
    # Returns (first token, last token) for each window. The last token is exclusive.
    step = min(DOC_STRIDE, room)
    spans = [(0, min(room, tokens))]
    while spans[-1][1] < tokens:
        first = spans[-1][0] + step
        spans.append((first, min(first + room, tokens)))
    return spans


def most_context(spans: Sequence[tuple[int, int]]) -> np.ndarray:
    # Returns, for each token, the index of the window that shows the most context on the token's shorter side. A longer
    # window gets a small bonus. The earlier of two equal windows wins (run_squad.py, `_check_is_max_context`).
    num_tokens = spans[-1][1]
    window = np.zeros(num_tokens, np.int64)
    most = np.full(num_tokens, -np.inf)
    for index, (first, last) in enumerate(spans):
        length = last - first
        # Number of tokens on the shorter side of each token. In a window of five tokens: [0, 1, 2, 1, 0].
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
    # Arrays of the final size are filled in place, so that the 15 million tokens of SQuAD's training windows never
    # exist as Python objects.
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
