"""Continue a text with a masked language model, fill single masks, and measure the loss with more masks.

Several masks are filled all at once, left to right, the most probable first, or by Gibbs sampling (Wang and Cho 2019).
None of these makes it a language model, since it was not trained for the joint distribution of the masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, uniform
from pipeline_src.config.interpretation import MASK
from pipeline_src.interpretation.bootstrap import rounded
from pipeline_src.interpretation.data import Skipped
from pipeline_src.interpretation.model import StudiedModel

SWEEPS = 25  # of Gibbs sampling over all masks
TOP = 20  # tokens that it samples from
NUM_MASKS = (1, 2, 4, 8, 16)  # from the predicted token on
CONTEXT = 4  # tokens on either side of the most masks
SHOWN = 3  # most probable tokens at a mask
TEXTS = 200  # of the validation set
Templates = list[list[int]]  # the tokens at the masks after each step


def complete(model: StudiedModel, prompt: Sequence[int], masks: int, how: str, seed: int) -> Templates:
    """Fill ``masks`` masks after a prompt of token ids in one of :data:`WAYS`; returns the tokens after each step."""
    end = [token for token in (model.tokenizer.token_to_id("."),) if token is not None]
    return WAYS[how](model, list(prompt)[masks + len(end) - model.max_tokens :], end, masks, seed)


def _log_probs(model: StudiedModel, before: list[int], inner: list[int], end: list[int]) -> Tensor:
    """Log-probabilities at the inner positions, [masks, vocab_size]; special tokens have none."""
    positions = list(range(len(before), len(before) + len(inner)))
    (log_probs,) = model.log_probabilities([[*before, *inner, *end]], [positions])
    special = {mark for run in model.template.special_ids for mark in run} | {
        model.kind.id_of(model.tokenizer, token) for token in (model.kind.pad, model.kind.unk, model.kind.mask)
    }
    log_probs[:, sorted(special)] = -torch.inf
    return log_probs


def _at_once(model: StudiedModel, before: list[int], end: list[int], masks: int, seed: int) -> Templates:
    return [_log_probs(model, before, [model.mask] * masks, end).argmax(-1).tolist()]


def _left_to_right(model: StudiedModel, before: list[int], end: list[int], masks: int, seed: int) -> Templates:
    inner, frames = [model.mask] * masks, []
    for position in range(masks):
        inner[position] = int(_log_probs(model, before, inner, end)[position].argmax())
        frames.append(list(inner))
    return frames


def _surest_first(model: StudiedModel, before: list[int], end: list[int], masks: int, seed: int) -> Templates:
    inner, frames = [model.mask] * masks, []
    for _ in range(masks):
        best = _log_probs(model, before, inner, end).max(-1)
        masked = [position for position in range(masks) if inner[position] == model.mask]
        position = max(masked, key=lambda position: float(best.values[position]))
        inner[position] = int(best.indices[position])
        frames.append(list(inner))
    return frames


def _gibbs(model: StudiedModel, before: list[int], end: list[int], masks: int, seed: int) -> Templates:
    draws = uniform(derive_seed(seed, "gibbs", tuple(before)), np.arange(SWEEPS)[:, None], np.arange(masks)[None])
    inner, frames = [model.mask] * masks, []
    for sweep in draws:
        for position, draw in enumerate(sweep.tolist()):
            inner[position] = model.mask
            top = _log_probs(model, before, inner, end)[position].topk(TOP)
            cumulative = top.values.softmax(-1).double().cumsum(0)
            inner[position] = int(top.indices[min(int(torch.searchsorted(cumulative, draw)), TOP - 1)])
        frames.append(list(inner))
    return frames


WAYS: dict[str, Callable[[StudiedModel, list[int], list[int], int, int], Templates]] = {
    "at once": _at_once,
    "left to right": _left_to_right,
    "surest first": _surest_first,
    "gibbs": _gibbs,
}


def check_fills_masks(model: StudiedModel) -> None:
    """Raise Skipped with the reason if the model cannot fill masks."""
    if model.lacks:
        raise Skipped(model.lacks)


def completions(model: StudiedModel, prompts: Sequence[str], masks: int, seed: int) -> list[dict[str, Any]]:
    """Complete each prompt in each way; return the text after each step, and the share of repeated tokens in the last.

    Raises:
        Skipped: the model cannot fill masks.
    """
    check_fills_masks(model)
    rows = []
    for prompt in prompts:
        ways = {}
        for how in WAYS:
            frames = complete(model, model.ids(prompt), masks, how, seed)
            ways[how] = {
                "texts": [model.tokenizer.decode([t for t in frame if t != model.mask]) for frame in frames],
                "repeated": rounded(1 - len(set(frames[-1])) / masks),
            }
        rows.append({"prompt": prompt, "ways": ways})
    return rows


def fill_masks(model: StudiedModel, masks: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Predict the one [MASK] of each text, and rank the expected word.

    Args:
        model: the model under study.
        masks: texts, each with its expected word.

    Returns:
        For each text ``text``, ``answer``, ``rank`` (1 for the most probable token; None if the word is not one token)
        and ``likeliest``: the first tokens with their probabilities.

    Raises:
        Skipped: the model cannot fill masks.
    """
    check_fills_masks(model)
    rows = []
    for text, answer in masks:
        before, after = map(model.ids, text.split(MASK))
        (log_probs,) = model.log_probabilities([[*before, model.mask, *after][: model.max_tokens]], [[len(before)]])
        expected = model.ids(f" {answer}")  # with a space, as within a sentence
        top = log_probs[0].topk(SHOWN)
        one_token = len(expected) == 1 and expected[0] != model.unknown
        rows.append({
            "text": text,
            "answer": answer,
            "rank": 1 + int((log_probs[0] > log_probs[0, expected[0]]).sum()) if one_token else None,
            "likeliest": [
                [model.tokenizer.id_to_token(token), rounded(probability)]
                for token, probability in zip(top.indices.tolist(), top.values.exp().tolist(), strict=True)
            ],
        })  # fmt: skip
    return rows


