"""Self-attention over flat, unpadded sequences: the one place that knows of padding."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pipeline_src.models.layout import Layout


def attention(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    """Scaled dot-product attention of each sequence with itself (Vaswani et al. 2017, section 3.2.1).

    Args:
        query, key, value: [T, heads, head size].
        layout: where the sequences lie.
        dropout: on the attention weights.

    Returns:
        [T, heads, head size].
    """
    tokens, heads, size = query.shape
    shape = (layout.sequences, layout.longest, heads, size)

    def pad(flat: Tensor) -> Tensor:  # [T, heads, size] -> [B, heads, L, size]
        if layout.keep is None:
            return flat.view(shape).transpose(1, 2)
        rectangle = flat.new_zeros(layout.sequences * layout.longest, heads, size)
        return rectangle.index_copy(0, layout.padded, flat).view(shape).transpose(1, 2)

    mask = None if layout.keep is None else layout.keep[:, None, None, :]
    context = F.scaled_dot_product_attention(pad(query), pad(key), pad(value), attn_mask=mask, dropout_p=dropout)
    context = context.transpose(1, 2).reshape(-1, heads, size)
    return context if layout.keep is None else context.index_select(0, layout.padded)
