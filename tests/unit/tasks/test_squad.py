"""Predictions, scores and submissions of SQuAD."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.features import SpanFeatures
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.questions import Answer, Question
from tests.unit.tasks.conftest import CONTEXT, LONG, question

ONE, TWO = make_task(load_spec("squad1")), make_task(load_spec("squad2"))
ADA = Question("q0", "Where was who born?", CONTEXT, (Answer("Paris", 18), Answer("in Paris", 15)))


def oracle(features: SpanFeatures) -> np.ndarray:
    """Outputs that know the labels."""
    outputs = np.zeros((len(features.ids), 2), np.float32)
    for item, (first, last) in enumerate(features.labels):
        outputs[features.cu_seqlens[item] + first, 0] += 5
        outputs[features.cu_seqlens[item] + last, 1] += 5
    return outputs


def test_squad_features_labels_map_back_to_answer_text(tokenizer: Tokenizer):
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


def test_squad2_predict_unanswerable_question_has_higher_null_score(tokenizer: Tokenizer):
    examples = [ADA, Question("q1", "Who?", CONTEXT, ())]
    features = TWO.features(examples, tokenizer, 64)
    assert features.labels[1].tolist() == [0, 0]
    rows = TWO.predict(examples, features, oracle(features))
    assert rows[0]["prediction"] == "Paris"
    assert rows[1]["prediction"] != ""  # `score` applies the threshold, `predict` does not
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
    (result,) = ONE.example_results("squad1", [question(answer, context=LONG)], [{"id": "q", "prediction": "w1"}])
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
    # The answer "x" is exact for a and b. "x y" is exact for a, and has an F1 of 2/3 for b and c.
    assert TWO.majority_baseline("squad2", examples) == {"f1": pytest.approx(100 * (1 + 4 / 3) / 4), "em": 50.0}
    assert TWO.majority_baseline("squad2", examples[2:]) == {"f1": 50.0, "em": 50.0}
    assert ONE.majority_baseline("squad1", examples[:3])["em"] == pytest.approx(200 / 3)
