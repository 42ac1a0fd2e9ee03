"""Every objective trains every architecture, or is rejected with the reason in the architecture's spec."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist

from pipeline_src.base.registry import architecture_spec, member_names
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.model.bert import load_architecture
from pipeline_src.pretrain.build import empty_objective
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.objective import load_objective
from pipeline_src.pretrain.pretrain import FORWARD_METHODS
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import DistilBertParams, ElectraParams
from pipeline_src.training.distributed import FULL_SHARD, NO_SHARD, SHARD_GRAD_OP, shard
from tests.unit.pretrain.small import two_pairs

OWN = {
    "electra": ElectraParams(generator_width=0.5, embeddings="separate"),
    "distilbert": DistilBertParams(init="random"),
}
PARAMS = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
}


@pytest.mark.parametrize("architecture", member_names("models"))
@pytest.mark.parametrize("changes", [{"bilstm": True}, {"frozen": "last"}, {}])
def test_saved_names_of_fine_tuned_weights_are_read_back(architecture, changes):
    config = load_architecture(architecture).config.from_params(ModelParams(architecture=architecture, **PARAMS), 60)
    names, use = config.names, "encoder" if changes else "sequence"
    for name in BertForTask(config, "sequence", 3, **changes).state_dict():
        saved = names.to_hf_name(name, names.classes[use])
        assert names.from_hf_name(saved, names.classes[use]) == name


def build(architecture, objective, own=None, how=NO_SHARD):
    """Return an objective with two layers, with a teacher if it needs one."""
    kind = load_objective(objective)
    config = load_architecture(architecture).config.from_params(ModelParams(architecture=architecture, **PARAMS), 60)
    teacher = None
    if kind.build_teacher is not None:
        teacher = kind.build_teacher(config).eval().requires_grad_(False)
    made = empty_objective(kind, config, "none", own or OWN.get(objective), teacher)
    if how != NO_SHARD:
        shard(made, torch.device("cpu"), how, FORWARD_METHODS)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(0.01)
    return made


def learn(made) -> TensorBatch:
    """Compute the gradients of a batch, masked if the objective predicts masked tokens."""
    predicted = np.array([1, 2, 5] if made.spec.collator == "mlm" else [], np.int64)
    draws = np.linspace(0.1, 0.9, len(predicted), dtype=np.float32)
    ids = [2, 7, 4, 3, 9, 3, 2, 4, 3, 11, 3]
    batch = two_pairs(ids=ids, predicted=predicted, labels=predicted + 20, sampling_noise=draws)
    sum(term.loss for term in made(batch).values()).backward()
    return batch


@pytest.mark.parametrize("objective", ["electra", "distilbert", "tinybert"])
@pytest.mark.parametrize("architecture", member_names("models"))
def test_objective_with_every_architecture_learns_or_is_rejected(architecture, objective):
    reason = architecture_spec(architecture).refused_objectives.get(objective)
    if reason:
        assert reason[0].islower()
        assert not reason.endswith(".")
        return
    made = build(architecture, objective)
    made.init_weights(torch.Generator().manual_seed(0))
    batch = learn(made)
    trained = {name: parameter.grad for name, parameter in made.named_parameters() if parameter.grad is not None}
    assert all(gradient.isfinite().all() for gradient in trained.values())
    for part in (".encoder.", ".embeddings."):
        assert any(part in name for name in trained)
    assert made.training_flops(batch.workload) > 0
    assert all(made.loss_counts(batch.workload).values())


@pytest.mark.parametrize(
    ("architecture", "objective", "own"),
    [
        ("deberta_v2", "electra", ElectraParams(generator_width=1.0, embeddings="disentangled")),
        ("deberta", "electra", OWN["electra"]),
        ("bert", "distilbert", DistilBertParams(alpha_ce=0, alpha_mlm=0, init="random")),
    ],
)
def test_objective_every_trained_parameter_has_gradient(architecture, objective, own):
    """DistributedDataParallel waits for the gradient of every parameter."""
    made = build(architecture, objective, own)
    learn(made)
    assert not [name for name, part in made.named_parameters() if part.requires_grad and part.grad is None]


@pytest.mark.parametrize("how", [SHARD_GRAD_OP, FULL_SHARD])
@pytest.mark.parametrize(
    ("architecture", "objective"), [("bert", "tinybert"), ("deberta", "mlm"), ("deberta_v2", "mlm")]
)
def test_shard_methods_beside_forward_gather_weights(tmp_path, architecture, objective, how):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        learn(build(architecture, objective, how=how))
    finally:
        dist.destroy_process_group()
