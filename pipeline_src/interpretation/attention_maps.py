"""Attention weights of every head, worked out from what goes into each attention; the encoder itself keeps none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.studied_model import StudiedModel, batches
from pipeline_src.models.bert import SelfAttention
from pipeline_src.models.packed_layout import PackedLayout


@torch.no_grad()
def attention_maps(model: StudiedModel, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of each text and its weights [L, A, n, n], n with its marks; rows sum to 1.

    Raises:
        Skipped: the encoder's attention is not a softmax of products of queries and keys alone.
    """
    parts = [part for part in model.encoder.modules() if isinstance(part, SelfAttention)]
    if not parts or any(type(part).forward is not SelfAttention.forward for part in parts):
        raise Skipped("its attention has other weights than BERT's")
    for batch in batches([len(text) + model.frame.size for text in texts]):
        seen: list[Tensor] = []  # one entry a layer, also where layers share their weights
        hooks = [part.register_forward_pre_hook(partial(_keep, seen)) for part in parts]
        try:
            _, layout = model.states([texts[number] for number in batch])
        finally:
            for hook in hooks:
                hook.remove()
        for row, number in enumerate(batch):
            length = layout.lengths[row]
            yield number, torch.stack([layer[row, :, :length, :length] for layer in seen])


def _keep(seen: list[Tensor], part: Any, given: tuple[Any, ...]) -> None:
    seen.append(_weights(part, *given))


def _weights(part: Any, hidden: Tensor, layout: PackedLayout, rows: object = None) -> Tensor:
    """[B, A, n, n], the longest n."""
    query, key = (
        layout.pad(side(hidden).view(len(hidden), part.heads, -1)).transpose(1, 2) for side in (part.query, part.key)
    )
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    if layout.keep is not None:
        scores = scores.masked_fill(~layout.keep[:, None, None, :], -torch.inf)
    if part.causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1)


def of_units(maps: Tensor, units: Sequence[int]) -> Tensor:
    """Weights between units, such as words: summed over the tokens attended to, averaged over those that attend.

    Args:
        maps: [..., n, n].
        units: number of each token's unit, from 0; all that are named.

    Returns:
        [..., U, U]; rows still sum to 1 (Clark et al. 2019, section 4.1).
    """
    belongs = torch.nn.functional.one_hot(torch.tensor(units), max(units) + 1).to(maps.dtype)
    return (belongs / belongs.sum(0)).T @ maps @ belongs


def units_of(model: StudiedModel, words: Sequence[int]) -> list[int]:
    """The unit of each token with its marks: a mark is one by itself, a word is one; ``words`` has word numbers."""
    lead, rest = model.lead, model.frame.size - model.lead
    numbers = {word: lead + rank for rank, word in enumerate(dict.fromkeys(words))}
    after = lead + len(numbers)
    return [*range(lead), *(numbers[word] for word in words), *range(after, after + rest)]
