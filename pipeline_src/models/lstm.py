"""LSTMs on flat, unpadded tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from pipeline_src.models.packed_layout import PackedLayout


def read_by_lstm(lstm: nn.LSTM, hidden: Tensor, layout: PackedLayout, lengths: np.ndarray) -> Tensor:
    """[T, inputs] -> [T, outputs] in float32; each sequence is read by itself, from its first token.

    ``lengths``, tokens of each sequence, lie on the host: it launches what is computed, token after token.
    """
    order = token_after_token(layout)
    still_there = np.count_nonzero(lengths[:, None] > np.arange(lengths.max()), axis=0)
    packed = PackedSequence(hidden.index_select(0, order).float(), torch.from_numpy(still_there))
    return _in_float32(lstm, packed).data.index_select(0, order.argsort())


def read_from_the_start(lstm: nn.LSTM, hidden: Tensor, layout: PackedLayout) -> Tensor:
    """As :func:`read_by_lstm`, by an LSTM of one direction: it has read what it gives before it comes to padding.

    So nobody need know lengths on the host, for which a GPU would be waited for.
    """
    rectangle = layout.pad(hidden.float()).transpose(0, 1)
    return layout.unpad(_in_float32(lstm, rectangle).transpose(0, 1))


def _in_float32(lstm: nn.LSTM, inputs: Any) -> Any:
    """What it makes of a tensor or a ``PackedSequence``.

    On a GPU, autocast would take float16 for an LSTM, whatever it is told, and a step in float16 loses small gradients.
    """
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        return nn.LSTM.forward(lstm, inputs)[0]


def token_after_token(layout: PackedLayout) -> Tensor:
    """The tokens in the order in which an LSTM reads them: the first of all sequences, the second, ..., int64 [T].

    The longest sequence comes first, as in torch's ``pack_padded_sequence``, which would wait for a GPU three times.
    """
    lengths = layout.cu_seqlens.diff()
    by_length = lengths.sort(descending=True).indices
    rank = by_length.argsort()
    rank_of_token = torch.repeat_interleave(rank, lengths, output_size=len(layout.position))
    return (layout.position * len(lengths) + rank_of_token).argsort()


def turned_round(layout: PackedLayout) -> Tensor:
    """The place of the token that stands as far from the end of its sequence as each does from the start, int64 [T]."""
    lengths = layout.cu_seqlens.diff()
    ends = torch.repeat_interleave(layout.last, lengths, output_size=len(layout.position))
    return ends - layout.position
