"""Continue a text with a masked language model, and fill single masks.

Several masks are filled in one of three ways: all at once, from left to right, or the most certain mask first. The
results are not samples of a language model, since an MLM is not trained on the joint distribution of several masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_src.interpret.bootstrap import rounded
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.study.interpretation import MASK
from pipeline_src.tokenizer.load import reading_masks

# Number of masks after a prompt.
NUM_COMPLETED = 8
# Number of candidate tokens that are recorded for a mask.
TOP_K = 3

# Name of a way -> function that chooses the positions to fill in the next step. Its arguments are the positions that
# are still masked, and the log-probability of the best token at each position.
WAYS: dict[str, Callable[[list[int], Tensor], list[int]]] = {
    "at once": lambda masked, best: masked,
    "left to right": lambda masked, best: masked[:1],
    "surest first": lambda masked, best: [max(masked, key=lambda position: float(best[position]))],
}


def complete(model: ProbedModel, prompt: Sequence[int], num_masks: int, how: str) -> list[list[int]]:
    # Fills the masks after a prompt, and returns the token ids of the masked part after each step.

    # A full stop after the masks makes the model end the sentence there.
    full_stop = model.tokenizer.token_to_id(".")
    end = [] if full_stop is None else [full_stop]
    # The input is [prompt, masks, full stop]; the start of a long prompt is dropped.
    prompt = prompt[num_masks + len(end) - model.max_tokens :]
    positions = list(range(len(prompt), len(prompt) + num_masks))
    special = _special_tokens(model)

    tokens = [model.mask] * num_masks
    steps = []
    while model.mask in tokens:
        (log_probs,) = model.log_probabilities([[*prompt, *tokens, *end]], [positions])
        log_probs[:, special] = -torch.inf
        best = log_probs.max(-1)
        masked = [position for position, token in enumerate(tokens) if token == model.mask]
        for position in WAYS[how](masked, best.values):
            tokens[position] = int(best.indices[position])
        steps.append(list(tokens))
    return steps


def _special_tokens(model: ProbedModel) -> list[int]:
    # Returns the ids of tokens that must not fill a mask.
    leading, trailing = model.template.special_ids
    special = {*leading, *trailing}
    for token in (model.kind.pad, model.kind.unk, model.kind.mask):
        special.add(model.kind.id_of(model.tokenizer, token))
    return sorted(special)


def completions(model: ProbedModel, prompts: Sequence[str], num_masks: int = NUM_COMPLETED) -> list[dict[str, Any]]:
    rows = []
    for prompt in prompts:
        # Unlike ProbedModel.ids, this does not truncate the end. `complete` truncates the start of a long prompt.
        ids = model.tokenizer.encode(prompt, add_special_tokens=False).ids
        ways = {}
        for how in WAYS:
            steps = complete(model, ids, num_masks, how)
            texts = []
            for step in steps:
                filled = [token for token in step if token != model.mask]
                texts.append(model.tokenizer.decode(filled))
            distinct = len(set(steps[-1]))
            ways[how] = {"texts": texts, "repeated": rounded(1 - distinct / num_masks)}
        rows.append({"prompt": prompt, "ways": ways})
    return rows


def fill_masks(model: ProbedModel, masks: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Predict the [MASK] of each (text, expected word) in ``masks``.

    If the mask lies beyond the model's maximum length, the start of the text is dropped.

    Returns:
        For each text, ``likeliest`` (the most probable tokens with their probabilities) and ``rank`` (rank of the
        expected word; 1 if it is the most probable token, None if it is not a single known token).
    """
    predictions = []
    tokenizer = reading_masks(model.tokenizer)
    for text, answer in masks:
        # The text is tokenised as a whole. If its two parts were tokenised apart, a vocabulary with spaces in its
        # tokens would give other tokens next to the mask. The vocabulary may use another mask token, such as <mask>.
        marked = text.replace(MASK, model.kind.mask)
        ids = tokenizer.encode(marked, add_special_tokens=False).ids
        position = ids.index(model.mask)
        surplus = max(0, position + 1 - model.max_tokens)
        ids = ids[surplus:][: model.max_tokens]
        (log_probs_of_text,) = model.log_probabilities([ids], [[position - surplus]])
        log_probs = log_probs_of_text[0]

        # The word is tokenised with a space before it, because in byte-level vocabularies the space is part of the
        # token of a word within a sentence.
        expected = model.ids(f" {answer}")
        rank = None
        if len(expected) == 1 and expected[0] != model.unknown:
            (token,) = expected
            more_probable = log_probs > log_probs[token]
            rank = 1 + int(more_probable.sum())

        top = log_probs.topk(TOP_K)
        likeliest = []
        for token, probability in zip(top.indices.tolist(), top.values.exp().tolist(), strict=True):
            likeliest.append([model.tokenizer.id_to_token(token), rounded(probability)])
        predictions.append({"text": text, "answer": answer, "rank": rank, "likeliest": likeliest})
    return predictions
