"""An LSTM in both directions between the encoder and a task's output layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pipeline_src.models.packed_layout import PackedLayout


class BiLSTM(nn.LSTM):
    """LSTM layers in both directions, half of ``width`` each, so that what reads them has ``width`` numbers a token."""

    def __init__(self, inputs: int, width: int, layers: int = 1) -> None:
        super().__init__(inputs, width // 2, layers, batch_first=True, bidirectional=True)

    def forward(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """[T, inputs] -> [T, width]; each sequence is read by itself, from its first token and from its last."""
        lengths = layout.cu_seqlens.diff().cpu()
        packed = pack_padded_sequence(layout.pad(hidden), lengths, batch_first=True, enforce_sorted=False)
        both, _ = pad_packed_sequence(super().forward(packed)[0], batch_first=True)
        return layout.unpad(both)
