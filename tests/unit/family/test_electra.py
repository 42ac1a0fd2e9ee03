"""ELECTRA: sampling, losses, embeddings, and where gradients flow."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.family.electra.encoder import ElectraConfig
from pipeline_src.family.electra.objective import (
    AddedTable,
    ElectraObjective,
    area_under_curve,
    copying_cross_entropy,
    generator_config,
)
from pipeline_src.model.bert import BertConfig, load_architecture
from pipeline_src.model.flops import Workload
from pipeline_src.model.hub import save_tensors
from pipeline_src.model.losses import LazyLogits
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ElectraParams
from tests.unit.pretrain.small import train_phase, two_pairs

CONFIG = ElectraConfig(60, 32, 2, 2, 64, 16, hidden_dropout_prob=0.0, embedding_size=16)
ELECTRA = {"objective": "electra", "architecture": "electra", "embedding_size": 16}
PUBLISHED = {  # section 6 of the design: unique tensors of discriminator and generator, transformers 5.23
    "small": ((12, 256, 4, 1024, 128, 0.25), 13_549_057, 4_620_026),
    "base": ((12, 768, 12, 3072, 768, 1 / 3), 109_483_009, 33_740_602),
}


def build(config: BertConfig = CONFIG, **own) -> ElectraObjective:
    objective = ElectraObjective(config, "none", ElectraParams(**{"generator_width": 0.5} | own))
    objective.init_weights(torch.Generator().manual_seed(0))
    return objective


@pytest.fixture
def batch() -> TensorBatch:
    draws = np.array([0.1, 0.6, 0.9], np.float32)
    return two_pairs(ids=[2, 7, 4, 3, 9, 3, 2, 4, 3, 11, 3], predicted=[1, 2, 7], sampling_noise=draws)


def test_electra_shared_embeddings_are_one_parameter():
    objective = build()
    table = objective.model.bert.embeddings.word_embeddings.weight
    assert objective.generator.cls["predictions"].decoder.weight is table
    names = objective.checkpoint_parameters()
    assert len({id(parameter) for parameter in names.values()}) == len(names) == len(list(objective.parameters()))
    assert not any(name.startswith("generator.bert.embeddings.") for name in names)


def test_electra_disentangled_embeddings_have_separate_gradients(batch):
    objective = build(embeddings="disentangled")
    embeddings = objective.generator.bert.embeddings
    tables = [embeddings.word_embeddings, embeddings.position_embeddings]
    added = added_tables(objective)
    assert [table.base[0] for table in added] == tables
    assert not any(table.weight.any() for table in added)
    for term, trained, others in (("rtd", added, tables), ("mlm", tables, added)):
        objective.zero_grad()
        objective(batch)[term].loss.backward()
        assert all(table.weight.grad.any() for table in trained)
        assert all(table.weight.grad is None for table in others)


def test_electra_disentangled_embeddings_are_saved_as_sum(tmp_path):
    objective = build(embeddings="disentangled")
    word = "bert.embeddings.word_embeddings.weight"
    added = added_tables(objective)[0].weight
    with torch.no_grad():
        added.normal_(generator=torch.Generator().manual_seed(2))
    before = added.detach().clone()
    saved = {name: saved.module.state_dict() for name, saved in objective.saved_models().items()}
    assert torch.equal(saved[""][word], saved["generator"][word] + added)
    assert objective.checkpoint_parameters()[word] is added
    seen = torch.tensor([7, 9])
    torch.testing.assert_close(objective.model.bert.embeddings.word_embeddings(seen), saved[""][word][seen])
    for name, module in objective.saved_models().items():
        (tmp_path / name).mkdir(exist_ok=True)
        save_tensors(tmp_path / name, saved[name], module.config, module.huggingface_class)
    with torch.no_grad():
        added.zero_()
    objective.load_models(tmp_path)
    torch.testing.assert_close(added, before)


def added_tables(objective: ElectraObjective) -> list[AddedTable]:
    return [table for table in objective.model.bert.embeddings.children() if isinstance(table, AddedTable)]


def test_electra_gradient_clip_groups_of_separate_embeddings_are_separate():
    assert len(build().gradient_clip_groups()) == 1
    for embeddings in ("separate", "disentangled"):
        objective = build(embeddings=embeddings)
        discriminator, generator = (set(map(id, group)) for group in objective.gradient_clip_groups())
        assert not discriminator & generator and len(discriminator | generator) == len(list(objective.parameters()))


def test_electra_fill_replaces_predicted_tokens_and_correct_sample_is_original(batch):
    objective = build()
    _, text = objective.fill(batch)
    assert (text.inputs != text.labels).nonzero().flatten().tolist() == [1, 2, 7]
    assert len(objective.model.logits(text)) == 11
    # A generator that always says 21, the original token at position 2.
    with torch.no_grad():
        objective.generator.cls["predictions"].decoder.bias[21] = 1e4
    words, text = objective.fill(batch)
    assert (text.inputs != text.labels).nonzero().flatten().tolist() == [1, 7]
    assert words.correct == 1


def test_generator_config_scales_discriminator():
    sizes = generator_config(CONFIG, ElectraParams(generator_width=0.25, generator_depth=0.5))
    assert (sizes.hidden_size, sizes.num_hidden_layers, sizes.intermediate_size) == (8, 1, 16)
    assert (sizes.num_attention_heads, sizes.embedding_width) == (1, 16)
    uneven = generator_config(ElectraConfig(60, 96, 2, 8, 64), ElectraParams(generator_width=0.9))
    assert (uneven.hidden_size, uneven.num_attention_heads) == (86, 2)


@pytest.mark.parametrize(
    ("architecture", "hidden", "heads", "part"), [("modernbert", 768, 12, "head"), ("bilstm", 256, 4, "hidden")]
)
def test_generator_config_odd_width_where_it_must_be_even_is_rejected(architecture, hidden, heads, part):
    sizes = {"hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": heads}
    params = ModelParams(architecture=architecture, **sizes)
    config = load_architecture(architecture).config.from_params(params, 100, False)
    assert generator_config(config, ElectraParams(generator_width=0.25)).hidden_size == hidden // 4
    with pytest.raises(PipelineError, match=f"{architecture} needs an even {part} width") as error:
        generator_config(config, ElectraParams(generator_width=0.3))
    assert error.value.where == "objectives.electra.generator_width"


@pytest.mark.parametrize("size", PUBLISHED)
def test_electra_parameter_count_equals_published(size):
    (layers, hidden, heads, inner, embedding, share), discriminator, generator = PUBLISHED[size]
    config = ElectraConfig(30_522, hidden, layers, heads, inner, embedding_size=embedding)
    with torch.device("meta"):
        objective = ElectraObjective(config, "none", ElectraParams(generator_width=share))
    result = [sum(p.numel() for p in module.parameters()) for module in (objective.model, objective.generator)]
    assert result == [discriminator, generator]


def test_electra_unshareable_embeddings_are_rejected():
    config = BertConfig(60, 32, 2, 2, 64, 16)
    with pytest.raises(PipelineError, match=r"(?s)cannot share embeddings: 16, not 32.*embeddings: separate"):
        build(config)
    assert build(config, generator_width=1.0).weights == {"mlm": 1.0, "rtd": 50.0}
    assert build(config, embeddings="separate", disc_weight=10).weights["rtd"] == 10
    with pytest.raises(ValueError, match="disc_target: mlm"):
        ElectraParams(disc_target="mlm", embeddings="disentangled")


def test_area_under_curve_equals_scikit_learn():
    rng = np.random.default_rng(0)
    negatives, positives = rng.integers(0, 4, 30), rng.integers(0, 3, 30)
    scores = np.concatenate([np.repeat(np.arange(30), counts) for counts in (negatives, positives)])
    labels = np.repeat([0, 1], [negatives.sum(), positives.sum()])
    assert area_under_curve(negatives, positives) == pytest.approx(roc_auc_score(labels, scores))
    assert area_under_curve(negatives, np.zeros(30)) == 0.5


@pytest.mark.parametrize(
    ("target", "loss_on", "head"),
    [("rtd", "all", 32**2 + 32), ("rtd", "predicted", 32**2 + 32), ("mlm", "all", 32), ("mlm", "predicted", 0)],
)
def test_electra_training_flops_are_those_of_both_models(target, loss_on, head):
    """Other tests compare the FLOPs of the encoders with torch's counter."""
    work = Workload(sequences=2, tokens=11, sum_len_squared=61, predictions=3, num_outputs=5, attended_pairs=28)
    objective = build(disc_target=target, disc_loss_on=loss_on)
    read = work if loss_on == "predicted" else work._replace(num_outputs=11, attended_pairs=61)
    positions = 3 if loss_on == "predicted" else 11
    predictions = positions if target == "mlm" else 0
    judge = CONFIG.training_flops(read._replace(predictions=predictions)) + 6 * head * positions
    assert objective.training_flops(work) == objective.generator_config.training_flops(work) + judge


