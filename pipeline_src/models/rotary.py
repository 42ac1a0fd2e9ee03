"""Rotary positions (Su et al. 2021, RoFormer), and the attention that has them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.attention import Window, attention, scores_of, weights_of
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse


def rotary_tables(places: Tensor, size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines by which a head's vectors turn (Su et al. 2021, RoFormer, section 3.2.2), [T, size / 2]."""
    speeds = theta ** -(torch.arange(0, size, 2, device=places.device, dtype=torch.float32) / size)
    angles = places[:, None] * speeds
    return angles.cos(), angles.sin()


def rotate(vectors: Tensor, tables: tuple[Tensor, ...]) -> Tensor:
    """Turn the pairs of numbers half a head apart: [T, ..., size], by tables [T, size / 2]."""
    cosines, sines = (table.view(len(table), *(1,) * (vectors.ndim - 2), -1) for table in tables)
    one, other = vectors.float().chunk(2, dim=-1)
    return torch.cat([one * cosines - other * sines, other * cosines + one * sines], dim=-1).to(vectors.dtype)


class RotaryAttention(nn.Module):
    """Self-attention without biases, with its output projection, over the whole sequence or a window.

    The tables of its ``theta`` are in ``layout.tables`` when it is called.

    Args:
        config: sizes.
        theta: base of the speeds at which positions turn.
        reach: tokens to each side that a token sees; None for all.
    """

    def __init__(self, config: BertConfig, theta: float, reach: int | None) -> None:
        super().__init__()
        self.heads, self.rate, self.back_end = config.num_attention_heads, config.attention_dropout, config.attention
        self.theta, self.reach = theta, reach
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.Wo = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        width, tables = hidden.shape[1], layout.tables[self.theta]
        if rows is None:
            both, value = self.Wqkv(hidden).view(len(hidden), 3, self.heads, -1).split([2, 1], dim=1)
            query, key = rotate(both, tables).unbind(1)
            places, queries = layout.position, None
        else:
            asking = F.linear(hidden.index_select(0, rows.index), self.Wqkv.weight[:width])
            key, value = F.linear(hidden, self.Wqkv.weight[width:]).view(len(hidden), 2, self.heads, -1).unbind(1)
            turned = tuple(table.index_select(0, rows.index) for table in tables)
            query, key = rotate(asking.view(len(asking), self.heads, -1), turned), rotate(key, tables)
            places, queries = layout.position.index_select(0, rows.index), rows.layout
        window = None if self.reach is None else Window(self.reach, places)
        dropout = self.rate if self.training else 0.0
        value = value.reshape(key.shape)
        context = attention(query, key, value, layout, dropout, False, self.back_end, queries, window)
        return self.dropout(self.Wo(context.reshape(-1, width)))

    def weights(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """[T, H] -> what each head gives each token; see :class:`pipeline_src.models.bert.GivesWeights`."""
        both = F.linear(hidden, self.Wqkv.weight[: 2 * hidden.shape[1]]).view(len(hidden), 2, self.heads, -1)
        query, key = rotate(both, layout.tables[self.theta]).unbind(1)
        return weights_of(scores_of(query, key, layout), layout, reach=self.reach)
