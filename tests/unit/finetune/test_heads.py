"""Losses of the task heads against their definitions, and the dropouts of each member of the family."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pipeline_src.finetune.heads import BertForTask, choice_loss, sequence_loss, span_loss
from pipeline_src.finetune.task_data import TaskBatch
from pipeline_src.model.bert import load_architecture
from pipeline_src.study.model import ModelParams


def batch_of(labels: torch.Tensor, lengths: tuple[int, ...] = (1,)) -> TaskBatch:
    """Return a batch with these labels. The tokens do not matter to a loss."""
    ids, cu_seqlens = torch.zeros(sum(lengths), dtype=torch.int64), torch.tensor([0, *np.cumsum(lengths)])
    return TaskBatch(ids, ids, cu_seqlens, labels, len(labels), np.array(lengths), np.arange(len(labels)))


def test_span_loss_normalises_over_each_sequence():
    torch.manual_seed(0)
    outputs, labels = torch.randn(10, 2), torch.tensor([[1, 3], [0, 5]])
    expected = [
        F.cross_entropy(outputs[a:b, side][None], labels[row, side][None])
        for row, (a, b) in enumerate(((0, 4), (4, 10)))
        for side in (0, 1)
    ]
    torch.testing.assert_close(span_loss(outputs, batch_of(labels, (4, 6))), torch.stack(expected).mean())


def test_choice_loss_compares_choices_of_one_item():
    outputs = torch.tensor([[0.0], [5.0], [0.0], [0.0], [9.0], [0.0]])
    assert choice_loss(outputs, batch_of(torch.tensor([1, 1]))) < 0.03
    assert choice_loss(outputs, batch_of(torch.tensor([0, 0]))) > 5


def test_sequence_loss_is_cross_entropy_or_mse_by_label_type():
    outputs = torch.tensor([[1.0], [3.0]])
    assert sequence_loss(outputs, batch_of(torch.tensor([2.0, 3.0]))) == 0.5
    assert sequence_loss(torch.tensor([[0.0, 9.0]]), batch_of(torch.tensor([1]))) < 0.01


@pytest.mark.parametrize(
    ("architecture", "head", "before_pooler", "before_output"),
    [
        *[("bert", "sequence", 0.0, 0.1), ("bert", "span", 0.0, 0.0)],
        *[("roberta", "sequence", 0.1, 0.1), ("roberta", "choice", 0.0, 0.1), ("roberta", "token", 0.0, 0.1)],
        ("electra", "sequence", 0.1, 0.1),
        *[("distilbert", "sequence", 0.0, 0.2), ("distilbert", "token", 0.0, 0.1), ("distilbert", "span", 0.0, 0.1)],
    ],
)
def test_bert_for_task_dropout_rates_equal_transformers(architecture, head, before_pooler, before_output):
    params = ModelParams(architecture=architecture, num_hidden_layers=1, hidden_size=64, hidden_dropout_prob=0.1)
    config = load_architecture(architecture).config.from_params(params, 100)
    model = BertForTask(config, head, 2)
    assert model.dropout_before_pooler.rate == before_pooler
    assert model.dropout.rate == before_output
