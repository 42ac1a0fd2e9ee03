"""Base class of masked and causal language modelling: loss terms, counts, weights, saved models."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pipeline_src.model import bert
from pipeline_src.model.bert import BertConfig, BertForPretraining
from pipeline_src.model.flops import Workload
from pipeline_src.model.losses import summed_cross_entropy
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.mlm_objective import MLMObjective
from pipeline_src.pretrain.objective import load_objective
from tests.unit.pretrain.small import two_pairs


def build(name: str, pairs: bool) -> MLMObjective:
    kind = load_objective(name)
    objective = kind(BertConfig(60, 32, 1, 1, 64, 16, is_decoder=kind.spec.causal), "nsp" if pairs else "none")
    objective.init_weights(torch.Generator().manual_seed(0))
    return objective.eval()


@pytest.fixture
def batch() -> TensorBatch:
    return two_pairs(ids=[2, 7, 8, 3, 9, 3, 2, 10, 3, 11, 3], predicted=[1, 4, 7])


@pytest.mark.parametrize("name", ["mlm", "clm"])
@pytest.mark.parametrize("pairs", [True, False])
def test_forward_terms_are_summed_losses_of_logits(batch, name, pairs):
    objective = build(name, pairs)
    terms = objective(batch)
    model = objective.model
    tokens, pair_logits = model(batch.ids, batch.segments, batch.cu_seqlens, batch.predicted, batch.max_seqlen)
    expected = {"mlm": (tokens, batch.labels), "nsp": (pair_logits, batch.pair_label)}
    assert list(terms) == list(objective.weights) == ["mlm", "nsp"][: 1 + pairs]
    for term, (loss, correct) in terms.items():
        logits, labels = expected[term]
        torch.testing.assert_close(loss, F.cross_entropy(logits, labels, reduction="sum"))
        assert correct == (logits.argmax(1) == labels).sum()
    work = Workload(
        sequences=2, tokens=11, sum_len_squared=61, predictions=3, num_outputs=5, attended_pairs=6 * 3 + 5 * 2
    )
    assert batch.workload == work and objective.loss_counts(work) == {"mlm": 3, "nsp": 2}
    computed = work._replace(num_outputs=11, attended_pairs=61) if name == "clm" else work
    assert objective.training_flops(work) == objective.config.training_flops(computed)
    assert objective.columns() == ["loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"]


@pytest.mark.parametrize("pairs", [True, False])
def test_forward_without_pairs_trains_no_pair_parameters(batch, pairs):
    objective = build("mlm", pairs)
    sum(term.loss for term in objective(batch).values()).backward()
    without = {name for name, parameter in objective.model.named_parameters() if parameter.grad is None}
    assert without == (
        set() if pairs else {name for name in objective.checkpoint_parameters() if "pooler" in name or "seq_" in name}
    )
    assert pairs or len(without) == 4


def test_forward_is_one_graph_for_batches_of_other_counts(batch, monkeypatch):
    """The GPU's attention and token loss are used, which read no lengths on the host."""
    monkeypatch.setattr(bert, "linear_cross_entropy", gpu_loss)
    config = BertConfig(60, 32, 1, 1, 64, 16, hidden_dropout_prob=0.0, attention="padded")
    objective = load_objective("mlm")(config, pairs="nsp")
    objective.init_weights(torch.Generator().manual_seed(0))
    graphs = []
    traced = torch.compile(
        objective, backend=lambda graph, _: graphs.append(graph) or graph.forward, fullgraph=True, dynamic=True
    )
    for inputs in (batch, dataclasses.replace(batch, workload=Workload(9), examples=np.arange(7))):
        for name, (loss, correct) in traced(inputs).items():
            expected = objective(inputs)[name]
            assert torch.equal(loss, expected.loss) and torch.equal(correct, expected.correct)
    assert len(graphs) == 1


def gpu_loss(hidden, weight, bias, labels):
    return summed_cross_entropy(F.linear(hidden, weight, bias), labels)


def test_init_weights_depend_on_generator_only():
    first, again = build("mlm", True), build("clm", False)
    assert all(map(torch.equal, first.model.state_dict().values(), again.model.state_dict().values()))
    other = build("mlm", True)
    other.init_weights(torch.Generator().manual_seed(1))
    words = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(first.checkpoint_parameters()[words], other.checkpoint_parameters()[words])
    assert first.checkpoint_parameters()[words] is first.model.cls["predictions"].decoder.weight  # still tied


def test_saved_models_have_transformers_class_and_parameter_names():
    objective = build("clm", True)
    (saved,) = objective.saved_models().items()
    assert saved == ("", (objective.model, objective.config, "BertLMHeadModel"))
    expected = BertForPretraining(objective.config).named_parameters()
    assert list(objective.checkpoint_parameters()) == [name for name, _ in expected]
    assert build("mlm", True).saved_models()[""].huggingface_class == "BertForPreTraining"
    assert {build(name, pairs).learns for name in ("mlm", "clm") for pairs in (True, False)} == {
        "masked words and next sentences",
        "masked words, without next sentences",
        "the next word from those before it and next sentences",
        "the next word from those before it",
    }
