"""Integrated gradients: how much each token adds to the model's trust in a word (Sundararajan et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipeline_src.interpretation.studied_model import StudiedModel

NODES = 64  # of Gauss-Legendre quadrature, by which the sum is the difference to 1e-6; by 32 it is to 2e-4


def integrated_gradients(model: StudiedModel, ids: Sequence[int], place: int, token: int) -> tuple[Tensor, float]:
    """What each token of a text, one of them hidden, adds to the log-probability of ``token`` there.

    The way starts where every token of text is a mask and ends at the text; the marks stay.

    Args:
        model: fills masks.
        ids: of the text without marks, a mask at ``place``.
        place: of the mask, counted without marks.
        token: whose log-probability is explained.

    Returns:
        [tokens with marks]; the log-probability at the end less that at the start, which they add up to.
    """
    assert model.head is not None
    packed, segments, layout = model.pack([ids])
    masked = packed.clone()
    masked[model.lead : model.lead + len(ids)] = model.mask
    table = model.encoder.embeddings.word_embeddings
    start, end = (table(each).detach() for each in (masked, packed))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    total = torch.zeros_like(end)

    def at(share: float) -> tuple[Tensor, Tensor]:
        point = (start + share * (end - start)).requires_grad_()
        hook = table.register_forward_hook(lambda *_: point)
        try:
            with torch.enable_grad():
                hidden = model.encoder.decode(packed, segments, layout)
                scores = model.head(hidden[[model.lead + place]])  # type: ignore[misc]
                return point, scores[0, : model.tokenizer.get_vocab_size()].log_softmax(-1)[token]
        finally:
            hook.remove()

    for node, weight in zip(nodes, weights, strict=True):
        point, score = at((node + 1) / 2)
        (slope,) = torch.autograd.grad(score, point)
        total += weight / 2 * slope
    return ((end - start) * total).sum(-1).detach(), float((at(1.0)[1] - at(0.0)[1]).detach())
