"""Attention weights of every head, worked out from what goes into each attention; the encoder itself keeps none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.studied_model import StudiedModel, batches
from pipeline_src.models.bert import GivesWeights


@torch.no_grad()
def attention_maps(model: StudiedModel, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of each text and its weights [L, A, n, n], n with its marks; rows sum to 1.

    Raises:
        Skipped: the encoder has no attention that gives its weights.
    """
    for batch in batches([len(text) + model.frame.size for text in texts]):
        with weights_kept(model.encoder) as kept:
            _, layout = model.states([texts[number] for number in batch])
        for row, number in enumerate(batch):
            length = layout.lengths[row]
            yield number, torch.stack([layer[row, :, :length, :length] for layer in kept])


@contextmanager
def weights_kept(encoder: nn.Module) -> Iterator[list[Tensor]]:
    """Keep what every attention gives while the encoder runs: [B, A, L, L] a layer, also where layers share weights.

    Raises:
        Skipped: see :func:`attentions`.
    """
    kept: list[Tensor] = []
    hooks = [
        part.register_forward_pre_hook(lambda part, given: kept.append(part.weights(*given[:2])))
        for part in attentions(encoder)
    ]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def attentions(encoder: nn.Module) -> list[nn.Module]:
    """The parts that give their weights.

    Raises:
        Skipped: there are none, or one takes its weights from a class whose attention it has changed.
    """
    parts = [part for part in encoder.modules() if isinstance(part, GivesWeights)]
    if not parts:
        raise Skipped("the model has no attention")
    if not all(issubclass(_owner(part, "weights"), _owner(part, "forward")) for part in parts):
        raise Skipped("the model's attention does not say what it gives")
    return parts


def _owner(part: nn.Module, method: str) -> type:
    """The class that defines a part's method."""
    return next(kind for kind in type(part).__mro__ if method in vars(kind))


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
