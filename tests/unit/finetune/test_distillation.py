"""Distillation from a fine-tuned teacher: layer imitation, soft labels, and unsuitable teachers."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.base.errors import Interrupted, PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.finetune import finetune
from pipeline_src.finetune.augmentation import VECTORS
from pipeline_src.finetune.distillation import LayerImitation, SoftLabelLoss, load_fit_dense
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.finetune.task_data import TaskBatch
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import Bert, BertConfig, initialise
from pipeline_src.model.hub import save_model
from pipeline_src.study.model import ModelParams
from pipeline_src.study.schema import NO_TEACHER
from tests.unit.finetune.conftest import fine_tune, predictions, stop_after

MODEL, STUDENT = ModelParams(num_hidden_layers=1, hidden_size=32), "models/student"
TEACHER = {"teacher": "models/teacher", "layer_epochs": 1, "layer_learning_rate": 1e-3}


def fine_tune_student(seed: str = "1", **changes) -> list[str]:
    """Fine-tune the student on SST-2; gives its answers."""
    recipe = {"learning_rates": 3e-3, "epochs": 2, "max_length": 32, **TEACHER, **changes}
    fine_tune(seed=seed, size=MODEL, model=STUDENT, **recipe)
    return [row["prediction"] for row in predictions(seed=seed)]


def answers(path: str | Path) -> list[str]:
    return [json.loads(line)["prediction"] for line in Path(path).read_text(encoding="utf-8").splitlines()]


def save_encoder(folder: Path, vocabulary: Path, layers: int, heads: int, width: int) -> None:
    entries = len((vocabulary / "vocab.txt").read_text(encoding="utf-8").splitlines())
    config = BertConfig(entries, width, layers, heads, 2 * width, 64)
    encoder = torch.nn.ModuleDict({"bert": Bert(config)})
    initialise(encoder, torch.Generator().manual_seed(3))
    folder.mkdir(parents=True)
    save_model(folder, encoder, config, "BertModel", vocabulary)


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    """A two-layer teacher of SST-2, and a narrower one-layer student. The labels of the training file are removed."""
    root = make_study(("sst2",), layers=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        fine_tune(size=MODEL, learning_rates=2e-3, epochs=2, max_length=32)
    save_encoder(root / STUDENT, root / "models/pretrained/phase2", layers=1, heads=2, width=32)
    (root / "models/teacher").mkdir()
    for name in ("finetuned", "pretrained"):
        (root / "models" / name).rename(root / "models/teacher" / name)
    (root / "results/predictions/sst2/1/predicted/pretrained/sst2.jsonl").rename(root / "taught.jsonl")
    train = root / "data/tasks/sst2/train.tsv"
    header, *rows = train.read_text(encoding="utf-8").splitlines()
    lost = ["\t".join([row.rpartition("\t")[0], str(number % 2)]) for number, row in enumerate(rows)]
    train.write_text("\n".join([header, *lost]) + "\n", encoding="utf-8")
    return root


def test_finetune_student_learns_predictions_of_teacher_without_labels(study):
    taught = answers("taught.jsonl")
    agree = np.mean([one == other for one, other in zip(fine_tune_student(), taught, strict=True)])
    assert agree > 0.9 and {"0", "1"} == set(taught)
    alone = fine_tune_student("2", teacher=NO_TEACHER)
    assert np.mean([one == other for one, other in zip(alone, taught, strict=True)]) < 0.75


def test_distillation_stopped_in_either_part_resumes_with_same_bytes(study, monkeypatch):
    fine_tune_student()
    undisturbed = Path("models/finetuned/sst2/1/kept-model/model.safetensors").read_bytes()
    per_epoch = -(-len(Path("data/tasks/sst2/train.tsv").read_text().splitlines()[1:]) // 64)
    assert 5 < per_epoch < 5 + per_epoch < 3 * per_epoch
    for after in (5, per_epoch):
        with monkeypatch.context() as patch:
            stop_after(after, patch)
            with pytest.raises(Interrupted):
                fine_tune_student()
    fine_tune_student()
    assert Path("models/finetuned/sst2/1/kept-model/model.safetensors").read_bytes() == undisturbed


def test_load_fit_dense_loads_projection_from_student_folder(study):
    config, draw = BertConfig(30, 32, 1, 2, 64, 64), torch.Generator().manual_seed(1)
    stored = {"fit_dense.weight": torch.randn(64, 32), "fit_dense.bias": torch.randn(64)}
    weights = load_file(f"{STUDENT}/model.safetensors")
    save_file(weights | stored, f"{STUDENT}/model.safetensors")
    taken = load_fit_dense(Path(STUDENT), config, 64, draw)
    assert torch.equal(taken.weight, stored["fit_dense.weight"]) and torch.equal(taken.bias, stored["fit_dense.bias"])
    assert load_fit_dense(Path(STUDENT), config, 48, draw).weight.shape == (48, 32)  # a teacher of another width


def random_model(config: BertConfig, outputs: int, seed: int) -> BertForTask:
    model, draw = BertForTask(config, "sequence", outputs).double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=draw)
    return model


LENGTHS = (4, 2, 3)
IDS = torch.arange(5, 14)
STARTS = torch.tensor([0, *np.cumsum(LENGTHS)])
BATCH = TaskBatch(IDS, IDS * 0, STARTS, torch.tensor([0, 1, 1]), 3, np.array(LENGTHS), np.arange(3))


def sizes(layers: int, width: int) -> BertConfig:
    return BertConfig(20, width, layers, 2, 16, 8, hidden_dropout_prob=0.0)


def attention_scores(model: BertForTask, layer: int, states: torch.Tensor) -> torch.Tensor:
    """Query-key products of both heads, [2, tokens, tokens]."""
    part = model.bert.encoder.layer[layer].attention["self"]
    query, key = (linear(states).unflatten(1, (2, -1)).transpose(0, 1) for linear in (part.query, part.key))
    return query @ key.mT / query.shape[2] ** 0.5


def test_layer_imitation_equals_sums_over_sequences_layers_and_heads():
    teacher, student = random_model(sizes(4, 12), 2, 1).eval(), random_model(sizes(2, 8), 2, 2)
    fit = torch.nn.Linear(8, 12).double()
    objective = LayerImitation(student.bert, fit, teacher.bert)
    result, counts = objective(BATCH), objective.loss_counts(BATCH.workload)
    scores = states = 0.0
    for first, end in pairwise(STARTS.tolist()):
        ids = IDS[first:end]
        layout = PackedBatch.of(torch.tensor([0, end - first]), end - first)
        own, theirs = (model.bert.hidden_states(ids, ids * 0, layout) for model in (student, teacher))
        for layer in range(2):
            # The student's two layers imitate the second and the fourth of the teacher.
            own_scores = attention_scores(student, layer, own[layer])
            their_scores = attention_scores(teacher, 2 * layer + 1, theirs[2 * layer + 1])
            scores += (own_scores - their_scores).square().sum().item()
        for layer in range(3):
            states += (fit(own[layer]) - theirs[2 * layer]).square().sum().item()
    assert result["scores"].loss.item() == pytest.approx(scores, rel=1e-5)
    assert result["states"].loss.item() == pytest.approx(states, rel=1e-5)
    assert counts == {"scores": 2 * (16 + 4 + 9), "states": 12 * 9}
    sum(term.loss for term in result.values()).backward()
    assert student.bert.encoder.layer[0].attention["self"].query.weight.grad.any()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert not any("pooler" in name or "teacher" in name for name, _ in objective.named_parameters())


def test_soft_label_loss_equals_plain_loops_and_mse_for_regression():
    teacher, student = random_model(sizes(2, 12), 3, 1).eval(), random_model(sizes(1, 8), 3, 2)
    loss = SoftLabelLoss(teacher)
    outputs, wanted = (model(IDS, IDS * 0, STARTS).detach() for model in (student, teacher))
    total = 0.0
    for row, answer in zip(outputs.tolist(), wanted.tolist(), strict=True):
        for place in range(3):
            share = np.exp(answer[place]) / np.exp(answer).sum()
            total -= share * np.log(np.exp(row[place]) / np.exp(row).sum())
    assert loss(outputs, BATCH).item() == pytest.approx(total / 9, rel=1e-5)
    values = torch.tensor([0.5, 2.0, 1.0])
    regression = TaskBatch(IDS, IDS * 0, STARTS, values, 3, np.array(LENGTHS), np.arange(3))
    assert loss(values[:, None] + 2, regression).item() == pytest.approx(4.0)


def set_one_head(folder: Path) -> None:
    """One head for two."""
    write_json(folder / "config.json", {**read_json(folder / "config.json"), "num_attention_heads": 1})


def add_lstm(folder: Path) -> None:
    """An LSTM over the encoder."""
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"bilstm.weight_ih_l0": torch.zeros(4, 4)}, path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (set_one_head, "different numbers of attention heads: 2, and the teacher has 1"),
        (add_lstm, "the teacher has weights that are not supported: bilstm"),
        (shutil.rmtree, "(?s)no teacher for this task.*finetune.teacher"),
    ],
)
def test_finetune_unsuitable_teacher_is_rejected_before_training(study, monkeypatch, spoil, message):
    spoil(Path("models/teacher/finetuned/sst2/1/kept-model"))
    # No trainer is made.
    monkeypatch.setattr("pipeline_src.finetune.task_trainer.make_trainer", None)
    with pytest.raises(PipelineError, match=message):
        fine_tune_student()


def test_finetune_without_layer_imitation_accepts_teacher_with_other_heads(study):
    set_one_head(Path("models/teacher/finetuned/sst2/1/kept-model"))
    assert len(fine_tune_student(layer_epochs=0, epochs=1)) == len(answers("taught.jsonl"))


def test_finetune_augmented_features_are_cached(study, monkeypatch, caplog):
    entries = len(Path(STUDENT, "vocab.txt").read_text(encoding="utf-8").splitlines())
    Path("models/teacher/word_vectors").mkdir()
    save_file({VECTORS: torch.randn(entries, 8)}, "models/teacher/word_vectors/model.safetensors")
    caplog.set_level("INFO", "pipeline_src")
    recipe = {"num_augmentations": 2, "epochs": 1, "layer_epochs": 0}
    first = fine_tune_student(**recipe)
    read = int(re.search(r"sst2: (\d+) sequences with their texts in other words", caplog.text)[1])
    rows = len(Path("data/tasks/sst2/train.tsv").read_text(encoding="utf-8").splitlines()) - 1
    assert 2 * rows < read <= 3 * rows
    monkeypatch.setattr(finetune, "augment", lambda *_, **__: pytest.fail("the cache has them"))
    assert fine_tune_student(**recipe) == first
