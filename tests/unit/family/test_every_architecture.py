"""Every objective with every architecture: it learns, or the architecture's file says why it does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist

from pipeline_src.base.registry import architecture_spec, member_names, objective_spec
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
PARAMS = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "max_position_embeddings": 16}
PARAMS |= {"hidden_dropout_prob": 0.0}


def batch(predicted: list[int]) -> TensorBatch:
    count, positions = len(predicted), np.array(predicted, np.int64)
    arrays = {
        "predicted": positions,
        "labels": positions + 20,
        "sampling_noise": np.linspace(0.1, 0.9, count, dtype=np.float32),
    }
    return two_pairs(ids=[2, 7, 4, 3, 9, 3, 2, 4, 3, 11, 3], **arrays)


@pytest.mark.parametrize("objective", ["electra", "distilbert", "tinybert"])
@pytest.mark.parametrize("architecture", member_names("models"))
def test_objective_with_every_architecture_learns_or_is_refused(architecture, objective):
    kind, config = load_objective(objective), load_architecture(architecture).config
    made = kind(config.from_params(ModelParams(architecture=architecture, **PARAMS), 60), "none", OWN.get(objective))
    reason = architecture_spec(architecture).refused_objectives.get(objective)
    if reason:
        assert reason[0].islower() and not reason.endswith(".")
        return
    if objective_spec(objective).needs_teacher:
        larger = ModelParams(architecture=architecture, **PARAMS | {"num_hidden_layers": 2})
        made.set_teacher(kind.build_teacher(config.from_params(larger, 60)).eval().requires_grad_(False))
    made.init_weights(torch.Generator().manual_seed(0))
    learnt = batch([1, 2, 5] if objective_spec(objective).collator == "mlm" else [])
    terms, counts = made(learnt), made.loss_counts(learnt.workload)
    sum(made.weights[name] * term.loss / counts[name] for name, term in terms.items()).backward()
    assert all(torch.isfinite(term.loss) for term in terms.values())
    trained = {name for name, parameter in made.named_parameters() if parameter.grad is not None}
    assert any(".encoder." in name for name in trained) and any(".embeddings." in name for name in trained)
    assert made.training_flops(learnt.workload) > 0


@pytest.mark.parametrize(
    ("architecture", "objective", "own"),
    [
        ("deberta_v2", "electra", ElectraParams(generator_width=1.0, embeddings="disentangled")),
        ("deberta", "electra", OWN["electra"]),
        ("bert", "distilbert", DistilBertParams(alpha_ce=0, alpha_mlm=0, init="random")),
    ],
)
def test_objective_every_trained_parameter_has_gradient(architecture, objective, own):
    """DistributedDataParallel waits for every one of them."""
    made = filled(architecture, objective, own)
    sum(term.loss for term in made(batch([1, 2, 5])).values()).backward()
    assert not [name for name, part in made.named_parameters() if part.requires_grad and part.grad is None]


@pytest.mark.parametrize("how", [SHARD_GRAD_OP, FULL_SHARD])
@pytest.mark.parametrize(
    ("architecture", "objective"), [("bert", "tinybert"), ("deberta", "mlm"), ("deberta_v2", "mlm")]
)
def test_shard_methods_beside_forward_gather_weights(tmp_path, architecture, objective, how):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        made = filled(architecture, objective, how=how)
        sum(term.loss for term in made(batch([] if objective == "tinybert" else [1, 2, 5])).values()).backward()
    finally:
        dist.destroy_process_group()


def filled(architecture, objective, own=None, how=NO_SHARD):
    """The objective with a teacher where it needs one, and all weights alike."""
    kind, config = load_objective(objective), load_architecture(architecture).config
    params = ModelParams(architecture=architecture, **PARAMS | {"num_hidden_layers": 2})
    teacher = None
    if kind.build_teacher is not None:
        teacher = kind.build_teacher(config.from_params(params, 60)).eval().requires_grad_(False)
    made = empty_objective(kind, config.from_params(params, 60), "none", own, teacher)
    if how != NO_SHARD:
        shard(made, torch.device("cpu"), how, FORWARD_METHODS)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(0.01)
    return made