def test_copying_cross_entropy_equals_mixture():
    draw = torch.Generator().manual_seed(0)
    lazy_logits = LazyLogits(torch.randn(40, 8, generator=draw), torch.randn(12, 8, generator=draw), torch.zeros(12))
    gates = torch.linspace(-6, 6, 40)
    seen, labels = torch.randint(0, 12, (2, 40), generator=draw)
    labels[10:] = seen[10:]
    loss, correct = copying_cross_entropy(lazy_logits, gates, seen, labels)
    copied = gates.sigmoid()[:, None]
    probs = (lazy_logits.inner @ lazy_logits.weight.T).softmax(1) * (1 - copied)
    probs = probs.scatter_add(1, seen[:, None], copied)
    assert 0 < correct == (probs.argmax(1) == labels).sum() < 40
    torch.testing.assert_close(loss, -probs.gather(1, labels[:, None]).log().sum())


def curve(**changes) -> pd.DataFrame:
    train_phase("phase1", **ELECTRA, **{"phase1": 6, "hidden_dropout_prob": 0.0, "eval_steps": 3} | changes)
    return pd.read_csv("results/pretrain/phase1.tsv", sep="\t")


def test_pretrain_electra_mlm_target_learns_original_tokens_in_both_phases(study):
    """The second phase continues with the first phase's copy gate, which transformers does not have."""
    own = {"objectives": {"electra": {"disc_target": "mlm", "disc_loss_on": "all", "disc_weight": 1.0}}}
    table = curve(**own, phase1=40, eval_steps=20)
    assert table["words_loss"].iloc[-1] < table["words_loss"].iloc[0]
    assert table["rtd_loss"].isna().all()
    train_phase("phase2", **ELECTRA | own, phase1=40, hidden_dropout_prob=0.0)
    figures = read_json("results/pretrain/phase2.json")["validation"]
    assert 0 < figures["words_accuracy"] <= 1
    assert "rtd_loss" not in figures
    for phase in ("phase1", "phase2"):
        assert "copy_gate.weight" in load_file(f"models/pretrained/{phase}/model.safetensors")


