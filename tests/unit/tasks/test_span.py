from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks import span, windows
from pipeline_src.tasks.files.spec import TestSpec, load_spec
from pipeline_src.tasks.files.squad import Answer, Example

ONE, TWO = load_spec("squad1"), load_spec("squad2")
CONTEXT = "Ada  was born, in Paris."
ADA = Example("q0", "Where was who born?", CONTEXT, (Answer("Paris", 18), Answer("in Paris", 15)))
LONG = " ".join(f"w{number}" for number in range(400))


def long(answer: str) -> Example:
    return Example("long", "where", LONG, (Answer(answer, f" {LONG}".index(f" {answer}")),))


def oracle(features: windows.SpanFeatures) -> np.ndarray:
    """Outputs that know the labels."""
    outputs = np.zeros((len(features.ids), 2), np.float32)
    for item, (first, last) in enumerate(features.labels):
        outputs[features.cu_seqlens[item] + first, 0] += 5
        outputs[features.cu_seqlens[item] + last, 1] += 5
    return outputs


def test_labels_lead_back_to_the_text(tokenizer: Tokenizer):
    features = span.features(ONE, [ADA], tokenizer, 64)
    first, last = features.labels[0]
    words = [tokenizer.id_to_token(int(token)) for token in features.ids]
    assert words[:7] == "[CLS] where was who born ? [SEP]".split()
    assert words[first : last + 1] == ["paris"]
    assert features.segments[first] == 1
    (row,) = span.predict(ONE, [ADA], features, oracle(features))
    assert row.keys() == {"id", "prediction", "nbest"}
    assert (row["id"], row["prediction"], len(row["nbest"])) == ("q0", "Paris", 20)
    assert row["nbest"][0] | {"probability": None} == {
        "text": "Paris",
        "start": 18,
        "end": 23,
        "score": 10.0,
        "probability": None,
    }


def test_a_long_context_is_read_in_windows(tokenizer: Tokenizer):
    example = long("w150")
    features = span.features(ONE, [example], tokenizer, 204)  # 200 tokens of context beside one of question
    assert np.diff(features.cu_seqlens).tolist() == [204, 204, 148]  # from tokens 0, 128 and 256
    assert features.example.tolist() == [0, 0, 0]
    assert features.labels.tolist() == [[153, 153], [25, 25], [0, 0]]
    assert span.predict(ONE, [example], features, oracle(features))[0]["prediction"] == "w150"


def test_every_token_may_start_an_answer_in_one_window_alone(tokenizer: Tokenizer):
    features = span.features(ONE, [long("w1")], tokenizer, 204)
    token = features.offsets[features.may_start, 0]
    assert len(token) == 400 and len(set(token.tolist())) == 400
    best = {int(start): item for item in range(3) for start in _starts(features, item)}
    assert best[LONG.index("w128 ")] == 0  # at the edge of window 1, well inside window 0
    assert best[LONG.index("w190 ")] == 1


def _starts(features: windows.SpanFeatures, item: int) -> list[int]:
    part = slice(features.cu_seqlens[item], features.cu_seqlens[item + 1])
    return features.offsets[part][features.may_start[part], 0].tolist()


def test_small_windows_leave_no_token_out(tokenizer: Tokenizer):
    example = long("w399")
    features = span.features(ONE, [example], tokenizer, 16)
    seen = {tuple(offset) for offset in features.offsets.tolist()} - {(0, 0)}
    assert len(seen) == 400
    assert span.predict(ONE, [example], features, oracle(features))[0]["prediction"] == "w399"


def test_a_long_question_leaves_room_for_the_context(tokenizer: Tokenizer):
    example = Example("q", " ".join(["w1"] * 90), CONTEXT, (Answer("Paris", 18),))
    features = span.features(ONE, [example], tokenizer, 384)
    assert features.segments.tolist().index(1) == 64 + 2
    assert span.features(ONE, [example], tokenizer, 16).items > 1


