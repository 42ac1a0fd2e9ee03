"""Another member of the family is one file: the example of docs/new-variant.md, put in place and trained."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pipeline_src import models
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.fingerprint import imported_files
from pipeline_src.common.registry import member_names
from pipeline_src.config.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.config.model import ModelParams
from pipeline_src.download.synthetic import write_task
from pipeline_src.examples.build_examples import run as build_examples
from pipeline_src.finetuning.finetune import run as finetune
from pipeline_src.finetuning.heads import BertForTask
from pipeline_src.interpretation.model import ProbedModel
from pipeline_src.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    architecture_name,
    check_architecture,
    initialise,
    load_architecture,
)
from pipeline_src.models.hub import load_config, load_weights
from pipeline_src.tools.fill_mask import fill_mask
from tests.unit.pretraining.small import EXAMPLES, make_study, train_phase


@pytest.fixture
def shifted(root, tmp_path, monkeypatch) -> str:
    """The documented example as a member beside BERT, in a folder of its own; its name."""
    page = (root / "docs/new-variant.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    example = next(example for example in examples if "ARCHITECTURE" in example)
    folder = tmp_path / "members"
    folder.mkdir()
    (folder / "shifted.py").write_text(example, encoding="utf-8")
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(folder)])
    yield "shifted"
    sys.modules.pop("pipeline_src.models.shifted", None)


@pytest.fixture
def pretrained(shifted, tmp_path, monkeypatch) -> Path:
    """The folder of the example's model after a few steps of pretraining."""
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


def test_bert_subclass_with_own_embeddings_changes_only_embeddings():
    class Doubled(Bert.Embeddings):
        def forward(self, *inputs):
            return 2 * super().forward(*inputs)

    class Variant(Bert):
        Embeddings = Doubled

    config = BertConfig(50, 32, 2, 2, 64, 16)
    models = [kind(config).eval() for kind in (Bert, Variant)]
    for model in models:
        initialise(model, torch.Generator().manual_seed(1))
    plain, variant = (model.state_dict() for model in models)
    assert plain.keys() == variant.keys() and all(torch.equal(plain[name], variant[name]) for name in plain)
    batch = torch.tensor([2, 9, 3]), torch.zeros(3, dtype=torch.int64), torch.tensor([0, 3])
    assert not torch.equal(models[0](*batch)[0], models[1](*batch)[0])


def test_bert_for_task_uses_architecture_of_config(shifted):
    config = load_architecture(shifted).config.from_params(ModelParams(num_hidden_layers=1, hidden_size=64), 50)
    assert type(BertForTask(config, "sequence", 2).bert).__name__ == "Shifted"
    assert type(BertForTask(BertConfig(50, 64, 1, 1, 256), "sequence", 2).bert) is Bert


def test_load_architecture_unknown_name_is_rejected(shifted):
    with pytest.raises(PipelineError, match="no such architecture: robert[\\s\\S]*give one of .*bert, .*shifted"):
        load_architecture("robert")
    with pytest.raises(ValueError, match="no architecture is called 'robert'; there are .*bert, .*shifted"):
        ModelParams(architecture="robert", num_hidden_layers=1, hidden_size=64)


@pytest.mark.parametrize("spec", ["SPEC = ArchitectureSpec()", "SPEC: ArchitectureSpec = ArchitectureSpec()"])
def test_load_architecture_file_without_architecture_is_rejected(tmp_path, monkeypatch, spec):
    (tmp_path / "bare.py").write_text(f"from pipeline_src.common.registry import ArchitectureSpec\n{spec}\n")
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    with pytest.raises(PipelineError, match=r"a member without ARCHITECTURE: bare[\s\S]*bare.py"):
        load_architecture("bare")
    sys.modules.pop("pipeline_src.models.bare", None)


@pytest.mark.parametrize("name", member_names("models"))
def test_architecture_names_every_task_head(name):
    names = load_architecture(name).names
    assert architecture_name(names.model_type) == name
    assert {"sequence", "choice", "span", "token"} <= names.output_layers.keys() & names.classes.keys()


@pytest.mark.parametrize("stage", ["pretraining.pretrain", "finetuning.finetune", "interpretation.interpret"])
def test_imported_files_of_stage_exclude_other_architectures(stage):
    """Else a change of DeBERTa would make a trained BERT stale."""
    reached = set(imported_files(f"pipeline_src.{stage}"))
    named = {folder: member_names(folder) for folder in ("models", "objectives")}
    others = {f"pipeline_src/{folder}/{name}.py" for folder, names in named.items() for name in names}
    shared = {"pipeline_src/models/bert.py"}
    if stage == "finetuning.finetune":
        shared.add("pipeline_src/models/bilstm.py")  # finetune.bilstm puts its LSTM over any encoder
    assert not reached & (others - shared)
    assert "pipeline_src/models/attention.py" in reached
    own = {name: set(imported_files(f"pipeline_src.models.{name}")) - reached for name in ("bert", "deberta")}
    assert "pipeline_src/models/deberta.py" in own["deberta"] - own["bert"]
