from __future__ import annotations

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks import squad
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.readers import Answer, Question
from pipeline_src.tasks.squad import (
    SpanFeatures,
    find_spans,
    most_context,
    nbest_list,
    window_spans,
)

ONE, TWO = make_task(load_spec("squad1")), make_task(load_spec("squad2"))
CONTEXT = "Ada  was born, in Paris."
ADA = Question("q0", "Where was who born?", CONTEXT, (Answer("Paris", 18), Answer("in Paris", 15)))
LONG = " ".join(f"w{number}" for number in range(400))


def long(answer: str) -> Question:
    return Question("long", "where", LONG, (Answer(answer, f" {LONG}".index(f" {answer}")),))


def oracle(features: squad.SpanFeatures) -> np.ndarray:
    """Outputs that know the labels."""
    outputs = np.zeros((len(features.ids), 2), np.float32)
    for item, (first, last) in enumerate(features.labels):
        outputs[features.cu_seqlens[item] + first, 0] += 5
        outputs[features.cu_seqlens[item] + last, 1] += 5
    return outputs


def test_squad_features_labels_map_back_to_text(tokenizer: Tokenizer):
    features = ONE.features([ADA], tokenizer, 64)
    first, last = features.labels[0]
    words = [tokenizer.id_to_token(int(token)) for token in features.ids]
    assert words[:7] == "[CLS] where was who born ? [SEP]".split()
    assert words[first : last + 1] == ["paris"]
    assert features.segments[first] == 1
    (row,) = ONE.predict([ADA], features, oracle(features))
    assert row.keys() == {"id", "prediction", "nbest"}
    assert (row["id"], row["prediction"], len(row["nbest"])) == ("q0", "Paris", 20)
    best = row["nbest"][0]
    assert (best["text"], best["start"], best["end"], best["score"]) == ("Paris", 18, 23, 10.0)


def test_squad_features_small_windows_cover_every_token(tokenizer: Tokenizer):
    example = long("w399")
    features = ONE.features([example], tokenizer, 16)
    seen = {tuple(offset) for offset in features.offsets.tolist()} - {(0, 0)}
    assert len(seen) == 400
    assert ONE.predict([example], features, oracle(features))[0]["prediction"] == "w399"


def test_squad2_predict_unanswerable_by_null_score(tokenizer: Tokenizer):
    examples = [ADA, Question("q1", "Who?", CONTEXT, ())]
    features = TWO.features(examples, tokenizer, 64)
    assert features.labels[1].tolist() == [0, 0]
    rows = TWO.predict(examples, features, oracle(features))
    assert rows[0]["prediction"] == "Paris"
    assert rows[1]["prediction"] != ""  # the threshold is applied when all are there
    assert [row["null_score_difference"] for row in rows] == [-10.0, 10.0]
    assert [row["nbest"][0]["text"] for row in rows] == ["Paris", ""]
    scores = TWO.score("squad2", examples, rows)
    thresholds = scores.pop("threshold"), scores.pop("best_em_threshold")
    assert thresholds == (-10.0, -10.0) and len(scores) == 9 and set(scores.values()) == {100.0}


FOUR = [
    Question("a", "?", CONTEXT, (Answer("Paris", 18),)),
    Question("b", "?", CONTEXT, (Answer("in Paris", 15),)),
    Question("c", "?", CONTEXT, ()),
    Question("d", "?", CONTEXT, (Answer("Ada", 0),)),
]
ROWS = [
    {"id": "d", "prediction": "Ada", "null_score_difference": 3.0},
    {"id": "c", "prediction": "born", "null_score_difference": 1.5},
    {"id": "b", "prediction": "Paris", "null_score_difference": 0.5},
    {"id": "a", "prediction": "Paris", "null_score_difference": -2.0},
]


def test_squad2_score_threshold_maximises_f1():
    scores = TWO.score("squad2", FOUR, ROWS)
    assert scores == {
        "f1": pytest.approx(100 * (1 + 2 / 3 + 1) / 4),
        "em": 50.0,
        "threshold": 0.5,  # the best for exact match is lower
        "f1_at_zero": 50.0,
        "em_at_zero": 50.0,
        "HasAns_f1": pytest.approx(100 * (1 + 2 / 3) / 3),
        "HasAns_em": pytest.approx(100 / 3),
        "NoAns_f1": 100.0,
        "NoAns_em": 100.0,
        "best_em": 50.0,
        "best_em_threshold": -2.0,
    }
    without = TWO.score("squad2", FOUR[:2] + FOUR[3:], [ROWS[0], *ROWS[2:]])
    assert "NoAns_f1" not in without and without["threshold"] == 3.0


