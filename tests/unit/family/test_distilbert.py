"""DistilBERT: initial weights of the student, loss terms, and teachers that are rejected."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json, write_json
from pipeline_src.family.distilbert.objective import DistilBertObjective, spread_layers
from pipeline_src.model.bert import BertConfig, BertForMaskedLM, initialise, load_architecture
from pipeline_src.model.flops import Workload
from pipeline_src.model.losses import LazyLogits, distillation_loss
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.phases import Phase
from pipeline_src.pretrain.pretrain import checkpoint_identity
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import DistilBertParams, PretrainParams, Steps
from tests.unit.pretrain.small import WAYS, train_phase, two_pairs


def config(layers: int = 2, **changes) -> BertConfig:
    sizes = {"vocab_size": 60, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64} | changes
    return BertConfig(**sizes, num_hidden_layers=layers, max_position_embeddings=16, hidden_dropout_prob=0.0)


def build(teacher: BertConfig, student: BertConfig, **own) -> DistilBertObjective:
    model = BertForMaskedLM(teacher)
    initialise(model, torch.Generator().manual_seed(5))
    objective = DistilBertObjective(student, "none", DistilBertParams(**own))
    objective.set_teacher(model.eval().requires_grad_(False))
    objective.init_weights(torch.Generator().manual_seed(0))
    return objective


@pytest.fixture
def batch() -> TensorBatch:
    return two_pairs(ids=[2, 7, 4, 3, 9, 3, 2, 4, 3, 11, 3], predicted=[1, 2, 7])


@pytest.mark.parametrize("tokens", ["all", "predicted"])
def test_distilbert_student_equal_to_teacher_has_no_loss(batch, tokens):
    terms = build(config(), config(), loss_on=tokens)(batch)
    assert terms["kl"].loss.abs() < 1e-4 and terms["cosine"].loss.abs() < 1e-5
    other = build(config(), config(), loss_on=tokens, init="random")(batch)
    assert other["kl"].loss > 1e-3 and other["cosine"].loss > 1e-3


@pytest.mark.parametrize(("student", "teacher", "layers"), [(6, 12, [0, 2, 4, 7, 9, 11]), (1, 4, [0]), (2, 2, [0, 1])])
def test_spread_layers_include_first_and_last_teacher_layer(student, teacher, layers):
    assert spread_layers(student, teacher) == layers


def test_distilbert_student_starts_from_spread_layers_of_teacher():
    objective = build(config(5), config(3))
    teacher = dict(objective.teacher.named_parameters())
    for name, parameter in objective.model.named_parameters():
        for own, theirs in enumerate((0, 2, 4)):
            name = name.replace(f".layer.{own}.", f".layer.{theirs}!")
        assert torch.equal(parameter, teacher[name.replace("!", ".")]), name


def test_distilbert_teacher_is_not_trained_or_saved(batch):
    objective = build(config(4), config())
    assert not set(objective.parameters()) & set(objective.teacher.parameters())
    assert set(objective.checkpoint_parameters()) == {name for name, _ in objective.model.named_parameters()}
    objective.train()
    assert not objective.teacher.training
    sum(term.loss for term in objective(batch).values()).backward()
    assert all(parameter.grad is None for parameter in objective.teacher.parameters())
    assert list(objective.saved_models()) == [""]


def test_distilbert_loss_weight_of_zero_removes_term(batch):
    objective = build(config(), config(), alpha_cos=0, alpha_ce=0)
    assert list(objective(batch)) == list(objective.weights) == ["mlm"]
    with pytest.raises(ValueError, match="are all 0"):
        DistilBertParams(alpha_cos=0, alpha_ce=0, alpha_mlm=0)
    # Without the cosine, the teacher may be wider.
    assert build(config(hidden_size=64), config(), init="random", alpha_cos=0)(batch)["kl"].loss > 0


@pytest.mark.parametrize(
    ("own", "read", "predicted"),
    [({}, 11, 11), ({"loss_on": "predicted"}, 11, 3), ({"loss_on": "predicted", "alpha_cos": 0}, 5, 3)],
)
def test_distilbert_training_flops_include_teacher_forward(own, read, predicted):
    work = Workload(sequences=2, tokens=11, sum_len_squared=61, predictions=3, num_outputs=5, attended_pairs=28)
    pairs = 61 if read == 11 else 28
    computed = work._replace(predictions=predicted, num_outputs=read, attended_pairs=pairs)
    student, teacher = config(2), config(4)
    expected = student.training_flops(computed) + teacher.training_flops(computed) // 3
    assert build(teacher, student, **own).training_flops(work) == expected


@pytest.mark.parametrize(
    ("teacher", "own", "message"),
    [
        ({"hidden_size": 64}, {}, "hidden_size 64, not 32"),
        ({"hidden_size": 64}, {"init": "random"}, "hidden_size 64, not 32"),
        ({"num_attention_heads": 4}, {}, "num_attention_heads 4, not 2"),
        ({"layers": 1}, {}, "the student has more layers than its teacher: 2"),
    ],
)
def test_distilbert_incompatible_teacher_is_rejected(teacher, own, message):
    with pytest.raises(PipelineError, match=message):
        build(config(**teacher), config(), **own)


def test_distilbert_student_of_other_architecture_is_rejected():
    albert = load_architecture("albert").config(60, 32, 2, 2, 64, 16)
    with pytest.raises(PipelineError, match="lack layers of the student's: BERT"):
        build(config(), albert)


def test_distilbert_positions_with_other_first_position_are_not_copied():
    objective = build(config(), load_architecture("roberta").config(60, 32, 2, 2, 64, 17))
    ours, theirs = (model.bert.embeddings.position_embeddings.weight for model in (objective.model, objective.teacher))
    assert len(ours) == 17
    assert not torch.equal(ours[:16], theirs)


def test_pretrain_distilbert_both_phases_learn_and_keep_teacher_unchanged(study):
    before = hash_file("teacher/model.safetensors")
    train_phase("phase1", **WAYS["distilbert"], phase1=60)
    train_phase("phase2", **WAYS["distilbert"], phase1=60)
    figures = read_json("results/pretrain/phase2.json")["validation"]
    assert 0 < figures["cosine_loss"] < 0.5
    assert figures["kl_loss"] > 0
    assert "nsp_accuracy" not in figures
    assert hash_file("teacher/model.safetensors") == before


def test_pretrain_distilbert_unfit_teacher_is_rejected_and_leaves_no_output(study):
    def refused(message: str, **changes) -> None:
        with pytest.raises(PipelineError, match=message):
            train_phase("phase1", **WAYS["distilbert"] | changes, phase1=3)
        assert not list(Path("checkpoints").rglob("*")) and not Path("models").exists()

    refused("the teacher.s folder has no config.json: elsewhere", teacher="elsewhere")
    refused("the teacher.s folder has no config.json: catalogue/no-teacher", teacher="catalogue/no-teacher")
    refused("shorter than the student.s: 32 tokens", max_position_embeddings=48)
    raw = read_json("teacher/config.json")
    write_json(study / "teacher/config.json", raw | {"model_type": "roberta", "layer_norm_eps": 1e-5})
    refused("unsupported architecture of the teacher: roberta")
    write_json(study / "teacher/config.json", raw | {"is_decoder": True})
    refused("the teacher is a causal model")
    write_json(study / "teacher/config.json", raw)
    (study / "teacher/model.safetensors").unlink()
    refused("no weights to read")
    shutil.copytree(study / "data/vocabulary", study / "other")
    text = (study / "other/tokenizer.json").read_text(encoding="utf-8").replace('"bal"', '"zzz"')
    (study / "teacher/tokenizer.json").write_text(text, encoding="utf-8")
    (study / "teacher/vocab.txt").unlink()
    refused("teacher and student have different vocabularies")


@pytest.mark.parametrize("rows", [1, 3, 9])
def test_distillation_loss_autocast_sums_bfloat16_products_in_float32(rows):
    generator = torch.Generator().manual_seed(rows)
    shapes = ((rows, 16), (64, 16), (64,))
    student, teacher = ([torch.randn(shape, generator=generator) for shape in shapes] for _ in range(2))
    wide, narrow = ([part.clone().requires_grad_() for part in student] for _ in range(2))
    distillation_loss(LazyLogits(*wide), LazyLogits(*teacher), 2.0).backward()
    with torch.autocast("cpu", torch.bfloat16):
        result = distillation_loss(LazyLogits(*narrow), LazyLogits(*teacher), 2.0)
        own, target = (
            ((inner / 2.0) @ weight.T).double().add(bias / 2.0).log_softmax(1)
            for inner, weight, bias in (student, teacher)
        )
    exact = 4.0 * F.kl_div(own, target, reduction="sum", log_target=True)
    assert result.item() == pytest.approx(exact.item(), rel=1e-6)
    result.backward()
    for expected, part in zip(wide, narrow, strict=True):
        assert part.grad.dtype == torch.float32
        assert (expected.grad - part.grad).abs().max() < 0.03 * expected.grad.abs().max()


def build_student(architecture: str, **theirs) -> DistilBertObjective:
    """Return a student with as many layers as its teacher, whose config differs in ``theirs``."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "max_position_embeddings": 16}
    params = ModelParams(architecture=architecture, hidden_dropout_prob=0.0, **sizes)
    own = load_architecture(architecture).config.from_params(params, 60)
    return build(dataclasses.replace(own, **theirs), own)


