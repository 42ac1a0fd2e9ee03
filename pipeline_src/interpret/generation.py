"""Continue a text with a masked language model, and fill single masks.

Several masks are filled all at once, left to right, or the most probable first. In none of these ways is the model a
language model, since it was not trained on the joint distribution of the masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_src.interpret.bootstrap import rounded
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.study.interpretation import MASK

# Number of masks after a prompt.
NUM_COMPLETED = 8
# Number of candidates that are recorded for a mask.
TOP_K = 3

# Way -> the positions that the next step fills, given all masked positions and each position's best log-probability.
WAYS: dict[str, Callable[[list[int], Tensor], list[int]]] = {
    "at once": lambda masked, best: masked,
    "left to right": lambda masked, best: masked[:1],
    "surest first": lambda masked, best: [max(masked, key=lambda position: float(best[position]))],
}


def complete(model: ProbedModel, prompt: Sequence[int], num_masks: int, how: str) -> list[list[int]]:
    # Fill the masks after a prompt, and return their ids after each step.
    # A full stop after the masks makes the model end the sentence.
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
    # Ids that must not fill a mask.
    leading, trailing = model.template.special_ids
    special = {*leading, *trailing}
    for token in (model.kind.pad, model.kind.unk, model.kind.mask):
        special.add(model.kind.id_of(model.tokenizer, token))
    return sorted(special)


def completions(model: ProbedModel, prompts: Sequence[str], num_masks: int = NUM_COMPLETED) -> list[dict[str, Any]]:
    rows = []
    for prompt in prompts:
        # Not truncated as ProbedModel.ids does it: of a long prompt, the end counts.
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
    """Predict the [MASK] of each (text, expected word) in ``masks``, and return the rank of the word.

    ``rank`` is 1 for the most probable token, and None if the word is not a single token. The start of a text is
    dropped if the mask would be beyond the longest input.
    """
    predictions = []
    for text, answer in masks:
        before, after = (model.tokenizer.encode(part, add_special_tokens=False).ids for part in text.split(MASK))
        surplus = max(0, len(before) + 1 - model.max_tokens)
        before = before[surplus:]
        ids = [*before, model.mask, *after][: model.max_tokens]
        (log_probs_of_text,) = model.log_probabilities([ids], [[len(before)]])
        log_probs = log_probs_of_text[0]

        # With a space, as a word within a sentence has it: byte-level vocabularies make it part of the token.
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
