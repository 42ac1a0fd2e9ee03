from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks import windows
from pipeline_src.tasks.files.squad import Answer, Example
from pipeline_src.tasks.windows import gold_tokens, most_context, window_features, window_spans

CONTEXT = "Ada  was born, in Paris."
LONG = " ".join(f"w{number}" for number in range(400))


def question(answer: str, start: int | None = None, context: str = CONTEXT, text: str = "where") -> Example:
    return Example("q", text, context, (Answer(answer, context.index(answer) if start is None else start),))


def transcription(spans: list[tuple[int, int]], number: int, position: int) -> bool:
    """The rule of run_squad.py, one window and one token at a time."""
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
def test_windows_and_their_tokens_are_those_of_run_squad(tokens: int, room: int):
    spans = window_spans(tokens, room)
    start, expected = 0, []  # the loop of run_squad.py
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
            assert (best[position] == number) == transcription(spans, number, position)


def test_what_lies_where(tokenizer: Tokenizer):
    example = question("w150", context=LONG, text="where was who")
    features = window_features("t", [example], tokenizer, 206)  # 200 tokens of context beside three of question
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


def test_questions_of_one_context_and_of_several_lie_side_by_side(tokenizer: Tokenizer):
    examples = [question("Paris"), question("w3", context=LONG), question("Ada", text="who was born"), question("in")]
    together = window_features("t", examples, tokenizer, 64)
    alone = [window_features("t", [example], tokenizer, 64) for example in examples]
    for name in ("ids", "segments", "offsets", "may_start", "labels"):
        joined = np.concatenate([getattr(features, name) for features in alone])
        np.testing.assert_array_equal(getattr(together, name), joined)
    assert np.bincount(together.example).tolist() == [features.items for features in alone]


@pytest.mark.parametrize(
    ("example", "length", "counts"),
    [
        (question("Paris"), 64, {}),
        (question("Paris", 3), 64, {windows.NOT_THERE: 1}),
        (question("Paris", -6), 64, {windows.NOT_THERE: 1}),
        (question("Paris", 9999), 64, {windows.NOT_THERE: 1}),
        (question("London", 18), 64, {windows.NOT_THERE: 1}),
        (question("", 3), 64, {windows.NOT_THERE: 1}),
        (question(" ", 4), 64, {windows.NO_TOKEN: 1}),
        (question("aris"), 64, {windows.INSIDE_A_WORD: 1}),
        (question("born, "), 64, {windows.INSIDE_A_WORD: 1}),
        (question("Paris", text=" ".join(["w1"] * 65)), 384, {windows.QUESTION_CUT: 1, windows.SHORT_CONTEXT: 1}),
        (question("Ada", text=" ".join(["w1"] * 20)), 31, {windows.QUESTION_CUT_MORE: 1, windows.SHORT_CONTEXT: 1}),
        (question("x", 0, context=""), 64, {windows.EMPTY_CONTEXT: 1, windows.NOT_THERE: 1}),
        (question("x", 0, context=" \n"), 64, {windows.EMPTY_CONTEXT: 1, windows.NOT_THERE: 1}),
        (question("w1", context="w1", text="where was"), 64, {windows.SHORT_CONTEXT: 1}),
        (question(LONG[: LONG.index(" w30")], 0, LONG), 384, {}),
        (question(LONG[: LONG.index(" w31")], 0, LONG), 384, {windows.TOO_LONG: 1}),
        (question(LONG[: LONG.index(" w21")], 0, LONG), 24, {windows.NO_WINDOW: 1}),
        (question("w19 w20", None, LONG), 24, {windows.SPLIT: 1}),
        (Example("q", "where", CONTEXT, ()), 64, {}),
    ],
)
def test_every_reason_is_counted(tokenizer: Tokenizer, example: Example, length: int, counts: dict[str, int]):
    features = window_features("t", [example] * 3, tokenizer, length)
    assert features.counts == {reason: 3 * count for reason, count in counts.items()}
    learnt = features.labels.any()
    lost = {windows.NOT_THERE, windows.NO_TOKEN, windows.NO_WINDOW, windows.SPLIT}
    assert learnt == (bool(example.answers) and not lost & counts.keys())


def test_pieces_of_a_word_are_learnt_as_the_whole_of_it(tokenizer: Tokenizer):
    offsets = np.array(tokenizer.encode(CONTEXT, add_special_tokens=False).offsets)
    found, reason = gold_tokens(CONTEXT, Answer("aris", 19), offsets)
    assert reason == windows.INSIDE_A_WORD
    assert found is not None and CONTEXT[offsets[found[0], 0] : offsets[found[1], 1]] == "Paris"


def test_a_tokenizer_that_cuts_texts_is_refused(tokenizer: Tokenizer):
    cutting = Tokenizer.from_str(tokenizer.to_str())
    cutting.enable_truncation(128)
    with pytest.raises(PipelineError, match="cuts or pads"):
        window_features("t", [question("Paris")], cutting, 64)


def test_texts_are_encoded_some_at_a_time(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    examples = [question("w3", context=f"{LONG} w{number}") for number in range(20)]
    whole = window_features("t", examples, tokenizer, 384)
    monkeypatch.setattr(windows, "TEXTS", 3)
    parts = window_features("t", examples, tokenizer, 384)
    for field in dataclasses.fields(whole):
        np.testing.assert_array_equal(getattr(parts, field.name), getattr(whole, field.name))


def test_features_take_little_more_than_their_arrays(tokenizer: Tokenizer):
    examples = [question("w3", context=f"{LONG} w{number % 40}") for number in range(4000)]  # 100 to a context
    window_features("t", examples[:1], tokenizer, 384)
    tracemalloc.start()
    features = window_features("t", examples, tokenizer, 384)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrays = [getattr(features, field.name) for field in dataclasses.fields(features)]
    size = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    assert len(features.ids) > 2_000_000
    assert peak < 1.5 * size
