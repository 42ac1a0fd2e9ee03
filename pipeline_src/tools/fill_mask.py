"""Tool ``fill-mask``: print the most likely tokens at each [MASK] of a text."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.paths import DEFAULT_MODEL
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.study.interpretation import MASK
from pipeline_src.tokenizer.load import reading_masks
from pipeline_src.tools.inspect import open_masked_lm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", help=f'text with one {MASK} or several, such as "The cat sat on the {MASK}."')
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help=f"folder (default {DEFAULT_MODEL})")
    parser.add_argument("--top", type=int, default=5, help=f"candidates for each {MASK} (default 5)")


def main(arguments: argparse.Namespace) -> None:
    if arguments.top < 1:
        raise PipelineError("number of candidates is below 1", arguments.top, where="--top", hint="give 1 or more")
    for number, candidates in enumerate(fill_mask(open_masked_lm(arguments.model), arguments.text, arguments.top), 1):
        print(f"{MASK} {number}")
        for token, probability in candidates:
            print(f"{100 * probability:8.2f} %  {token}")


def fill_mask(model: ProbedModel, text: str, top: int) -> list[list[tuple[str, float]]]:
    """Predict the tokens at each [MASK] of a text, in one forward pass with all masks in place.

    Returns:
        For each [MASK], its ``top`` most likely (token, probability) pairs, the most likely first.
    """
    tokenizer = model.tokenizer
    # The vocabulary may use another mask token, such as <mask>.
    marked = text.replace(MASK, model.kind.mask)
    ids = reading_masks(tokenizer).encode(marked, add_special_tokens=False).ids
    positions = [position for position, token in enumerate(ids) if token == model.mask]
    if not positions:
        hint = f"replace a word of the text by {MASK}, in capitals"
        raise PipelineError(f"no {MASK} in the text", repr(text), hint=hint)
    if len(ids) > model.max_tokens:
        limit = f"{len(ids)} tokens; the model's maximum is {model.max_tokens}"
        raise PipelineError("the text is too long", limit, hint="give a shorter text")
    probabilities = model.log_probabilities([ids], [positions])[0].exp()
    count = min(top, tokenizer.get_vocab_size())
    best = probabilities.topk(count)
    filled = []
    for indices, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        tokens = [str(tokenizer.id_to_token(index)) for index in indices]
        filled.append(list(zip(tokens, values, strict=True)))
    return filled
