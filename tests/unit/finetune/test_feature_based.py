"""The feature-based approach (table 7 of the BERT paper): combined layers, and an unchanged encoder."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from pipeline_src.base.errors import PipelineError
from pipeline_src.finetune.feature_based import LAYER_MIXES, LSTM_WIDTH, FrozenLayers
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import BertConfig, initialise
from pipeline_src.study.finetune import Frozen
from pipeline_src.training.optimizers import make_optimizer

CONFIG = BertConfig(60, 32, 5, 2, 64, 32)
IDS, SEGMENTS, STARTS = torch.arange(14) + 5, torch.zeros(14, dtype=torch.int64), torch.tensor([0, 5, 6, 14])
LAYERS = {
    "embeddings": (0,),
    "second_to_last": (4,),
    "last": (5,),
    "weighted_last_four": (2, 3, 4, 5),
    "concat_last_four": (2, 3, 4, 5),
    "weighted_all": (1, 2, 3, 4, 5),
    "weighted_with_embeddings": (0, 1, 2, 3, 4, 5),
}


def build(head: str, outputs: int, frozen: str, config: BertConfig = CONFIG) -> BertForTask:
    model = BertForTask(config, head, outputs, frozen=frozen)
    initialise(model, torch.Generator().manual_seed(0))
    return model


def test_layer_mixes_names_equal_allowed_values_of_feature_layers():
    assert tuple(LAYER_MIXES) == get_args(Frozen) == tuple(LAYERS)


@pytest.mark.parametrize("name", LAYER_MIXES)
def test_frozen_layers_combine_same_layers_as_paper(name: str):
    part = FrozenLayers(name, 5, 32)
    assert part.layers == LAYERS[name]
    states = [torch.full((3, 32), float(layer)) for layer in part.layers]
    mixed = part.mix(states)
    assert mixed.shape == (3, part.lstm.input_size)
    if LAYER_MIXES[name].weighted:
        torch.testing.assert_close(mixed, torch.full((3, 32), sum(LAYERS[name]) / len(LAYERS[name])))
    else:
        assert torch.equal(mixed, torch.cat(states, -1))
    assert (part.lstm.num_layers, part.lstm.hidden_size, part.lstm.bidirectional) == (2, LSTM_WIDTH // 2, True)


@pytest.mark.parametrize("name", LAYER_MIXES)
@pytest.mark.parametrize(
    ("head", "outputs", "rows"), [("sequence", 3, 3), ("choice", 1, 3), ("span", 2, 14), ("token", 9, 14)]
)
def test_bert_for_task_frozen_encoder_output_has_expected_shape(name: str, head: str, outputs: int, rows: int):
    model = build(head, outputs, name).eval()
    result = model(IDS, SEGMENTS, STARTS)
    assert result.shape == (rows, outputs)
    torch.testing.assert_close(result[:1], model(IDS[:5], SEGMENTS[:5], STARTS[:2])[:1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["last", "weighted_all", "concat_last_four"])
def test_frozen_encoder_weights_stay_unchanged_in_training(name: str):
    model = build("token", 4, name).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = make_optimizer(model, 0.1, 0.01)
    for _ in range(2):  # also after a second step
        optimizer.zero_grad()
        model(IDS, SEGMENTS, STARTS).logsumexp(-1).mean().backward()
        optimizer.step()
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    expected = {key for key in before if not key.startswith("bert.")}
    assert changed == expected
    assert all((parameter.grad is None) == key.startswith("bert.") for key, parameter in model.named_parameters())


def test_frozen_encoder_has_no_dropout():
    model = build("token", 4, "last").train()
    assert model.training and model.frozen.training and not model.bert.training
    layout = PackedBatch.of(STARTS, 14)
    first, again = (model.frozen(model.bert, IDS, SEGMENTS, layout, np.array([5, 1, 8])) for _ in range(2))
    assert torch.equal(first, again)
    assert BertForTask(CONFIG, "token", 4).train().bert.training


@pytest.mark.parametrize(
    ("name", "layers"), [("second_to_last", 1), ("weighted_last_four", 3), ("concat_last_four", 2)]
)
def test_bert_for_task_frozen_encoder_with_too_few_layers_is_rejected(name: str, layers: int):
    config = BertConfig(60, 32, layers, 2, 64, 32)
    with pytest.raises(PipelineError, match=f"{name} \\(needs[\\s\\S]*has {layers}[\\s\\S]*embeddings"):
        BertForTask(config, "token", 4, frozen=name)
    build("token", 4, "weighted_all", config)(IDS, SEGMENTS, STARTS)
