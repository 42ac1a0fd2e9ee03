from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.examples import ChoiceExample, TextExample
from pipeline_src.tasks.features import truncate_pair
from pipeline_src.tasks.kinds import make_task

MRPC, STSB, SST2 = (make_task(load_spec(name)) for name in ("mrpc", "stsb", "sst2"))
PAIRS = [TextExample("0", ("w1 w2", "w3"), 1), TextExample("1", ("w4", "w5 w6 w7"), 0), TextExample("2", ("w8", ""), 1)]


def tokens(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    return " ".join(tokenizer.id_to_token(int(token)) for token in ids)


def test_classification_features_pair_becomes_one_sequence(tokenizer: Tokenizer):
    features = MRPC.features(PAIRS, tokenizer, 128)
    assert tokens(tokenizer, features.ids) == (
        "[CLS] w1 w2 [SEP] w3 [SEP] [CLS] w4 [SEP] w5 w6 w7 [SEP] [CLS] w8 [SEP] [SEP]"
    )
    assert features.segments.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1]
    assert features.cu_seqlens.tolist() == [0, 6, 13, 17]
    assert features.labels.tolist() == [1, 0, 1]
    assert [make_task(load_spec(task)).num_outputs for task in ("cola", "mnli", "stsb")] == [2, 3, 1]
    assert features.example.tolist() == [0, 1, 2]
    assert (features.ids.dtype, features.segments.dtype, features.labels.dtype) == (np.int32, np.int8, np.int64)


def test_features_apart_pair_becomes_two_sequences(tokenizer: Tokenizer):
    features = MRPC.features_apart(PAIRS, tokenizer, 4)
    expected = "[CLS] w1 w2 [SEP] [CLS] w3 [SEP] [CLS] w4 [SEP] [CLS] w5 w6 [SEP] [CLS] w8 [SEP] [CLS] [SEP]"
    assert tokens(tokenizer, features.ids) == expected and not features.segments.any()
    assert (features.items, features.per_item, features.labels.tolist()) == (3, 2, [1, 0, 1])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(3, 12), st.integers(1, 20))
def test_features_in_windows_cover_every_token_in_order(tokenizer: Tokenizer, lengths, max_length, stride):
    examples = [TextExample("x", (" ".join(f"w{1 + place % 8}" for place in range(length)),), 0) for length in lengths]
    features = SST2.features_in_windows(examples, tokenizer, max_length, stride)
    assert features.items == len(lengths) and features.counts == {}
    step = min(stride, max_length - 2)
    for item, example in enumerate(examples):
        words = example.texts[0].split()
        sequences = range(features.windows[item], features.windows[item + 1])
        assert len(sequences) >= 1
        for number, sequence in enumerate(sequences):
            inner = features.ids[features.cu_seqlens[sequence] + 1 : features.cu_seqlens[sequence + 1] - 1]
            expected = words[number * step : number * step + max_length - 2]
            assert tokens(tokenizer, inner).split() == expected
        # The last window ends the text, and the one before does not.
        assert (len(sequences) - 1) * step + max_length - 2 >= len(words)
        assert len(sequences) == 1 or (len(sequences) - 2) * step + max_length - 2 < len(words)


def test_classification_features_truncate_the_longer_segment(tokenizer: Tokenizer):
    example = TextExample("0", ("w1 w2 w3 w4 w5", "w6 w7"), 1)
    features = MRPC.features([example], tokenizer, 8)
    assert tokens(tokenizer, features.ids) == "[CLS] w1 w2 w3 [SEP] w6 w7 [SEP]"
    assert features.counts == {"sequences cut to 8 tokens": 1} and MRPC.features(PAIRS, tokenizer, 7).counts == {}
    assert truncate_pair(4, 4, 5) == (3, 2)  # the second of two equally long segments is shortened first
    single = SST2.features([TextExample("0", ("w1 w2 w3 w4",), None)], tokenizer, 5)
    assert tokens(tokenizer, single.ids) == "[CLS] w1 w2 w3 [SEP]"
    assert not single.segments.any() and single.labels.tolist() == [-1]


