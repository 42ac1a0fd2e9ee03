"""Continue a text with a masked language model, fill single masks, and measure the loss with more masks.

Several masks are filled all at once, left to right, or the most probable first. None of these makes it a language
model, since it was not trained for the joint distribution of the masks.
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

NUM_MASKS = (1, 2, 4, 8, 16)  # from the predicted token on
CONTEXT = 4  # tokens on either side of the most masks
SHOWN = 3  # most probable tokens at a mask
TEXTS = 200  # of the validation set

# Which of the masks left the next step fills, given the log-probability of the best token at every position.
WAYS: dict[str, Callable[[list[int], Tensor], list[int]]] = {
    "at once": lambda masked, best: masked,
    "left to right": lambda masked, best: masked[:1],
    "surest first": lambda masked, best: [max(masked, key=lambda position: float(best[position]))],
}


def complete(model: StudiedModel, prompt: Sequence[int], num_masks: int, how: str) -> list[list[int]]:
    """Fill masks after a prompt of token ids in one of :data:`WAYS`; return the tokens at them after each step."""
    end = [token for token in (model.tokenizer.token_to_id("."),) if token is not None]
    before = list(prompt)[num_masks + len(end) - model.max_tokens :]
    special = {token for run in model.template.special_ids for token in run} | {
        model.kind.id_of(model.tokenizer, token) for token in (model.kind.pad, model.kind.unk, model.kind.mask)
    }
    positions = list(range(len(before), len(before) + num_masks))
    tokens, steps = [model.mask] * num_masks, []
    while model.mask in tokens:
        (log_probs,) = model.log_probabilities([[*before, *tokens, *end]], [positions])
        log_probs[:, sorted(special)] = -torch.inf
        best = log_probs.max(-1)
        masked = [position for position, token in enumerate(tokens) if token == model.mask]
        for position in WAYS[how](masked, best.values):
            tokens[position] = int(best.indices[position])
        steps.append(list(tokens))
    return steps


def check_fills_masks(model: StudiedModel) -> None:
    """Raise Skipped with the reason if the model cannot fill masks."""
    if model.lacks:
        raise Skipped(model.lacks)


def completions(model: StudiedModel, prompts: Sequence[str], masks: int) -> list[dict[str, Any]]:
    """Complete each prompt in each way; return the text after each step, and the share of repeated tokens in the last.

    Raises:
        Skipped: the model cannot fill masks.
    """
    check_fills_masks(model)
    rows = []
    for prompt in prompts:
        ways = {}
        for how in WAYS:
            steps = complete(model, model.ids(prompt), masks, how)
            ways[how] = {
                "texts": [model.tokenizer.decode([token for token in step if token != model.mask]) for step in steps],
                "repeated": rounded(1 - len(set(steps[-1])) / masks),
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
