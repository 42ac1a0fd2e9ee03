"""Files of predictions."""

import re

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.evaluate.predictions import read_predictions


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ('"confidence": 1e999', "confidence"),
        (f'"null_score_difference": {"9" * 400}', "null_score_difference"),
        ('"nbest": [{"text": "a", "probability": -1e999}]', "nbest[0].probability"),
        ('"nbest": ["a"]', "nbest[0]"),
    ],
)
def test_read_predictions_infinite_number_is_rejected(tmp_path, extra, field):
    (tmp_path / "p.jsonl").write_text(f'{{"id": "0", "prediction": "a", {extra}}}\n')
    with pytest.raises(PipelineError, match=rf"{re.escape(field)}[\s\S]*p.jsonl:1"):
        read_predictions(tmp_path / "p.jsonl")
