"""Windows of SQuAD's contexts, compared with the loops of run_squad.py."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks import squad_windows as module
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.questions import Question
from pipeline_src.tasks.squad_windows import (
    EMPTY_CONTEXT,
    INSIDE_A_WORD,
    NO_TOKEN,
    NO_WINDOW,
    NOT_THERE,
    QUESTION_CUT,
    QUESTION_CUT_MORE,
    SHORT_CONTEXT,
    SPLIT,
    TOO_LONG,
    most_context,
    window_spans,
)
from tests.unit.tasks.conftest import CONTEXT, LONG, question

ONE = make_task(load_spec("squad1"))


def is_best_window(spans: list[tuple[int, int]], number: int, position: int) -> bool:
    """The rule of run_py, one window and one token at a time."""
    best_score, best_number = None, None
    for index, (start, past) in enumerate(spans):
        length = past - start
        end = start + length - 1
        if position < start or position > end:
            continue
        score = min(position - start, end - position) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best_number = score, index
    return best_number == number


@given(st.integers(0, 1500), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_window_spans_and_most_context_equal_run_squad(tokens: int, room: int):
    spans = window_spans(tokens, room)
    start, expected = 0, []  # the loop of run_py
    while start < tokens:
        length = min(tokens - start, room)
        expected.append((start, start + length))
        if start + length == tokens:
            break
        start += min(length, 128)
    assert spans == (expected or [(0, 0)])
    best = most_context(spans)
    assert len(best) == tokens
    for position in {*range(0, tokens, 7), *(p for first, last in spans for p in (first, last - 1) if tokens)}:
        for number in [i for i, (first, last) in enumerate(spans) if first <= position < last]:
            assert (best[position] == number) == is_best_window(spans, number, position)


def test_squad_features_arrays_equal_expected_values(tokenizer: Tokenizer):
    example = question("w150", context=LONG, text="where was who")
    features = ONE.features([example], tokenizer, 206)  # 200 tokens of context beside three of question
    words = [tokenizer.id_to_token(token) for token in features.ids.tolist()]
    context = LONG.split()
    expected, segments, offsets, labels = [], [], [], []
    for first, last in ((0, 200), (128, 328), (256, 400)):
        expected += ["[CLS]", "where", "was", "who", "[SEP]", *context[first:last], "[SEP]"]
        segments += [0] * 5 + [1] * (last - first + 1)
        places = [(LONG.index(f"{word} "), LONG.index(f"{word} ") + len(word)) for word in context[first : last - 1]]
        at = LONG.index(context[last - 1])
        offsets += [(0, 0)] * 5 + [*places, (at, at + len(context[last - 1])), (0, 0)]
        labels.append([150 - first + 5] * 2 if first <= 150 < last else [0, 0])
    assert words == expected
    assert features.segments.tolist() == segments
    assert features.offsets.tolist() == [list(pair) for pair in offsets]
    assert features.labels.tolist() == labels
    assert features.cu_seqlens.tolist() == [0, 206, 412, 562]
    assert features.counts == {}
    assert [array.dtype for array in (features.ids, features.segments, features.offsets)] == ["int32", "int8", "int32"]


def test_squad_features_of_many_questions_equal_features_of_each(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TEXT_BATCH", 3)
    examples = [
        question("Paris"),
        question("w3", context=LONG),
        question("Ada", text="who was born"),
        question("in"),
    ]
    together = ONE.features(examples, tokenizer, 64)
    alone = [ONE.features([example], tokenizer, 64) for example in examples]
    for name in ("ids", "segments", "offsets", "may_start", "labels"):
        joined = np.concatenate([getattr(features, name) for features in alone])
        np.testing.assert_array_equal(getattr(together, name), joined)
    assert np.bincount(together.example).tolist() == [features.items for features in alone]


@pytest.mark.parametrize(
    ("example", "length", "counts"),
    [
        (question("Paris"), 64, {}),
        (question("Paris", 3), 64, {NOT_THERE: 1}),
        (question("Paris", -6), 64, {NOT_THERE: 1}),
        (question("London", 18), 64, {NOT_THERE: 1}),
        (question("", 3), 64, {NOT_THERE: 1}),
        (question(" ", 4), 64, {NO_TOKEN: 1}),
        (question("aris"), 64, {INSIDE_A_WORD: 1}),
        (question("born, "), 64, {INSIDE_A_WORD: 1}),
        (question("Paris", text=" ".join(["w1"] * 65)), 384, {QUESTION_CUT: 1, SHORT_CONTEXT: 1}),
        (question("Ada", text=" ".join(["w1"] * 20)), 31, {QUESTION_CUT_MORE: 1, SHORT_CONTEXT: 1}),
        (question("x", 0, context=""), 64, {EMPTY_CONTEXT: 1, NOT_THERE: 1}),
        (question("w1", context="w1", text="where was"), 64, {SHORT_CONTEXT: 1}),
        (question(LONG[: LONG.index(" w30")], 0, LONG), 384, {}),
        (question(LONG[: LONG.index(" w31")], 0, LONG), 384, {TOO_LONG: 1}),
        (question(LONG[: LONG.index(" w21")], 0, LONG), 24, {NO_WINDOW: 1}),
        (question("w19 w20", None, LONG), 24, {SPLIT: 1}),
        (question(LONG[LONG.index("w1 ") : LONG.index(" w21")], None, LONG), 24, {SPLIT: 1}),  # 20 tokens
        (Question("q", "where", CONTEXT, ()), 64, {}),
    ],
)
def test_squad_features_every_drop_reason_is_counted(
    tokenizer: Tokenizer, example: Question, length: int, counts: dict[str, int]
):
    features = ONE.features([example] * 3, tokenizer, length)
    assert features.counts == {reason: 3 * count for reason, count in counts.items()}
    learnt = features.labels.any()
    lost = {NOT_THERE, NO_TOKEN, NO_WINDOW, SPLIT}
    assert learnt == (bool(example.answers) and not lost & counts.keys())
    if counts == {INSIDE_A_WORD: 1}:  # the whole words
        first, last = features.labels[0]
        text = example.context[features.offsets[first, 0] : features.offsets[last, 1]]
        assert text == {"aris": "Paris", "born, ": "born,"}[example.answers[0].text]


def test_squad_features_truncating_tokenizer_is_rejected(tokenizer: Tokenizer):
    truncating = Tokenizer.from_str(tokenizer.to_str())
    truncating.enable_truncation(128)
    with pytest.raises(PipelineError, match="truncates or pads"):
        ONE.features([question("Paris")], truncating, 64)


def test_squad_features_peak_memory_is_bounded(tokenizer: Tokenizer):
    examples = [question("w3", context=f"{LONG} w{number % 40}") for number in range(4000)]  # 100 to a context
    ONE.features(examples[:1], tokenizer, 384)
    tracemalloc.start()
    features = ONE.features(examples, tokenizer, 384)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrays = [getattr(features, field.name) for field in dataclasses.fields(features)]
    size = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    assert len(features.ids) > 2_000_000
    assert peak < 1.5 * size
