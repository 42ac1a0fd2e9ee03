"""Continue a text with a masked language model, fill single masks, and measure the loss with more masks.

Several masks are filled all at once, left to right, or the most probable first. In none of these ways is the model a
language model, since it was not trained on the joint distribution of the masks.
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
from pipeline_src.interpretation.model import ProbedModel, SkipMeasure

NUM_COMPLETED = 8  # masks after a prompt
MASK_COUNTS = (1, 2, 4, 8, 16)  # masks in a row, of which the first is predicted
MIN_CONTEXT = 4  # tokens on either side of the longest row of masks
TOP_K = 3  # tokens shown for a mask
MAX_TEXTS = 200  # of the validation set

# Way -> the masks that the next step fills, given the masked positions and each best token's log-probability.
WAYS: dict[str, Callable[[list[int], Tensor], list[int]]] = {
    "at once": lambda masked, best: masked,
    "left to right": lambda masked, best: masked[:1],
    "surest first": lambda masked, best: [max(masked, key=lambda position: float(best[position]))],
}


def complete(model: ProbedModel, prompt: Sequence[int], num_masks: int, how: str) -> list[list[int]]:
    """Fill ``num_masks`` masks after a prompt (token ids) in the way ``how``; return their ids after each step."""
    end = _full_stop(model)
    before = prompt[num_masks + len(end) - model.max_tokens :]
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


def _full_stop(model: ProbedModel) -> list[int]:
    token = model.tokenizer.token_to_id(".")
    return [] if token is None else [token]


def completions(model: ProbedModel, prompts: Sequence[str], num_masks: int = NUM_COMPLETED) -> list[dict[str, Any]]:
    """Complete each prompt in all ``WAYS``: the text after each step, and the share of repeated tokens at the end."""

    def completed(prompt: str, how: str) -> dict[str, Any]:
        ids = model.tokenizer.encode(prompt, add_special_tokens=False).ids  # all, for the end of a long prompt counts
        steps = complete(model, ids, num_masks, how)
        return {
            "texts": [model.tokenizer.decode([token for token in step if token != model.mask]) for step in steps],
            "repeated": rounded(1 - len(set(steps[-1])) / num_masks),
        }

    return [{"prompt": prompt, "ways": {how: completed(prompt, how) for how in WAYS}} for prompt in prompts]


def fill_masks(model: ProbedModel, masks: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Predict the [MASK] of each (text, expected word) in ``masks``, and return the rank of the word.

    ``rank`` is 1 for the most probable token, and None if the word is not a single token. The start of a text is
    dropped if the mask would be beyond the longest input.
    """
    predictions = []
    for text, answer in masks:
        before, after = (model.tokenizer.encode(part, add_special_tokens=False).ids for part in text.split(MASK))
        before = before[max(0, len(before) + 1 - model.max_tokens) :]
        (log_probs,) = model.log_probabilities([[*before, model.mask, *after][: model.max_tokens]], [[len(before)]])
        expected = model.ids(f" {answer}")  # with a space, as within a sentence
        top = log_probs[0].topk(TOP_K)
        one_token = len(expected) == 1 and expected[0] != model.unknown
        predictions.append({
            "text": text,
            "answer": answer,
            "rank": 1 + int((log_probs[0] > log_probs[0, expected[0]]).sum()) if one_token else None,
            "likeliest": [
                [model.tokenizer.id_to_token(token), rounded(probability)]
                for token, probability in zip(top.indices.tolist(), top.values.exp().tolist(), strict=True)
            ],
        })  # fmt: skip
    return predictions


def loss_by_masks(model: ProbedModel, texts: Sequence[Sequence[int]], counts: np.ndarray, seed: int) -> dict[str, Any]:
    """Compute the loss (nats) of a masked token as more tokens after it are masked.

    The text after the masks is ``kept`` or ``cut``. ``texts`` are token ids; texts that are too short are skipped.
    ``counts``: how often each token occurs in the training text, int64 [vocab_size], for the ``unigram`` loss.
    """
    min_length = max(MASK_COUNTS) + 2 * MIN_CONTEXT
    texts = [list(text) for text in texts if len(text) >= min_length][:MAX_TEXTS]
    if not texts:
        raise SkipMeasure("no sentence of the validation text is long enough")
    choices = np.array([len(text) - min_length + 1 for text in texts])
    offsets = (uniform(derive_seed(seed, "judged token"), np.arange(len(texts)), 0) * choices).astype(int)
    pairs = list(zip(texts, (MIN_CONTEXT + offsets).tolist(), strict=True))
    end = _full_stop(model)
    figures: dict[str, Any] = {"texts": len(texts), "masks": list(MASK_COUNTS), "kept": [], "cut": []}
    for num_masks in MASK_COUNTS:
        for key in ("kept", "cut"):
            masked = [
                [*text[:at], *[model.mask] * num_masks, *(text[at + num_masks :] if key == "kept" else end)]
                for text, at in pairs
            ]
            predicted = model.log_probabilities(masked, [[at] for _, at in pairs])
            losses = [-float(log_probs[0, text[at]]) for log_probs, (text, at) in zip(predicted, pairs, strict=True)]
            figures[key].append(rounded(float(np.mean(losses))))
    unigram = np.log((counts + 1) / (counts + 1).sum())  # one is added, since a token may be new in the validation text
    figures["unigram"] = rounded(-float(np.mean([unigram[text[at]] for text, at in pairs])))
    return figures
