"""The tool judges the pairs of a folder, in either precision; what cannot be judged is one clear error."""

import json

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.tools import blimp


@pytest.fixture
def pairs(tmp_path):
    """Sixty pairs of one paradigm."""
    nouns, verbs, ends = ("cat", "mat", "x"), ("sat", "on", "the", "é"), ("on the mat", "the x", "x", "on cats", "é")
    texts = [f"the {noun} {verb} {end}" for noun in nouns for verb in verbs for end in ends]
    (tmp_path / "pairs").mkdir()
    with open(tmp_path / "pairs/order.jsonl", "w", encoding="utf-8") as file:
        for text in texts:
            row = {"sentence_good": text, "sentence_bad": " ".join(text.split()[::-1]), "linguistics_term": "order"}
            file.write(json.dumps(row | {"UID": "reversed"}) + "\n")
    return tmp_path / "pairs"


def test_blimp_bfloat16_accuracy_is_close_to_float32(call, folder, pairs, tmp_path, capsys):
    figures = {}
    for precision in ("float32", "bfloat16"):
        output = tmp_path / f"{precision}.json"
        call(blimp, "--model", folder, "--folder", pairs, "--precision", precision, "--output", output)
        figures[precision] = json.loads(output.read_text())["pairs all"]
    assert figures["float32"]["pairs"] == figures["bfloat16"]["pairs"] == 60
    assert figures["float32"]["accuracy"] == pytest.approx(figures["bfloat16"]["accuracy"], abs=0.1)
    assert "pairs: order" in capsys.readouterr().out


def test_blimp_bad_argument_is_rejected(call, folder, tmp_path):
    with pytest.raises(PipelineError, match="number of pairs is below 1: 0"):
        call(blimp, "--model", folder, "--pairs", 0)
    with pytest.raises(PipelineError, match="minimal pairs not found"):
        call(blimp, "--model", folder, "--folder", tmp_path / "v")