def test_squad2_example_results_apply_threshold():
    rows = [row | {"nbest": [{"text": "", "probability": 0.25}, {"text": "Paris", "probability": 0.5}]} for row in ROWS]
    example_results = TWO.example_results("squad2", FOUR, rows)
    assert [result.id for result in example_results] == ["a", "b", "c", "d"]
    assert [result.predicted for result in example_results] == ["Paris", "Paris", "", ""]
    assert [result.gold for result in example_results] == ["Paris", "in Paris", "", "Ada"]
    assert [result.right for result in example_results] == pytest.approx([1.0, 2 / 3, 1.0, 0.0])
    assert [result.confidence for result in example_results] == [0.5, 0.5, 0.25, 0.25]
    assert example_results[0].text == "? ||| Ada was born, in Paris."
    assert example_results[0].words == 6
    assert 100 * np.mean([result.right for result in example_results]) == pytest.approx(
        TWO.score("squad2", FOUR, rows)["f1"]
    )
    assert TWO.example_results("squad2", FOUR, ROWS)[0].confidence is None


@pytest.mark.parametrize("answer", ["w0", "w7", "w200", "w399"])
def test_squad_example_results_show_text_around_answer(answer: str):
    (result,) = ONE.example_results("squad1", [long(answer)], [{"id": "long", "prediction": "w1"}])
    shown = result.text.removeprefix("where ||| ")
    assert answer in shown.split()
    assert 290 <= len(shown) <= 304
    assert shown.startswith("w0 ") == (answer in ("w0", "w7")) and shown.endswith("w399") == (answer == "w399")
    assert result.words == 401


def test_squad2_submission_applies_threshold():
    files = TWO.submission("squad2", FOUR, ROWS)
    assert {name: json.loads(text) for name, text in files.items()} == {
        "squad2_predictions.json": {"a": "Paris", "b": "Paris", "c": "", "d": ""},
        "squad2_null_odds.json": {"a": -2.0, "b": 0.5, "c": 1.5, "d": 3.0},
    }
    given = TWO.submission("squad2", FOUR, ROWS, threshold=1.5)["squad2_predictions.json"]
    assert json.loads(given) == {"a": "Paris", "b": "Paris", "c": "born", "d": ""}
    assert ONE.submission("squad1", [ADA], [{"id": "q0", "prediction": "naïve"}]) == {
        "squad1_predictions.json": '{\n  "q0": "naïve"\n}\n'
    }


@pytest.mark.parametrize("value", [None, float("nan"), 10**400, "0.5", True, ...])
def test_squad2_score_without_null_score_difference_is_rejected(value: object):
    rows = [row | {"null_score_difference": value} for row in ROWS]
    if value is ...:
        rows = [{"id": row["id"], "prediction": row["prediction"]} for row in ROWS]
    with pytest.raises(PipelineError, match="no null score difference"):
        TWO.score("squad2", FOUR, rows)


def test_squad_predict_empty_context_has_empty_answer(tokenizer: Tokenizer):
    example = Question("q", "where", "", (Answer("x", 0),))
    features = ONE.features([example], tokenizer, 64)
    assert ONE.predict([example], features, oracle(features)) == [{"id": "q", "prediction": "", "nbest": []}]
    (row,) = TWO.predict([example], features, oracle(features))
    assert (row["prediction"], row["null_score_difference"]) == ("", 0.0)


def test_squad_majority_baseline_is_best_constant_answer():
    examples = [
        Question("a", "?", "x y", (Answer("x", 0), Answer("x y", 0))),
        Question("b", "?", "x y", (Answer("the x", 0),)),
        Question("c", "?", "x y", (Answer("y", 2),)),
        Question("d", "?", "x y", ()),
    ]
    # "x" gets a and b exactly; "x y" gets a, and two thirds of b and of c
    assert TWO.majority_baseline("squad2", examples) == {"f1": pytest.approx(100 * (1 + 4 / 3) / 4), "em": 50.0}
    assert TWO.majority_baseline("squad2", examples[2:]) == {"f1": 50.0, "em": 50.0}
    assert ONE.majority_baseline("squad1", examples[:3])["em"] == pytest.approx(200 / 3)


def where_question(answer: str, start: int | None = None, context: str = CONTEXT, text: str = "where") -> Question:
    return Question("q", text, context, (Answer(answer, context.index(answer) if start is None else start),))


