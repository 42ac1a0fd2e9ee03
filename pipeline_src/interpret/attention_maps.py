"""Attention probabilities of every head, recomputed from the inputs of each attention module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pipeline_src.interpret.model import ProbedModel, SkipMeasure
from pipeline_src.model.bert import HasAttentionProbs


@torch.no_grad()
def attention_maps(model: ProbedModel, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Tensor]]:
    """Yield (index of a text, its attention probabilities [L, A, n, n]).

    n is the number of tokens, special tokens included. Each row sums to 1. Texts come in order of length.
    """
    for batch in model.batches(texts):
        with record_attention(model.encoder) as recorded:
            _, layout = model.hidden_states([texts[number] for number in batch])
        for index, (number, length) in enumerate(zip(batch, layout.lengths, strict=True)):
            without_padding = [layer[index, :, :length, :length] for layer in recorded]
            yield number, torch.stack(without_padding)


@contextmanager
def record_attention(encoder: nn.Module) -> Iterator[list[Tensor]]:
    """Record attention probabilities while the encoder runs: one tensor [B, A, L, L] for each layer.

    Raises:
        SkipMeasure: the model has no attention, or an attention class overrides ``forward`` without also overriding
            ``attention_probs``.
    """
    modules: list[nn.Module] = [module for module in encoder.modules() if isinstance(module, HasAttentionProbs)]
    if not modules:
        raise SkipMeasure("the model has no attention")
    if not all(issubclass(_owner(module, "attention_probs"), _owner(module, "forward")) for module in modules):
        raise SkipMeasure("an attention class overrides forward but not attention_probs")
    recorded: list[Tensor] = []

    def record(module: Any, inputs: tuple[Any, ...]) -> None:
        hidden, layout = inputs[:2]
        recorded.append(module.attention_probs(hidden, layout))

    hooks = [module.register_forward_pre_hook(record) for module in modules]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def _owner(module: nn.Module, method: str) -> type:
    # Returns the class in which the module's method is defined.
    return next(base for base in type(module).__mro__ if method in vars(base))


def merge_tokens(maps: Tensor, units: Sequence[int]) -> Tensor:
    """Merge attention between tokens into attention between units, such as words (Clark et al. 2019, section 4.1).

    Attention to a unit is the sum over its tokens. Attention from a unit is the average over its tokens.

    Args:
        maps: attention probabilities, [..., n, n].
        units: index of each token's unit, from 0 without gaps.

    Returns:
        Attention probabilities between U units, [..., U, U].
    """
    # Units [0, 1, 1] give the rows [1, 0], [0, 1], [0, 1].
    member = torch.nn.functional.one_hot(torch.tensor(units), max(units) + 1).to(maps.dtype)
    average_over_rows = (member / member.sum(0)).T
    return average_over_rows @ maps @ member


def unit_of_tokens(model: ProbedModel, words: Sequence[int]) -> list[int]:
    # Returns the index of each token's unit. Every word and every special token is a unit: [CLS], a word of one token,
    # a word of two tokens and [SEP] give 0, 1, 2, 2, 3. `words`: index of each token's word, without special tokens.
    unit_of_word = {word: model.num_leading + rank for rank, word in enumerate(dict.fromkeys(words))}
    first_trailing = model.num_leading + len(unit_of_word)
    num_trailing = model.template.size - model.num_leading
    units = list(range(model.num_leading))
    units += [unit_of_word[word] for word in words]
    units += range(first_trailing, first_trailing + num_trailing)
    return units