@pytest.mark.parametrize(
    ("architecture", "theirs"),
    [
        ("deberta", {"max_position_embeddings": 64}),  # the middle rows are those of near distances
        ("bert", {"vocab_size": 64}),  # padded, as ModernBERT's is
    ],
)
def test_distilbert_student_of_larger_teacher_with_all_layers_has_no_kl(batch, architecture, theirs):
    terms = build_student(architecture, **theirs)(batch)
    assert terms["kl"].loss.item() == pytest.approx(0, abs=1e-4)


def test_distilbert_teacher_of_other_embedding_size_is_rejected():
    with pytest.raises(PipelineError, match="differ in size"):
        build_student("electra", embedding_size=16)


def test_checkpoint_identity_depends_on_teacher_weights_of_any_format(study):
    tensors = load_file("teacher/model.safetensors")
    Path("teacher/model.safetensors").unlink()
    pretrain = PretrainParams(steps=Steps(phase1=3, phase2=1), objective="tinybert", teacher="teacher")
    model = ModelParams(num_hidden_layers=1, hidden_size=64, max_position_embeddings=32, num_attention_heads=1)
    phase = Phase("phase1", 1, 0.15, model, pretrain)
    result = []
    for more in (0, 1):
        torch.save({name: tensor + more for name, tensor in tensors.items()}, "teacher/pytorch_model.bin")
        result.append(checkpoint_identity(phase))
    assert result[0] != result[1]