def test_pretrain_electra_losses_do_not_depend_on_microbatches(study):
    full, pieces = curve(), curve(microbatch_tokens=50)
    assert full["validation_replaced"].dropna().between(0.5, 1).all()
    for name in ("loss", "mlm_loss", "rtd_loss", "rtd_accuracy", "validation_rtd_auc"):
        np.testing.assert_allclose(pieces[name], full[name], rtol=2e-4, atol=1e-6)


def test_pretrain_electra_both_phases_finetune_and_load_in_transformers(study, fine_tune):
    transformers = pytest.importorskip("transformers")
    train_phase("phase1", **ELECTRA, phase1=40, eval_steps=20)
    train_phase("phase2", **ELECTRA, phase1=40)
    figures = read_json("results/pretrain/phase2.json")["validation"]
    assert figures["rtd_loss"] < 0.6
    assert 0 <= figures["rtd_recall"] <= 1
    assert "nsp_accuracy" not in figures
    folder = study / "models/pretrained/phase2"
    for subfolder, kind in (("", "ElectraForPreTraining"), ("generator", "ElectraForMaskedLM")):
        loaded, info = transformers.AutoModel.from_pretrained(folder / subfolder, output_loading_info=True)
        assert not info["missing_keys"]
        assert loaded.config.architectures == [kind]
        assert loaded.config.embedding_size == 16
        assert transformers.AutoTokenizer.from_pretrained(folder / subfolder)
    tuned = fine_tune(architecture="electra", embedding_size=16)
    _, info = transformers.AutoModelForSequenceClassification.from_pretrained(tuned, output_loading_info=True)
    assert not info["missing_keys"]


def test_pretrain_electra_damaged_generator_is_rejected(study):
    sizes = ELECTRA | {"phase1": 2, "train_batch_size": 4, "hidden_size": 16}
    train_phase("phase1", **sizes)
    path = Path("models/pretrained/phase1/generator/model.safetensors")
    content = bytearray(path.read_bytes())
    content[-2] ^= 16
    path.write_bytes(content)
    with pytest.raises(PipelineError, match="fails its checksums: generator/model.safetensors"):
        train_phase("phase2", **sizes)
