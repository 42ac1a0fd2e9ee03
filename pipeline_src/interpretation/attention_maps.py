"""Attention probabilities of every head, recomputed from the inputs of each attention, and sentences that show them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pipeline_src.interpretation.attribution import integrated_gradients
from pipeline_src.interpretation.bootstrap import rounded, rounded_list
from pipeline_src.interpretation.data import Skipped
from pipeline_src.interpretation.model import Sentence, StudiedModel, tokenize_words
from pipeline_src.models.bert import HasAttentionProbs


@torch.no_grad()
def attention_maps(model: StudiedModel, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Tensor]]:
    """Yield each text's index and attention probabilities [L, A, n, n], special tokens included; rows sum to 1.

    Raises:
        Skipped: the encoder has no attention whose probabilities can be read.
    """
    for batch in model.batches(texts):
        with record_attention(model.encoder) as recorded:
            _, layout = model.hidden_states([texts[number] for number in batch])
        for row, number in enumerate(batch):
            length = layout.lengths[row]
            yield number, torch.stack([layer[row, :, :length, :length] for layer in recorded])


@contextmanager
def record_attention(encoder: nn.Module) -> Iterator[list[Tensor]]:
    """Record attention probabilities while the encoder runs: [B, A, L, L] per layer, also if layers share weights.

    Raises:
        Skipped: see :func:`attention_modules`.
    """
    recorded: list[Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda module, inputs: recorded.append(module.attention_probs(*inputs[:2])))
        for module in attention_modules(encoder)
    ]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def attention_modules(encoder: nn.Module) -> list[nn.Module]:
    """Return the modules that compute attention probabilities.

    Raises:
        Skipped: there are none, or a subclass overrides the forward pass but not the probabilities.
    """
    modules = [module for module in encoder.modules() if isinstance(module, HasAttentionProbs)]
    if not modules:
        raise Skipped("the model has no attention")
    if not all(issubclass(_owner(module, "attention_probs"), _owner(module, "forward")) for module in modules):
        raise Skipped("the model's attention does not say what it gives")
    return modules


def _owner(module: nn.Module, method: str) -> type:
    return next(each for each in type(module).__mro__ if method in vars(each))


def merge_tokens(maps: Tensor, units: Sequence[int]) -> Tensor:
    """Merge tokens into units such as words: sum over the attended tokens, average over the attending ones.

    Args:
        maps: [..., n, n].
        units: each token's unit, numbered from 0 without gaps.

    Returns:
        [..., U, U]; rows still sum to 1 (Clark et al. 2019, section 4.1).
    """
    member = torch.nn.functional.one_hot(torch.tensor(units), max(units) + 1).to(maps.dtype)
    return (member / member.sum(0)).T @ maps @ member


def unit_of_tokens(model: StudiedModel, words: Sequence[int]) -> list[int]:
    """Number the units of a text with special tokens: each word and each special token is one.

    Args:
        model: adds the special tokens.
        words: word index of each token of the text.
    """
    leading, trailing = model.num_leading, model.template.size - model.num_leading
    numbers = {word: leading + rank for rank, word in enumerate(dict.fromkeys(words))}
    after = leading + len(numbers)
    return [*range(leading), *(numbers[word] for word in words), *range(after, after + trailing)]


def shown_sentences(model: StudiedModel, sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
    """Return each sentence's words, the special tokens around them, and the attention between them, for the page.

    ``weights`` is base64 of layers x heads x words x words bytes, 255 for a probability of 1. ``hidden`` has the masked
    word, and how much each other word adds to the log-probability of predicting it.

    Raises:
        Skipped: see :func:`attention_maps`.
    """
    subwords = tokenize_words(model, sentences)
    kept = [number for number, ids in enumerate(subwords.ids) if ids]
    found: dict[int, dict[str, Any]] = {}
    leading, trailing = ([str(model.tokenizer.id_to_token(mark)) for mark in run] for run in model.template.special_ids)
    for order, maps in attention_maps(model, [subwords.ids[number] for number in kept]):
        number = kept[order]
        words = subwords.words[number]
        weights = merge_tokens(maps, unit_of_tokens(model, words))
        found[number] = {
            "words": [*leading, *(sentences[number].words[word] for word in dict.fromkeys(words)), *trailing],
            "marks": [len(leading), len(trailing)],
            "weights": base64.b64encode((weights * 255).round().byte().numpy().tobytes()).decode("ascii"),
        }
        if not model.lacks and (explained := _explained(model, subwords.ids[number], words)):
            found[number]["hidden"] = explained
    return [found[number] for number in sorted(found)]


def _explained(model: StudiedModel, ids: Sequence[int], words: Sequence[int]) -> dict[str, Any] | None:
    """Mask the last word of one token and letters only: how much each word adds to its log-probability (nats).

    Special tokens count as words. Returns None if there is no such word.
    """
    single = [at for at, word in enumerate(words) if words.count(word) == 1 and _token(model, ids[at]).isalpha()]
    if not single:
        return None
    position = single[-1]
    masked = [*ids[:position], model.mask, *ids[position + 1 :]]
    attributions, gain = integrated_gradients(model, masked, position, ids[position])
    units = unit_of_tokens(model, words)
    by_word = torch.zeros(max(units) + 1).index_add_(0, torch.tensor(units), attributions)
    (log_probs,) = model.log_probabilities([masked], [[position]])
    return {
        "at": units[model.num_leading + position],
        "probability": rounded(log_probs[0, ids[position]].exp()),
        "gain": rounded(gain),
        "adds": rounded_list(by_word.tolist()),
    }


def _token(model: StudiedModel, number: int) -> str:
    return model.kind.spelt(str(model.tokenizer.id_to_token(number)))
