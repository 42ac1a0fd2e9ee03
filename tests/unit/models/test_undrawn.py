"""Modules without their initial weights: same names and shapes, no memory, no draws, no compiler."""

import subprocess
import sys

import torch
from torch import nn

from pipeline_src.models.bert import Bert, BertConfig
from pipeline_src.models.undrawn import undrawn

CONFIG = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16)


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert, self.lstm, self.conv = Bert(CONFIG), nn.LSTM(3, 4), nn.Conv1d(2, 3, 1)


def test_same_names_and_shapes_and_nothing_is_drawn():
    torch.manual_seed(0)
    with undrawn():
        parts = Parts()
    drawn = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(3))
    assert all(parameter.is_meta for parameter in parts.parameters())
    shapes = {name: parameter.shape for name, parameter in parts.named_parameters()}
    assert shapes == {name: parameter.shape for name, parameter in Parts().named_parameters()}


def test_afterwards_weights_are_drawn_again():
    with undrawn():
        nn.Embedding(4, 4)
    weight = nn.Embedding(4, 4).weight
    assert weight.device.type == "cpu" and weight.std() > 0.1


def test_torch_does_not_import_its_compiler_for_it():
    """It did for every normal draw without memory, which made each command that reads a model a second slower."""
    code = (
        "import sys; from tests.unit.models.test_undrawn import Parts, undrawn\n"
        "with undrawn(): Parts()\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