def is_best_window(spans: list[tuple[int, int]], number: int, position: int) -> bool:
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
def test_window_spans_and_most_context_equal_run_squad(tokens: int, room: int):
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
            assert (best[position] == number) == is_best_window(spans, number, position)


def test_squad_features_arrays(tokenizer: Tokenizer):
    example = where_question("w150", context=LONG, text="where was who")
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


def test_squad_features_together_equal_features_alone(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(squad, "TEXT_BATCH", 3)
    examples = [
        where_question("Paris"),
        where_question("w3", context=LONG),
        where_question("Ada", text="who was born"),
        where_question("in"),
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
        (where_question("Paris"), 64, {}),
        (where_question("Paris", 3), 64, {squad.NOT_THERE: 1}),
        (where_question("Paris", -6), 64, {squad.NOT_THERE: 1}),
        (where_question("London", 18), 64, {squad.NOT_THERE: 1}),
        (where_question("", 3), 64, {squad.NOT_THERE: 1}),
        (where_question(" ", 4), 64, {squad.NO_TOKEN: 1}),
        (where_question("aris"), 64, {squad.INSIDE_A_WORD: 1}),
        (where_question("born, "), 64, {squad.INSIDE_A_WORD: 1}),
        (where_question("Paris", text=" ".join(["w1"] * 65)), 384, {squad.QUESTION_CUT: 1, squad.SHORT_CONTEXT: 1}),
        (where_question("Ada", text=" ".join(["w1"] * 20)), 31, {squad.QUESTION_CUT_MORE: 1, squad.SHORT_CONTEXT: 1}),
        (where_question("x", 0, context=""), 64, {squad.EMPTY_CONTEXT: 1, squad.NOT_THERE: 1}),
        (where_question("w1", context="w1", text="where was"), 64, {squad.SHORT_CONTEXT: 1}),
        (where_question(LONG[: LONG.index(" w30")], 0, LONG), 384, {}),
        (where_question(LONG[: LONG.index(" w31")], 0, LONG), 384, {squad.TOO_LONG: 1}),
        (where_question(LONG[: LONG.index(" w21")], 0, LONG), 24, {squad.NO_WINDOW: 1}),
        (where_question("w19 w20", None, LONG), 24, {squad.SPLIT: 1}),
        (where_question(LONG[LONG.index("w1 ") : LONG.index(" w21")], None, LONG), 24, {squad.SPLIT: 1}),  # 20 tokens
        (Question("q", "where", CONTEXT, ()), 64, {}),
    ],
)
def test_squad_features_every_drop_reason_is_counted(
    tokenizer: Tokenizer, example: Question, length: int, counts: dict[str, int]
):
    features = ONE.features([example] * 3, tokenizer, length)
    assert features.counts == {reason: 3 * count for reason, count in counts.items()}
    learnt = features.labels.any()
    lost = {squad.NOT_THERE, squad.NO_TOKEN, squad.NO_WINDOW, squad.SPLIT}
    assert learnt == (bool(example.answers) and not lost & counts.keys())
    if counts == {squad.INSIDE_A_WORD: 1}:  # the whole words
        first, last = features.labels[0]
        text = example.context[features.offsets[first, 0] : features.offsets[last, 1]]
        assert text == {"aris": "Paris", "born, ": "born,"}[example.answers[0].text]


def test_squad_features_truncating_tokenizer_is_rejected(tokenizer: Tokenizer):
    truncating = Tokenizer.from_str(tokenizer.to_str())
    truncating.enable_truncation(128)
    with pytest.raises(PipelineError, match="cuts or pads"):
        ONE.features([where_question("Paris")], truncating, 64)


def test_squad_features_peak_memory_is_bounded(tokenizer: Tokenizer):
    examples = [where_question("w3", context=f"{LONG} w{number % 40}") for number in range(4000)]  # 100 to a context
    ONE.features(examples[:1], tokenizer, 384)
    tracemalloc.start()
    features = ONE.features(examples, tokenizer, 384)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrays = [getattr(features, field.name) for field in dataclasses.fields(features)]
    size = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    assert len(features.ids) > 2_000_000
    assert peak < 1.5 * size


WORDS = " ".join(f"w{number}" for number in range(300))