def test_answers_have_at_most_thirty_tokens(tokenizer: Tokenizer):
    example = long("w10")
    features = span.features(ONE, [example], tokenizer, 512)
    outputs = np.zeros((len(features.ids), 2))
    outputs[[13, 60], [0, 1]] = 9.0, 9.0  # 48 tokens apart
    outputs[41, 1] = 1.0  # 29 after the start
    answer = span.predict(ONE, [example], features, outputs)[0]["prediction"].split()
    assert (answer[0], answer[-1], len(answer)) == ("w10", "w38", 29)


def test_unanswerable_questions_are_told_by_the_null_score(tokenizer: Tokenizer):
    examples = [ADA, Example("q1", "Who?", CONTEXT, ())]
    features = span.features(TWO, examples, tokenizer, 64)
    assert features.labels[1].tolist() == [0, 0]
    rows = span.predict(TWO, examples, features, oracle(features))
    assert rows[0]["prediction"] == "Paris"
    assert rows[1]["prediction"] != ""  # the threshold is applied when all are there
    assert [row["null_score_difference"] for row in rows] == [-10.0, 10.0]
    assert [row["nbest"][0]["text"] for row in rows] == ["Paris", ""]
    assert span.score(TWO, "squad2", examples, rows) == {
        "f1": 100.0,
        "em": 100.0,
        "threshold": -10.0,
        "f1_at_zero": 100.0,
        "em_at_zero": 100.0,
        "HasAns_f1": 100.0,
        "HasAns_em": 100.0,
        "NoAns_f1": 100.0,
        "NoAns_em": 100.0,
        "best_em": 100.0,
        "best_em_threshold": -10.0,
    }


FOUR = [
    Example("a", "?", CONTEXT, (Answer("Paris", 18),)),
    Example("b", "?", CONTEXT, (Answer("in Paris", 15),)),
    Example("c", "?", CONTEXT, ()),
    Example("d", "?", CONTEXT, (Answer("Ada", 0),)),
]
ROWS = [
    {"id": "d", "prediction": "Ada", "null_score_difference": 3.0},
    {"id": "c", "prediction": "born", "null_score_difference": 1.5},
    {"id": "b", "prediction": "Paris", "null_score_difference": 0.5},
    {"id": "a", "prediction": "Paris", "null_score_difference": -2.0},
]


def test_the_threshold_is_searched_for_f1():
    scores = span.score(TWO, "squad2", FOUR, ROWS)
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
    without = span.score(TWO, "squad2", FOUR[:2] + FOUR[3:], [ROWS[0], *ROWS[2:]])
    assert "NoAns_f1" not in without and without["threshold"] == 3.0


def test_verdicts_show_what_is_given_at_the_threshold():
    rows = [row | {"nbest": [{"text": "", "probability": 0.25}, {"text": "Paris", "probability": 0.5}]} for row in ROWS]
    example_results = span.example_results(TWO, "squad2", FOUR, rows)
    assert [verdict.id for verdict in example_results] == ["a", "b", "c", "d"]
    assert [verdict.predicted for verdict in example_results] == ["Paris", "Paris", "", ""]
    assert [verdict.gold for verdict in example_results] == ["Paris", "in Paris", "", "Ada"]
    assert [verdict.right for verdict in example_results] == pytest.approx([1.0, 2 / 3, 1.0, 0.0])
    assert [verdict.confidence for verdict in example_results] == [0.5, 0.5, 0.25, 0.25]
    assert example_results[0].text == "? ||| Ada was born, in Paris."
    assert example_results[0].words == 6
    assert 100 * np.mean([verdict.right for verdict in example_results]) == pytest.approx(
        span.score(TWO, "squad2", FOUR, rows)["f1"]
    )
    assert span.example_results(TWO, "squad2", FOUR, ROWS)[0].confidence is None


@pytest.mark.parametrize("answer", ["w0", "w7", "w200", "w399"])
def test_a_verdict_shows_the_text_around_the_answer(answer: str):
    (verdict,) = span.example_results(ONE, "squad1", [long(answer)], [{"id": "long", "prediction": "w1"}])
    shown = verdict.text.removeprefix("where ||| ")
    assert answer in shown.split()
    assert 290 <= len(shown) <= 304
    assert shown.startswith("w0 ") == (answer in ("w0", "w7")) and shown.endswith("w399") == (answer == "w399")
    assert verdict.words == 401