def test_classification_predictions_have_expected_scores(tokenizer: Tokenizer):
    features = MRPC.features(PAIRS, tokenizer, 128)
    outputs = np.array([[0.0, 2.0], [1.0, 0.5], [3.0, -1.0]], np.float32)
    rows = json.loads(json.dumps(MRPC.predict(PAIRS, features, outputs)))
    assert [row["prediction"] for row in rows] == ["1", "0", "0"]
    scores = MRPC.score("mrpc", PAIRS, rows[::-1])  # the order of the rows does not matter
    assert scores == {"accuracy": pytest.approx(200 / 3), "f1": pytest.approx(200 / 3)}
    baseline = MRPC.majority_baseline("mrpc", PAIRS)
    assert baseline == {"accuracy": pytest.approx(200 / 3), "f1": pytest.approx(80.0)}


def test_regression_predictions_are_clipped_to_range(tokenizer: Tokenizer):
    examples = [TextExample(str(i), ("w1", "w2"), value) for i, value in enumerate([0.0, 2.5, 5.0])]
    features = STSB.features(examples, tokenizer, 128)
    assert features.labels.dtype == np.float32
    rows = STSB.predict(examples, features, np.array([[-1.0], [2.0], [7.5]], np.float32))
    assert [row["prediction"] for row in rows] == [0.0, 2.0, 5.0]
    assert STSB.score("stsb", examples, rows)["spearman"] == pytest.approx(100.0)
    assert STSB.majority_baseline("stsb", examples) == {"pearson": 0.0, "spearman": 0.0}


@pytest.mark.parametrize("limits", [(0.0, 5.0), (1900.0, 2020.0), (-1.0, 1.0), (0.1, 0.7), (-1e9, 1e9)])
def test_regression_of_any_range_is_learnt_from_0_to_5(tokenizer: Tokenizer, limits: tuple[float, float]):
    low, high = limits
    task = make_task(STSB.spec.model_copy(update={"range": limits}))
    shares = (0.0, 0.25, 1.0)
    examples = [TextExample(str(n), ("w1", "w2"), low + share * (high - low)) for n, share in enumerate(shares)]
    features = task.features(examples, tokenizer, 128)
    assert features.labels.dtype == np.float32 and features.labels == pytest.approx([0.0, 1.25, 5.0])
    rows = task.predict(examples, features, features.labels[:, None])
    assert [row["prediction"] for row in rows] == pytest.approx([example.label for example in examples])
    outside = task.predict(examples, features, np.array([[-0.1], [5.1], [9.0]], np.float32))
    assert [row["prediction"] for row in outside] == [low, high, high]


def test_regression_from_0_to_5_keeps_every_bit(tokenizer: Tokenizer):
    values = np.random.default_rng(1).uniform(0, 5, 1000).astype(np.float32)
    examples = [TextExample(str(n), ("w1", "w2"), float(value)) for n, value in enumerate(values)]
    features = STSB.features(examples, tokenizer, 128)
    assert features.labels.tobytes() == values.tobytes()
    rows = STSB.predict(examples, features, values[:, None])
    assert [row["prediction"] for row in rows] == values.tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("0", "1"), ("1", "0")], "an example has no prediction: 2"),
        ([("0", "1"), ("1", "0"), ("2", "1"), ("3", "1")], "unknown example id: 3"),
        ([("0", "1"), ("1", "yes"), ("2", "1")], "invalid prediction: 'yes'"),
        ([("0", "1"), ("1", 0), ("2", "1")], "invalid prediction: 0"),
    ],
)
def test_classification_score_mismatched_predictions_are_rejected(rows: list, message: str):
    with pytest.raises(PipelineError, match=message):
        MRPC.score("mrpc", PAIRS, [{"id": id_, "prediction": value} for id_, value in rows])


def test_classification_nan_prediction_is_rejected(tokenizer: Tokenizer):
    features = MRPC.features(PAIRS, tokenizer, 128)
    with pytest.raises(PipelineError, match="NaN or infinite: row 1"):
        MRPC.predict(PAIRS, features, np.array([[0, 1], [0, np.nan], [1, 0]]))
    with pytest.raises(PipelineError, match="invalid prediction: nan"):
        STSB.score("stsb", [TextExample("0", ("a", "b"), 1.0)], [{"id": "0", "prediction": float("nan")}])


