"""Run an LSTM over packed sequences, in the BiLSTM encoder and on top of any encoder in fine-tuning."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from pipeline_src.model.attention import PackedBatch


def run_lstm(lstm: nn.LSTM, hidden: Tensor, layout: PackedBatch, lengths: np.ndarray) -> Tensor:
    """Run an LSTM over each sequence in float32, [T, inputs] -> [T, outputs].

    ``lengths`` are the lengths of the sequences. They must be on the host, which launches kernels for each time step.
    """
    order = time_major_order(layout)
    batch_sizes = np.count_nonzero(lengths[:, None] > np.arange(lengths.max()), axis=0)
    packed = PackedSequence(hidden.index_select(0, order).float(), torch.from_numpy(batch_sizes))
    return _in_float32(lstm, packed).data.index_select(0, order.argsort())


def run_padded_lstm(lstm: nn.LSTM, hidden: Tensor, layout: PackedBatch) -> Tensor:
    # For unidirectional LSTMs: padding comes after a sequence's tokens and does not affect them. Unlike `run_lstm`, no
    # lengths are copied from the GPU.
    rectangle = layout.pad(hidden.float()).transpose(0, 1)
    return layout.unpad(_in_float32(lstm, rectangle).transpose(0, 1))


def _in_float32(lstm: nn.LSTM, inputs: Any) -> Any:
    # On a GPU, autocast runs LSTMs in float16 even if its dtype is bfloat16, and small gradients underflow.
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        return nn.LSTM.forward(lstm, inputs)[0]


def time_major_order(layout: PackedBatch) -> Tensor:
    # Orders tokens as torch's ``pack_padded_sequence`` does: all first tokens, then all second tokens, and so on, the
    # longest sequence first. ``pack_padded_sequence`` itself would wait for a GPU three times.
    lengths = layout.cu_seqlens.diff()
    by_length = lengths.sort(descending=True).indices
    rank = by_length.argsort()
    rank_of_token = torch.repeat_interleave(rank, lengths, output_size=len(layout.position))
    return (layout.position * len(lengths) + rank_of_token).argsort()
