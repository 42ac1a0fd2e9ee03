"""Tool ``predict``: a line of JSON for each example, and one sentence for each mistake."""

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.finetune.finetune import run
from pipeline_src.finetune.predict import load
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.model import ModelParams
from pipeline_src.tasks.examples import TextExample
from pipeline_src.tools import predict as tool
from tests.unit.finetune.conftest import make_study, study

__all__ = ["make_study", "study"]

TEXTS = ["a fine film", "a dull film"]


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    """A study with one task and a fine-tuned model of it, seed 3."""

    def cut(root: Path) -> None:
        for file in root.glob("data/tasks/*/*.tsv"):
            file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:11]), encoding="utf-8")

    root = make_study(("sst2",), layers=1, change=cut)
    recipe = TaskHyperparameters(learning_rates=1e-2, max_length=32)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        model = ModelParams(num_hidden_layers=1, hidden_size=64)
        run(seed=1, model=model, finetune=FinetuneParams(defaults=recipe), task="sst2", finetune_seed="3")
    (root / "texts.txt").write_text("\n".join([*TEXTS, ""]), encoding="utf-8")
    (root / "empty.txt").touch()
    return root


def expected(folder: Path) -> list[dict]:
    return load(folder)([TextExample(str(number), (text,)) for number, text in enumerate(TEXTS)])


def test_predict_prints_what_the_predictor_returns(study, call, capsys):
    call(tool, "sst2", "texts.txt", "--seed", 3)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == expected(Path("models/finetuned/sst2/3/kept-model"))
    assert [row["id"] for row in rows] == ["0", "1"] and set(rows[0]["probabilities"]) == {"0", "1"}


def test_predict_from_standard_input_equals_predict_from_file(study, call, capsys, monkeypatch, tmp_path):
    copied = shutil.copytree("models/finetuned/sst2/3/kept-model", tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(TEXTS).encode())))
    call(tool, "sst2", "-", "--model", copied, "--output", "out/rows.jsonl")
    lines = Path("out/rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == expected(copied)
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("nope", "texts.txt"), r"no such task: nope[\s\S]*hint: use one of [\s\S]*sst2"),
        (("../sst2", "texts.txt"), "no such task: ../sst2"),
        (("rte", "texts.txt"), r"no fine-tuned model: rte with seed 1[\s\S]*snakemake --cores 2 all"),
        (("sst2", "texts.txt"), r"no fine-tuned model: sst2 with seed 1[\s\S]*give --seed 3"),
        (("sst2", "nope.txt", "--seed", 3), "no such file: nope.txt"),
        (("sst2", "data", "--seed", 3), "no such file: data"),
        (("sst2", "empty.txt", "--seed", 3), "empty file: empty.txt"),
        (
            ("rte", "texts.txt", "--model", "models/finetuned/sst2/3/kept-model"),
            "the model was fine-tuned on another task: sst2",
        ),
        (("sst2", "texts.txt", "--model", "nope"), "no model here: nope"),
        (("sst2", "texts.txt", "--model", "models/pretrained/phase2"), "not a fine-tuned model"),
    ],
)
def test_predict_invalid_argument_is_rejected_with_one_error(study, call, given, message):
    with pytest.raises(PipelineError, match=message):
        call(tool, *given)