def test_a_submission_has_the_threshold_applied():
    files = span.submission(TWO, "squad2", FOUR, ROWS)
    assert {name: json.loads(text) for name, text in files.items()} == {
        "squad2_predictions.json": {"a": "Paris", "b": "Paris", "c": "", "d": ""},
        "squad2_null_odds.json": {"a": -2.0, "b": 0.5, "c": 1.5, "d": 3.0},
    }
    given = span.submission(TWO, "squad2", FOUR, ROWS, threshold=1.5)["squad2_predictions.json"]
    assert json.loads(given) == {"a": "Paris", "b": "Paris", "c": "born", "d": ""}
    assert span.submission(ONE, "squad1", [ADA], [{"id": "q0", "prediction": "naïve"}]) == {
        "squad1_predictions.json": '{\n  "q0": "naïve"\n}\n'
    }


def test_answers_for_a_test_file_have_the_name_that_it_asks_for():
    to_submit = TestSpec(file="test.json", submit="answers.json")
    eval_set = ONE.scores["squad1"].model_copy(update={"test": to_submit})
    files = span.submission(
        ONE.model_copy(update={"scores": {"squad1": eval_set}}), "squad1", [ADA], [{"id": "q0", "prediction": "a"}]
    )
    assert list(files) == ["answers.json"]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "0.5", True, ...])
def test_a_question_that_may_have_no_answer_needs_its_difference(value: object):
    rows = [row | {"null_score_difference": value} for row in ROWS]
    if value is ...:
        rows = [{"id": row["id"], "prediction": row["prediction"]} for row in ROWS]
    with pytest.raises(PipelineError, match="no null score difference"):
        span.score(TWO, "squad2", FOUR, rows)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_outputs_that_are_no_numbers_are_refused(tokenizer: Tokenizer, value: float):
    features = span.features(ONE, [ADA], tokenizer, 64)
    outputs = np.zeros((len(features.ids), 2), np.float32)
    outputs[3, 1] = value
    with pytest.raises(PipelineError, match="not a number: row 3"):
        span.predict(ONE, [ADA], features, outputs)


def test_an_answer_that_stands_elsewhere_is_not_learnt(tokenizer: Tokenizer):
    example = Example("q", "where", CONTEXT, (Answer("London", 18),))
    assert span.features(ONE, [example], tokenizer, 64).labels.tolist() == [[0, 0]]


def test_an_empty_context_has_an_empty_answer(tokenizer: Tokenizer):
    example = Example("q", "where", "", (Answer("x", 0),))
    features = span.features(ONE, [example], tokenizer, 64)
    assert span.predict(ONE, [example], features, oracle(features)) == [{"id": "q", "prediction": "", "nbest": []}]
    (row,) = span.predict(TWO, [example], features, oracle(features))
    assert (row["prediction"], row["null_score_difference"]) == ("", 0.0)


def test_chance_is_the_best_constant_answer():
    examples = [
        Example("a", "?", "x y", (Answer("x", 0), Answer("x y", 0))),
        Example("b", "?", "x y", (Answer("the x", 0),)),
        Example("c", "?", "x y", (Answer("y", 2),)),
        Example("d", "?", "x y", ()),
    ]
    # "x" gets a and b exactly; "x y" gets a, and two thirds of b and of c
    assert span.majority_baseline(TWO, "squad2", examples) == {"f1": pytest.approx(100 * (1 + 4 / 3) / 4), "em": 50.0}
    assert span.majority_baseline(TWO, "squad2", examples[2:]) == {"f1": 50.0, "em": 50.0}
    assert span.majority_baseline(ONE, "squad1", examples[:3])["em"] == pytest.approx(200 / 3)


def test_predictions_are_texts():
    with pytest.raises(PipelineError, match="not a prediction: None"):
        span.score(ONE, "squad1", [ADA], [{"id": "q0", "prediction": None}])
