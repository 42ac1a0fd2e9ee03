from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks import choice
from pipeline_src.tasks.choice import Example
from pipeline_src.tasks.files.spec import load_spec

SWAG = load_spec("swag")
EXAMPLES = [
    Example("0", "w1 w2", ("w3", "w4 w5", "w6", "w7"), 1),
    Example("1", "w8", ("w3", "w4", "w5", "w6"), 1),
    Example("2", "w9", ("w3", "w4", "w5", "w6"), 3),
]


def test_each_choice_is_a_sequence(tokenizer: Tokenizer):
    features = choice.features(SWAG, EXAMPLES, tokenizer, 128)
    assert (features.per_item, features.items, len(features.cu_seqlens)) == (4, 3, 13)
    second = features.ids[features.cu_seqlens[1] : features.cu_seqlens[2]]
    assert [tokenizer.id_to_token(int(token)) for token in second] == "[CLS] w1 w2 [SEP] w4 w5 [SEP]".split()
    assert features.labels.tolist() == [1, 1, 3]
    assert choice.outputs(SWAG) == 1


def test_predict_and_score(tokenizer: Tokenizer):
    features = choice.features(SWAG, EXAMPLES, tokenizer, 128)
    outputs = np.array([[0, 3, 1, 1], [2, 0, 0, 0], [0, 0, 0, 1]], float)
    rows = choice.predict(SWAG, EXAMPLES, features, outputs)
    assert [row["prediction"] for row in rows] == [1, 0, 3]
    assert choice.score(SWAG, "swag", EXAMPLES, rows) == {"accuracy": pytest.approx(200 / 3)}
    assert choice.majority_baseline(SWAG, "swag", EXAMPLES) == {"accuracy": pytest.approx(200 / 3)}


@pytest.mark.parametrize("value", [4, -1, "1", True, 1.0])
def test_a_prediction_is_a_choice(value: object):
    with pytest.raises(PipelineError, match="not a prediction"):
        choice.score(SWAG, "swag", EXAMPLES[:1], [{"id": "0", "prediction": value}])


def test_verdicts_are_endings():
    row = {"id": "0", "prediction": 2, "outputs": [0.0, 0.0, 0.0, 0.0]}
    (verdict,) = choice.example_results(SWAG, "swag", EXAMPLES[:1], [row])
    assert (verdict.text, verdict.gold, verdict.predicted, verdict.right) == ("w1 w2", "w4 w5", "w6", 0.0)
    assert (verdict.words, verdict.confidence) == (4, 0.25)


def test_a_submission_is_csv_in_the_order_of_the_file():
    unlabelled = [Example(str(place), "w1", ("a", "b", "c", "d"), None) for place in range(2)]
    rows = [{"id": "1", "prediction": 3}, {"id": "0", "prediction": 1}]
    assert choice.submission(SWAG, "swag", unlabelled, rows) == {"swag.csv": ",pred\n0,1\n1,3\n"}