def run_squad_nbest(
    features: SpanFeatures, outputs: np.ndarray, question: int, context: str, void: bool
) -> list[tuple]:
    """What run_squad.py does for one question, a pair of tokens at a time: texts and scores, best first."""
    outcome, null = [], 1e6
    for item in np.flatnonzero(features.example == question).tolist():
        begin, end = features.cu_seqlens[item], features.cu_seqlens[item + 1]
        scores = outputs[begin:end].tolist()
        null = min(null, scores[0][0] + scores[0][1])
        ranked = [
            [i for i, _ in sorted(enumerate(scores), key=lambda pair: pair[1][side], reverse=True)][:20]
            for side in (0, 1)
        ]
        for first in ranked[0]:
            for last in ranked[1]:
                inside = features.offsets[begin + first, 1] > 0 and features.offsets[begin + last, 1] > 0
                if not inside or not features.may_start[begin + first]:
                    continue
                if last < first or last - first + 1 > 30:
                    continue
                left, right = features.offsets[begin + first, 0], features.offsets[begin + last, 1]
                outcome.append((scores[first][0] + scores[last][1], context[left:right]))
    if void:
        outcome.append((null, ""))
    best: dict[str, float] = {}
    for score, text in sorted(outcome, key=lambda pair: pair[0], reverse=True):
        if len(best) < 20:
            best.setdefault(text, score)
    if void:
        best.setdefault("", null)
    return list(best.items())


@given(st.integers(0, 2**32), st.sampled_from([24, 60, 384]), st.booleans(), st.booleans())
@settings(max_examples=25, deadline=None)
def test_find_spans_and_nbest_equal_run_squad(tokenizer: Tokenizer, seed: int, length: int, void: bool, even: bool):
    rng = np.random.default_rng(seed)
    # words come back, so that different spans have one text
    contexts = [" ".join(f"w{n}" for n in rng.integers(0, 30, size=rng.integers(1, 300))) for _ in range(4)]
    examples = [Question(str(i), "where was", contexts[i % 4], ()) for i in range(6)]
    features = ONE.features(examples, tokenizer, length)
    outputs = rng.normal(size=(len(features.ids), 2)).astype(np.float32) * 3
    if even:
        outputs = outputs.round()  # many equal scores
    for number, outcome in enumerate(find_spans(features, outputs, len(examples))):
        context = examples[number].context
        expected = run_squad_nbest(features, outputs, number, context, void)
        spans = nbest_list(outcome, context, features.offsets, void)
        if not [text for text, _ in expected if text]:
            assert len([span for span in spans if span["text"]]) == 1  # run_squad.py says "empty"
            continue
        assert [span["text"] for span in spans] == [text for text, _ in expected]
        np.testing.assert_allclose([span["score"] for span in spans], [score for _, score in expected], atol=1e-5)
        weights = np.exp([score for _, score in expected])
        np.testing.assert_allclose([span["probability"] for span in spans], weights / weights.sum(), atol=1e-6)
        assert all(context[span["start"] : span["end"]] == span["text"] for span in spans)


def test_find_spans_disjoint_top_starts_and_ends_take_best_span(tokenizer: Tokenizer):
    example = Question("q", "where", WORDS, (Answer("w1", 3),))
    features = ONE.features([example], tokenizer, 384)
    outputs = np.zeros((len(features.ids), 2))
    outputs[200:230, 0] = 5.0
    outputs[10:40, 1] = 5.0  # all best ends lie before all best starts
    outputs[100, 0], outputs[105, 1] = 4.0, 4.0
    (outcome,) = find_spans(features, outputs, 1)
    spans = nbest_list(outcome, WORDS, features.offsets, False)
    bounds = {"start": WORDS.index("w97"), "end": WORDS.index(" w103")}
    assert spans == [{"text": "w97 w98 w99 w100 w101 w102", **bounds, "score": 8.0, "probability": 1.0}]


@pytest.mark.parametrize("block", [1, 2, 512])
def test_find_spans_question_batches_change_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, block: int):
    examples = [Question(str(i), "where", WORDS[: 90 * i], ()) for i in range(5)]  # the first context is empty
    features = ONE.features(examples, tokenizer, 100)
    outputs = np.random.default_rng(0).normal(size=(len(features.ids), 2))
    monkeypatch.setattr(squad, "QUESTION_BATCH", block)
    outcome = [nbest_list(f, WORDS, features.offsets, True) for f in find_spans(features, outputs, 5)]
    monkeypatch.undo()
    assert outcome == [nbest_list(f, WORDS, features.offsets, True) for f in find_spans(features, outputs, 5)]
    assert [span["text"] for span in outcome[0]] == [""]
