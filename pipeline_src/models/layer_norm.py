"""LayerNorm (Ba et al. 2016) that keeps what flows between the blocks as narrow as autocast makes their products."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Computes in float32; under autocast it gives autocast's type.

    torch's own gives float32 there, so that every sum, LayerNorm and cast between two products would move twice the
    bytes, and on a GPU these take longer than anything else in a block. Without autocast it is torch's own.
    """

    def forward(self, inner: Tensor) -> Tensor:
        """Of any shape that ends in the width."""
        normed, kind = super().forward(inner), inner.device.type
        return normed.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else normed
