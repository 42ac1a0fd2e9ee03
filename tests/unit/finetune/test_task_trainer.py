"""Training of a task at one point of its grid: its initial weights, and the epoch that is kept."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.registry import member_module
from pipeline_src.finetune.finetune import open_checkpointer
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.finetune.hyperparameter_grid import GridPoint
from pipeline_src.finetune.task_data import TaskData
from pipeline_src.finetune.task_trainer import TaskTrainer, load_task_config, task_settings
from pipeline_src.model import attention
from pipeline_src.model.bert import BertConfig, BertForMaskedLM, architecture_name, initialise, load_architecture
from pipeline_src.model.hub import load_config, save_model
from pipeline_src.study.machine import Machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.training.stop import catch_stop_requests
from tests.unit.finetune.conftest import MODEL, make_params


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    return make_study(("sst2",), layers=1)


def task_trainer(folder: Path, optimizer: str = "adamw", **recipe) -> TaskTrainer:
    """A trainer of SST-2 from an encoder."""
    wanted = make_params(optimizer=optimizer, **recipe)
    model = MODEL.model_copy(update={"architecture": architecture_name(load_config(folder).names.model_type)})
    data, config = TaskData(load_spec("sst2"), folder, 64), load_task_config(folder, model, wanted.defaults)
    settings = task_settings(data.spec, wanted.defaults, wanted, config)
    return TaskTrainer(settings, wanted.defaults, wanted, config, folder, data.training(), 1, Machine())


def test_task_trainer_select_best_restores_best_epoch(study):
    trainer, seen = task_trainer(Path("models/pretrained/phase2"), epochs=4, select="best"), []
    point = GridPoint(1e-3, 4, 64)

    def score_model(model: BertForTask) -> float:
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return [60.0, 80.0, 80.0, 70.0][len(seen) - 1]  # of equal ones the first is kept

    with catch_stop_requests() as stop_request:
        checkpointer = open_checkpointer(trainer, {"task": {"name": "sst2"}, "finetune_seed": "1"}, stop_request, point)
        model, loss, epoch = trainer.train("pretrained", point, checkpointer, score_model=score_model)
        checkpointer.finish()
    assert epoch == 2 and len(seen) == 4
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, seen[1][name]), name
    assert not torch.equal(seen[1]["classifier.weight"], seen[3]["classifier.weight"])
    assert not [path for path in Path("checkpoints").rglob("*.safetensors")]


def test_task_trainer_patience_ends_training_and_a_resumed_one_after_the_same_epoch(study):
    trainer = task_trainer(Path("models/pretrained/phase2"), epochs=9, select="best", patience=2)
    point, scores = GridPoint(1e-3, 9, 64), [60.0, 80.0, 70.0, 80.0, 90.0]
    called = []

    def score_model(model: BertForTask) -> float:
        called.append(model)
        return scores[len(called) - 1]

    with catch_stop_requests() as stop_request:
        for _ in range(2):
            # The second start finds the checkpoint of the last epoch.
            identity = {"task": {"name": "sst2"}, "finetune_seed": "3"}
            checkpointer = open_checkpointer(trainer, identity, stop_request, point)
            _, _, epoch = trainer.train("pretrained", point, checkpointer, score_model=score_model)
            assert (epoch, len(called)) == (2, 4)
            # As when a process ends, its lock is released.
            checkpointer._in_use.close()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_task_trainer_head_learning_rate_moves_all_but_matrices_of_blocks(study, optimizer):
    moved = {}
    for rate in (None, 1e-7):
        trainer = task_trainer(Path("models/pretrained/phase2"), optimizer, head_learning_rate=rate)
        start = trainer.pretrained().state_dict()
        model, _, _ = trainer.train("pretrained", GridPoint(1e-3, 1, 64))
        moved[rate] = {name: float((tensor - start[name]).norm()) for name, tensor in model.state_dict().items()}
    for name, one_rate in moved[None].items():
        is_matrix = ".encoder.layer." in name and name.endswith("weight") and "LayerNorm" not in name
        ratio = moved[1e-7][name] / one_rate
        assert ratio > 0.5 if is_matrix else ratio < 0.01, name


def test_task_trainer_select_best_damaged_checkpoint_is_rejected(study):
    trainer, point = task_trainer(Path("models/pretrained/phase2"), epochs=3, select="best"), GridPoint(1e-3, 3, 64)
    scores: list[float] = []

    def score_model(model: BertForTask) -> float:
        scores.append(80.0 - len(scores))
        if len(scores) == 3:
            first = min(Path("checkpoints").rglob("step-*"))
            (first / "tensors.safetensors").write_bytes(b"damaged")
        return scores[-1]

    with catch_stop_requests() as stop_request:
        checkpointer = open_checkpointer(trainer, {"task": {"name": "sst2"}, "finetune_seed": "2"}, stop_request, point)
        with pytest.raises(PipelineError, match="the best checkpoint cannot be read"):
            trainer.train("pretrained", point, checkpointer, score_model=score_model)


@pytest.mark.parametrize("architecture", ["bert", "deberta", "deberta_v2", "modernbert", "bilstm", "albert"])
def test_task_trainer_can_train_after_predicting_same_lengths(study, architecture):
    size = ModelParams(architecture=architecture, num_hidden_layers=2, hidden_size=64)
    config = load_architecture(architecture).config.from_params(size, 600)
    save_masked_lm(Path("models/other"), config, config.names.classes["masked_lm"])
    few = Path("data/tasks/sst2/train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)[:5]
    for name in ("train.tsv", "dev.tsv"):  # one batch, of one length in both
        Path("data/tasks/sst2", name).write_text("".join(few), encoding="utf-8")
    for module in {sys.modules[member_module("models", architecture)], attention}:
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):  # what other tests have filled
                function.cache_clear()
    trainer, data = task_trainer(Path("models/other")), TaskData(load_spec("sst2"), Path("models/other"), 64)
    trainer.predict(trainer.pretrained(), data.eval_set("sst2"))
    _, loss, _ = trainer.train("pretrained", GridPoint(1e-3, 1, 4))
    assert np.isfinite(loss)


def test_task_trainer_reinit_layers_resets_top_blocks_and_pooler(make_study, monkeypatch):
    monkeypatch.chdir(make_study(("sst2",), layers=2))
    folder = Path("models/pretrained/phase2")
    stored, model = load_file(folder / "model.safetensors"), task_trainer(folder, reinit_layers=1).pretrained()
    shared = [(name, tensor) for name, tensor in model.named_parameters() if name in stored]
    drawn = {name for name, tensor in shared if not torch.equal(tensor, stored[name])}
    assert {".".join(name.split(".")[:4]) for name in drawn if ".layer." in name} == {"bert.encoder.layer.1"}
    assert {name for name in drawn if ".layer." not in name} == {"bert.pooler.dense.weight"}
    assert all(float(tensor.detach().std()) < 0.03 for name, tensor in shared if name in drawn)


def test_task_trainer_untrained_pooler_is_reset_with_message(study, caplog):
    file, name = Path("models/pretrained/phase2/model.safetensors"), "bert.pooler.dense.weight"
    for factor, is_kept in ((1.0, True), (0.45, False)):
        tensors = load_file(file)
        tensors[name] *= factor
        save_file(tensors, file)
        caplog.clear()
        with caplog.at_level("INFO"):
            result = task_trainer(file.parent).pretrained().bert.pooler.dense.weight
        assert torch.equal(result, tensors[name]) is is_kept
        assert ("has a pooler that was not trained" in caplog.text) is not is_kept


def test_task_trainer_modernbert_uses_mlm_transform_as_task_head(study):
    config = pytest.importorskip("pipeline_src.family.modernbert.encoder").ModernBertConfig(600, 64, 1, 1, 96)
    pretrained = save_masked_lm(Path("models/modern"), config, "ModernBertForMaskedLM")
    head = task_trainer(Path("models/modern")).pretrained().bert.pooler
    assert torch.equal(head.dense.weight, pretrained.cls["predictions"].transform.dense.weight)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained("models/modern")
    assert torch.equal(head.dense.weight, theirs.head.dense.weight)
    assert torch.equal(head.LayerNorm.weight, theirs.head.norm.weight)


def save_masked_lm(folder: Path, config: BertConfig, huggingface_class: str) -> BertForMaskedLM:
    """Save a model of random weights with the study's vocabulary."""
    model = BertForMaskedLM(config)
    initialise(model, torch.Generator().manual_seed(3))
    folder.mkdir()
    save_model(folder, model, config, huggingface_class, Path("models/pretrained/phase2"))
    return model
