"""An LSTM in both directions between the encoder and a task's output layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from pipeline_src.models.packed_layout import PackedLayout


class BiLSTM(nn.LSTM):
    """LSTM layers in both directions, half of ``width`` each, so that what reads them has ``width`` numbers a token."""

    def __init__(self, inputs: int, width: int, layers: int = 1) -> None:
        super().__init__(inputs, width // 2, layers, bidirectional=True)

    def forward(self, hidden: Tensor, layout: PackedLayout, lengths: np.ndarray) -> Tensor:
        """[T, inputs] -> [T, width] in float32; each sequence is read by itself, from its first token and its last.

        ``lengths``, tokens of each sequence, lie on the host: it launches what is computed, token after token.
        """
        order = _token_after_token(layout)
        still_there = np.count_nonzero(lengths[:, None] > np.arange(lengths.max()), axis=0)
        packed = PackedSequence(hidden.index_select(0, order).float(), torch.from_numpy(still_there))
        # In float32: on a GPU, autocast would take float16 for an LSTM, whatever it is told, and a step in float16
        # loses small gradients.
        with torch.autocast(hidden.device.type, enabled=False):
            both = super().forward(packed)[0].data
        return both.index_select(0, order.argsort())


def _token_after_token(layout: PackedLayout) -> Tensor:
    """The tokens in the order in which an LSTM reads them: the first of all sequences, the second, ..., int64 [T].

    The longest sequence comes first, as in torch's ``pack_padded_sequence``, which would wait for a GPU three times.
    """
    lengths = layout.cu_seqlens.diff()
    by_length = lengths.sort(descending=True).indices
    rank = by_length.argsort()
    rank_of_token = torch.repeat_interleave(rank, lengths, output_size=len(layout.position))
    return (layout.position * len(lengths) + rank_of_token).argsort()
