"""An LSTM in both directions between the encoder and a task's output layer."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from pipeline_src.models.lstm import read_by_lstm
from pipeline_src.models.packed_layout import PackedLayout


class BiLSTM(nn.LSTM):
    """LSTM layers in both directions, half of ``width`` each, so that what reads them has ``width`` numbers a token."""

    def __init__(self, inputs: int, width: int, layers: int = 1) -> None:
        super().__init__(inputs, width // 2, layers, bidirectional=True)

    def forward(self, hidden: Tensor, layout: PackedLayout, lengths: np.ndarray) -> Tensor:
        """[T, inputs] -> [T, width] in float32; each sequence is read by itself, from its first token and its last."""
        return read_by_lstm(self, hidden, layout, lengths)
