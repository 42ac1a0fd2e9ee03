"""TinyBERT: losses, teachers that are rejected, FLOPs, and saved models."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.family.tinybert.objective import TinyBertObjective
from pipeline_src.model.bert import BertConfig, initialise
from pipeline_src.model.flops import Workload
from pipeline_src.report.table import validation_line
from tests.unit.pretrain.small import WAYS, train_phase, two_pairs


def config(layers: int, hidden: int = 32, heads: int = 2) -> BertConfig:
    return BertConfig(60, hidden, layers, heads, 64, 16, hidden_dropout_prob=0.0)


def build(student: BertConfig, teacher: BertConfig) -> TinyBertObjective:
    model = TinyBertObjective.build_teacher(teacher)
    initialise(model, torch.Generator().manual_seed(5))
    objective = TinyBertObjective(student, "none")
    objective.set_teacher(model.eval().requires_grad_(False))
    objective.init_weights(torch.Generator().manual_seed(0))
    return objective


def test_tinybert_student_equal_to_teacher_has_no_loss():
    objective = build(config(2), config(2))
    nothing = np.zeros(0, np.int64)
    batch = two_pairs(ids=[2, 7, 4, 3, 9, 3, 2, 4, 3, 11, 3], predicted=nothing, labels=nothing)
    assert all(term.loss > 1e-3 for term in objective(batch).values())
    objective.model.bert.load_state_dict(objective.teacher.state_dict())
    with torch.no_grad():
        objective.model.fit_dense.weight.copy_(torch.eye(32))
    terms = objective(batch)
    assert all(term.loss < 1e-6 for term in terms.values())
    sum(term.loss for term in terms.values()).backward()
    assert all(parameter.grad is None for parameter in objective.teacher.parameters())
    assert not any(name.startswith("teacher") for name in objective.checkpoint_parameters())


@pytest.mark.parametrize(
    ("student", "message"),
    [
        (config(2, 32, 4), "different numbers of attention heads: 4, and the teacher has 2"),
        (config(4), "not a multiple of the student's: 4, and the teacher has 6"),
    ],
)
def test_tinybert_incompatible_teacher_is_rejected(student, message):
    with pytest.raises(PipelineError, match=message):
        build(student, config(6))


def test_tinybert_training_flops_include_projection_and_teacher_forward():
    work = Workload(2, 11, 61, 0, 11, 61)
    student, teacher = config(2, 16), config(4)
    projection = 6 * 16 * 32 * 3 * 11
    expected = student.training_flops(work) + projection + teacher.training_flops(work) // 3
    assert build(student, teacher).training_flops(work) == expected


def test_pretrain_tinybert_both_phases_save_loadable_encoder(study, fine_tune):
    transformers = pytest.importorskip("transformers")
    for phase in ("phase1", "phase2"):
        train_phase(phase, **WAYS["tinybert"] | {"hidden_size": 32}, phase1=60, eval_steps=20)
    curve = pd.read_csv("results/pretrain/phase1.tsv", sep="\t")
    for name in ("validation_scores_loss", "validation_states_loss"):
        before, after = curve[name].dropna()
        assert after < before
    figures = read_json("results/pretrain/phase2.json")["validation"]
    assert figures.keys() == {"scores_loss", "states_loss"}
    assert "scores_loss" in validation_line(figures)
    folder = study / "models/pretrained/phase2"
    loaded, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True, add_pooling_layer=False)
    assert not info["missing_keys"]
    assert set(info["unexpected_keys"]) == {"fit_dense.weight", "fit_dense.bias"}
    assert loaded.config.architectures == ["BertModel"]
    assert (fine_tune(hidden_size=32, num_attention_heads=1) / "model.safetensors").exists()
