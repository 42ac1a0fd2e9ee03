"""Losses of the task heads against their definitions."""

import torch
import torch.nn.functional as F

from pipeline_src.finetuning.losses import choice, sequence, span


def test_span_loss_looks_at_each_sequence_alone():
    torch.manual_seed(0)
    cu_seqlens = torch.tensor([0, 4, 10])
    outputs, labels = torch.randn(10, 2), torch.tensor([[1, 3], [0, 5]])
    expected = [
        F.cross_entropy(outputs[a:b, side][None], labels[row, side][None])
        for row, (a, b) in enumerate(((0, 4), (4, 10)))
        for side in (0, 1)
    ]
    torch.testing.assert_close(span(outputs, labels, cu_seqlens), torch.stack(expected).mean())


def test_choice_compares_the_choices_of_one_item():
    outputs = torch.tensor([[0.0], [5.0], [0.0], [0.0], [9.0], [0.0]])
    assert choice(outputs, torch.tensor([1, 1]), torch.empty(0)) < 0.03
    assert choice(outputs, torch.tensor([0, 0]), torch.empty(0)) > 5


def test_whole_labels_are_classes_and_others_a_regression():
    outputs = torch.tensor([[1.0], [3.0]])
    assert sequence(outputs, torch.tensor([2.0, 3.0]), torch.empty(0)) == 0.5
    assert sequence(torch.tensor([[0.0, 9.0]]), torch.tensor([1]), torch.empty(0)) < 0.01
