"""Pretraining that continues from a model: import, initial weights, and validation before the first step."""

import logging
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json, write_json
from pipeline_src.pretrain import start_model
from pipeline_src.study.data import ExamplesParams, Lengths
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import PretrainParams, Steps
from pipeline_src.study.schema import NO_MODEL
from pipeline_src.tokenizer.wordpiece import save_tokenizer
from tests.unit.pretrain.small import build_teacher, train_phase

CONTINUED = {"init_from": "teacher", "eval_steps": 4, "learning_rate": 1e-3}


@pytest.fixture
def start(study: Path) -> Path:
    """Save a start model with the study's vocabulary: two layers and an MLM head, without pooler and pair head."""
    build_teacher(study)
    manifest = read_json("data/tokens/manifest.json")
    documents = {"wikipedia": {"documents": 2, "tokens": 9}, "books": {"documents": 4, "tokens": 9}}
    counts = dict.fromkeys(("train", "validation"), documents)
    write_json("data/tokens/manifest.json", {**manifest, "parts": counts})
    tensors = load_file("teacher/model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if "pooler" not in name}, "teacher/model.safetensors")
    return study / "teacher"


def run_stage(init_from: object = "teacher", architecture: str = "bert", length: int = 32) -> None:
    params = {"train_batch_size": 1, "learning_rate": 1, "warmup_steps": 0, "init_from": str(init_from)}
    start_model.run(
        pretrain=PretrainParams(steps=Steps(phase1=1, phase2=0), **params),
        model=ModelParams(architecture=architecture, num_hidden_layers=1, hidden_size=64),
        examples=ExamplesParams(max_seq_length=Lengths(phase1=16, phase2=length)),
    )


def outputs() -> dict[str, str]:
    paths = [path for folder in ("models", "results") for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path): hash_file(path) for path in paths}


def test_phase1_starts_with_weights_and_sizes_of_start_model(start, caplog):
    run_stage()
    assert read_json("data/start_model/manifest.json") == {"parts": ["masked words"]}
    with caplog.at_level(logging.INFO):
        train_phase("phase1", phase1=0, **CONTINUED)
    (message,) = [record.message for record in caplog.records if "random weights" in record.message]
    assert message.endswith("bert.pooler.dense, cls.seq_relationship")
    made, given = (load_file(f"{folder}/model.safetensors") for folder in ("models/pretrained/phase1", "teacher"))
    assert all(torch.equal(made[name], tensor) for name, tensor in given.items())
    assert read_json("models/pretrained/phase1/config.json")["num_hidden_layers"] == 2  # and not the study's 1
    card = Path("models/pretrained/phase1/README.md").read_text(encoding="utf-8")
    assert "a pretrained model trained further on" in card and "| init_from | teacher |" in card
    pooler = made["bert.pooler.dense.weight"]
    assert 0.01 < pooler.std() < 0.03
    train_phase("phase1", phase1=0, seed=2, **CONTINUED)
    again = load_file("models/pretrained/phase1/model.safetensors")
    assert not torch.equal(again["bert.pooler.dense.weight"], pooler)


def test_phase1_continued_measures_step_0_by_source_and_resumes_identically(start):
    run_stage()
    train_phase("phase1", phase1=9, **CONTINUED)
    expected, curve = outputs(), pd.read_csv("results/pretrain/phase1.tsv", sep="\t")
    measured = curve.dropna(subset="validation_mlm_loss")
    assert measured["step"].tolist() == [0, 4, 8]
    sources = measured[["validation_mlm_loss_wikipedia", "validation_mlm_loss_books"]]
    assert (sources.min(axis=1) < measured["validation_mlm_loss"]).all()
    assert (measured["validation_mlm_loss"] < sources.max(axis=1)).all()
    assert measured["validation_mlm_loss"].iloc[-1] < measured["validation_mlm_loss"].iloc[0]
    for stop in (0, 3, 6):  # before the first checkpoint, and after one
        shutil.rmtree("models"), shutil.rmtree("results")

        def stopped(step: int, stop: int = stop) -> None:
            if step == stop + 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_phase("phase1", phase1=9, after_step=stopped, **CONTINUED)
        train_phase("phase1", phase1=9, **CONTINUED)
        assert outputs() == expected


def test_start_model_for_random_weights_writes_manifest_only(study):
    run_stage(NO_MODEL)
    assert [path.name for path in Path("data/start_model").iterdir()] == ["manifest.json"]


def test_start_model_head_of_other_objective_is_not_imported_and_logged(start, caplog):
    tensors = {name: tensor for name, tensor in load_file("teacher/model.safetensors").items() if "cls." not in name}
    save_file(tensors | {"discriminator_predictions.dense.weight": torch.ones(2, 2)}, "teacher/model.safetensors")
    run_stage()
    assert "pretraining does not use these weights: discriminator_predictions.dense.weight" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "roberta"}, "of another architecture than the study's: bert, not roberta"),
        ({"length": 64}, "maximum length is too short: 32 tokens, and the study uses 64"),
        ({"init_from": "nowhere"}, "the model folder does not exist: nowhere"),
    ],
)
def test_start_model_incompatible_with_study_is_rejected(start, change, message):
    with pytest.raises(PipelineError, match=message):
        run_stage(**change)
    assert not Path("data/start_model").exists()


def test_start_model_vocabulary_larger_than_weights_is_rejected(start):
    with open("teacher/vocab.txt", "a", encoding="utf-8") as file:
        file.write("more\n")
    with pytest.raises(PipelineError, match="the vocabulary has more entries than the model: 51 > 50"):
        run_stage()


def test_phase1_added_vocabulary_entry_starts_from_mean_of_its_subwords(start):
    run_stage()
    vocabulary = Path("data/vocabulary/vocab.txt").read_text(encoding="utf-8").split()
    save_tokenizer(Path("data/vocabulary"), [*vocabulary[:7], "new", *vocabulary[8:], "newer"], lowercase=True)
    write_json("data/vocabulary/extended.json", {"7": [8, 9], "50": [10, 11, 12]})
    train_phase("phase1", phase1=0, **CONTINUED)
    made, given = (load_file(f"{folder}/model.safetensors") for folder in ("models/pretrained/phase1", "teacher"))
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        assert len(made[name]) == 51 and torch.equal(made[name][8:50], given[name][8:])
        assert torch.allclose(made[name][7], given[name][8:10].mean(dim=0))
        assert torch.allclose(made[name][50], given[name][10:13].mean(dim=0))