def loss_by_masks(model: StudiedModel, texts: Sequence[Sequence[int]], counts: np.ndarray, seed: int) -> dict[str, Any]:
    """Compute the loss (nats) of a token as more tokens after it are masked, with the rest of the text and without.

    Args:
        model: the model under study.
        texts: token ids; texts too short for the most masks and their context are skipped.
        counts: frequency of each token in the training text, int64 [vocab_size], for the ``unigram`` loss.
        seed: keys which token of a text is predicted.

    Raises:
        Skipped: the model cannot fill masks, or no text is long enough.
    """
    check_fills_masks(model)
    needed = max(NUM_MASKS) + 2 * CONTEXT
    long = [list(text) for text in texts if len(text) >= needed][:TEXTS]
    if not long:
        raise Skipped("no sentence of the validation text is long enough")
    choices = np.array([len(text) - needed + 1 for text in long])
    positions = (CONTEXT + uniform(derive_seed(seed, "judged token"), np.arange(len(long)), 0) * choices).astype(int)
    pairs = list(zip(long, positions.tolist(), strict=True))
    stop = model.tokenizer.token_to_id(".")
    figures: dict[str, Any] = {"texts": len(long), "masks": list(NUM_MASKS), "kept": [], "cut": []}
    for masks in NUM_MASKS:
        for key in ("kept", "cut"):
            masked = [
                [*text[:at], *[model.mask] * masks, *(text[at + masks :] if key == "kept" else [stop])]
                for text, at in pairs
            ]
            found = model.log_probabilities(masked, [[at] for _, at in pairs])
            losses = [-float(log_probs[0, text[at]]) for log_probs, (text, at) in zip(found, pairs, strict=True)]
            figures[key].append(rounded(float(np.mean(losses))))
    unigram = np.log((counts + 1) / (counts + 1).sum())
    figures["unigram"] = rounded(-float(np.mean([unigram[text[at]] for text, at in pairs])))
    return figures
