"""The example architecture of docs/new-variant.md can be pretrained, loaded and fine-tuned."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pipeline_src import family
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.base.registry import member_module, member_names
from pipeline_src.engine.fingerprint import imported_files
from pipeline_src.examples.build_examples import run as build_examples
from pipeline_src.finetune.finetune import run as finetune
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.model.bert import (
    BertForPretraining,
    architecture_name,
    check_architecture,
    load_architecture,
)
from pipeline_src.model.hub import load_config, load_weights
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.model import ModelParams
from pipeline_src.tasks.made.synthetic import write_task
from pipeline_src.tools.fill_mask import fill_mask
from tests.unit.pretrain.small import EXAMPLES, make_study, train_phase


@pytest.fixture
def shifted(root, tmp_path, monkeypatch) -> str:
    """Install the documented example in a copy of the family's folder, and return its name."""
    page = (root / "docs/new-variant.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    folder = tmp_path / "members/shifted"
    folder.mkdir(parents=True)
    for file, mark in (("__init__.py", "ARCHITECTURES ="), ("encoder.py", "ARCHITECTURE =")):
        example = next(example for example in examples if mark in example)
        (folder / file).write_text(example, encoding="utf-8")
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(folder.parent)])
    yield "shifted"
    forget("shifted")


def forget(member: str) -> None:
    for name in [name for name in sys.modules if name.startswith(f"pipeline_src.family.{member}")]:
        del sys.modules[name]


@pytest.fixture
def pretrained(shifted, tmp_path, monkeypatch) -> Path:
    """Pretrain the documented example for a few steps, and return the model's folder."""
    monkeypatch.chdir(tmp_path)
    make_study(tmp_path)
    build_examples(seed=1, examples=EXAMPLES)
    train_phase("phase1", phase1=3, architecture=shifted)
    return tmp_path / "models/pretrained/phase1"


def test_pretrain_documented_architecture_is_saved_under_its_own_names(pretrained):
    figures = read_json("results/pretrain/phase1.json")
    assert figures["steps"] == 3 and np.isfinite(figures["validation"]["mlm_loss"])
    raw = read_json(pretrained / "config.json")
    assert (raw["model_type"], raw["layer_norm_eps"], raw["max_position_embeddings"]) == ("shifted", 1e-5, 34)
    assert read_json(pretrained / "tokenizer_config.json")["model_max_length"] == 32
    names = load_file(pretrained / "model.safetensors").keys()
    assert "shifted.embeddings.position_embeddings.weight" in names and "cls.predictions.bias" in names
    assert not any("token_type" in name or name.startswith("bert.") for name in names)
    assert "# Shifted, 1 layers, 64 wide" in (pretrained / "README.md").read_text(encoding="utf-8")


def test_load_weights_documented_architecture_is_restored(pretrained):
    config = load_config(pretrained)
    stored = load_file(pretrained / "model.safetensors")
    model = BertForPretraining(config)
    load_weights(model, pretrained)
    positions = model.bert.embeddings.position_embeddings.weight
    assert torch.equal(positions, stored["shifted.embeddings.position_embeddings.weight"])
    assert type(model.bert).__name__ == "Shifted" and model.bert.embeddings.LayerNorm.eps == 1e-5
    ids, starts = torch.tensor([2, 9, 3]), torch.tensor([0, 3])
    first, second = (model.bert.eval()(ids, segments, starts)[0] for segments in (ids * 0, ids * 0 + 1))
    assert torch.equal(first, second), "it has no segments"
    (candidates,) = fill_mask(ProbedModel.open(pretrained), "bal [MASK]", 3)
    assert len(candidates) == 3


def test_finetune_documented_architecture_runs_and_other_study_is_rejected(pretrained, shifted):
    write_task("sst2", Path("data/tasks/sst2"), seed=1)
    params = FinetuneParams(
        model=str(pretrained),
        defaults=TaskHyperparameters(learning_rates=1e-3, epochs=1, batch_sizes=128, max_length=16),
    )
    study = ModelParams(architecture=shifted, num_hidden_layers=1, hidden_size=64)
    finetune(seed=1, model=study, finetune=params, task="sst2", finetune_seed="1")
    assert read_json("models/finetuned/sst2/1/kept-model/config.json")["model_type"] == "shifted"
    assert "shifted.pooler.dense.weight" in load_file("models/finetuned/sst2/1/kept-model/model.safetensors")
    with pytest.raises(PipelineError, match=r"shifted, not bert[\s\S]*set model.architecture to shifted"):
        check_architecture(load_config(pretrained), "bert", pretrained)


def test_load_architecture_unknown_name_is_rejected(shifted):
    with pytest.raises(PipelineError, match="no such architecture: robert[\\s\\S]*give one of .*bert, .*shifted"):
        load_architecture("robert")
    with pytest.raises(ValueError, match="unknown architecture 'robert'; use one of .*bert, .*shifted"):
        ModelParams(architecture="robert", num_hidden_layers=1, hidden_size=64)


def test_load_architecture_file_without_architecture_is_rejected(tmp_path, monkeypatch):
    folder = tmp_path / "bare"
    folder.mkdir()
    table = 'ARCHITECTURES = {"bare": ArchitectureSpec()}'
    (folder / "__init__.py").write_text(f"from pipeline_src.base.registry import ArchitectureSpec\n\n{table}\n")
    (folder / "encoder.py").write_text("")
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    with pytest.raises(PipelineError, match=r"the module does not define ARCHITECTURE: bare[\s\S]*encoder.py"):
        load_architecture("bare")
    forget("bare")


@pytest.mark.parametrize("name", member_names("models"))
def test_architecture_names_every_task_head(name):
    names = load_architecture(name).names
    assert architecture_name(names.model_type) == name
    assert {"sequence", "choice", "span", "token"} <= names.output_layers.keys() & names.classes.keys()


@pytest.mark.parametrize("stage", ["pretrain.pretrain", "finetune.finetune", "interpret.interpret"])
def test_imported_files_of_stage_exclude_other_architectures(stage):
    """Otherwise a change of DeBERTa would make a trained BERT stale."""
    reached = set(imported_files(f"pipeline_src.{stage}"))
    assert not any(file.startswith("pipeline_src/family/") for file in reached)
    assert "pipeline_src/model/attention.py" in reached
    own = {name: set(imported_files(member_module("models", name))) - reached for name in ("bert", "deberta")}
    assert "pipeline_src/family/deberta/encoder.py" in own["deberta"] - own["bert"]