def test_classification_example_results_equal_expected_values():
    rows = [{"id": "0", "prediction": "0", "outputs": [1.0, 0.0]}, {"id": "1", "prediction": "0"}]
    first, second = MRPC.example_results("mrpc", PAIRS[:2], rows)
    assert (first.text, first.words, first.gold, first.predicted, first.right) == ("w1 w2\nw3", 3, "1", "0", 0.0)
    assert first.confidence == pytest.approx(np.e / (np.e + 1))
    assert (second.right, second.confidence) == (1.0, None)
    far = [{"id": "0", "prediction": 0.0, "outputs": [1000.0, -1000.0]}]
    (number,) = STSB.example_results("stsb", [TextExample("0", ("a", "b"), 4.0)], [{"id": "0", "prediction": 1.5}])
    assert (number.gold, number.predicted, number.right) == ("4.000", "1.500", 0.5)
    with pytest.raises(PipelineError, match="invalid prediction"):
        MRPC.example_results("mrpc", PAIRS[:1], far)


def test_classification_submission_has_leaderboard_format():
    unlabelled = [TextExample(str(place), ("a", "b"), None) for place in range(11)]
    rte = make_task(load_spec("rte"))
    labels = ["entailment", "not_entailment"] * 5 + ["entailment"]
    rows = [{"id": str(place), "prediction": label} for place, label in enumerate(labels)]
    (name, content), *more = rte.submission("rte", unlabelled, rows[::-1]).items()
    assert (name, more) == ("RTE.tsv", [])
    assert content.split("\n") == ["index\tprediction", *(f"{n}\t{label}" for n, label in enumerate(labels)), ""]
    scores = [{"id": str(place), "prediction": value} for place, value in enumerate([0, 5.0, 2.34567])]
    content = STSB.submission("stsb", unlabelled[:3], scores)["STS-B.tsv"]
    assert content == "index\tprediction\n0\t0.000\n1\t5.000\n2\t2.346\n"
    with pytest.raises(PipelineError, match="an example has no prediction: 10"):
        rte.submission("rte", unlabelled, rows[:-1])


SWAG = make_task(load_spec("swag"))
ENDINGS = [
    ChoiceExample("0", "w1 w2", ("w3", "w4 w5", "w6", "w7"), 1),
    ChoiceExample("1", "w8", ("w3", "w4", "w5", "w6"), 1),
    ChoiceExample("2", "w9", ("w3", "w4", "w5", "w6"), 3),
]


def test_choice_features_each_choice_is_one_sequence(tokenizer: Tokenizer):
    features = SWAG.features(ENDINGS, tokenizer, 128)
    assert (features.per_item, features.items, len(features.cu_seqlens)) == (4, 3, 13)
    second = features.ids[features.cu_seqlens[1] : features.cu_seqlens[2]]
    assert [tokenizer.id_to_token(int(token)) for token in second] == "[CLS] w1 w2 [SEP] w4 w5 [SEP]".split()
    assert features.labels.tolist() == [1, 1, 3]
    assert SWAG.num_outputs == 1


def test_choice_predictions_have_expected_scores(tokenizer: Tokenizer):
    features = SWAG.features(ENDINGS, tokenizer, 128)
    outputs = np.array([[0, 3, 1, 1], [2, 0, 0, 0], [0, 0, 0, 1]], float)
    rows = SWAG.predict(ENDINGS, features, outputs)
    assert [row["prediction"] for row in rows] == [1, 0, 3]
    assert SWAG.score("swag", ENDINGS, rows) == {"accuracy": pytest.approx(200 / 3)}
    assert SWAG.majority_baseline("swag", ENDINGS) == {"accuracy": pytest.approx(200 / 3)}


def test_choice_example_results_equal_expected_values():
    row = {"id": "0", "prediction": 2, "outputs": [0.0, 0.0, 0.0, 0.0]}
    (result,) = SWAG.example_results("swag", ENDINGS[:1], [row])
    assert (result.text, result.gold, result.predicted, result.right) == ("w1 w2", "w4 w5", "w6", 0.0)
    assert (result.words, result.confidence) == (4, 0.25)


def test_choice_submission_is_csv_in_file_order():
    unlabelled = [ChoiceExample(str(place), "w1", ("a", "b", "c", "d"), None) for place in range(2)]
    rows = [{"id": "1", "prediction": 3}, {"id": "0", "prediction": 1}]
    assert SWAG.submission("swag", unlabelled, rows) == {"swag.csv": ",pred\n0,1\n1,3\n"}
