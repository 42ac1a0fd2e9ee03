"""Tool ``fill-mask``: what the model would put at each [MASK] of a text."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.names import ENCODER, MASKED_WORDS
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tools.open_model import DEFAULT, Opened, open_model

MASK = "[MASK]"  # as a person writes it, however the vocabulary does
USED = (*ENCODER, MASKED_WORDS)
Candidates = list[tuple[str, float]]  # tokens and their probabilities, the likeliest first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("text", help=f'with one {MASK} or several: "The cat sat on the {MASK}."')
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")
    parser.add_argument("--top", type=int, default=5, help=f"candidates for each {MASK} (default 5)")


def main(arguments: argparse.Namespace) -> None:
    """Print a table of candidates for each [MASK].

    Raises:
        PipelineError: as in :func:`fill_mask`, or the folder holds no model that predicts masked words.
    """
    opened = open_model(arguments.model, BertForPretraining, USED, "the model does not predict masked words")
    if getattr(opened.config, "is_decoder", False):
        raise PipelineError(
            "the model predicts the next word, not masked ones", "is_decoder", where=arguments.model,
            remedy="give --model one that was trained with pretrain.objective: masked",
        )  # fmt: skip
    print(as_table(arguments.text, fill_mask(opened, arguments.text, arguments.top)))


@torch.inference_mode()
def fill_mask(opened: Opened[BertForPretraining], text: str, top: int) -> list[Candidates]:
    """The ``top`` likeliest tokens at each [MASK] of ``text``, in order; each mask is judged with the others unfilled.

    Raises:
        PipelineError: no [MASK], a text that is too long, or ``top`` is not positive.
    """
    if top < 1:
        raise PipelineError("no candidates asked for", top, where="--top", remedy="give 1 or more")
    if MASK not in text:
        raise PipelineError(f"no {MASK} in the text", repr(text), remedy=f"put {MASK}, in capitals, where a word is")
    mask = kind_of(opened.tokenizer).mask
    mask_id = opened.tokenizer.token_to_id(mask)
    ids = reading_masks(opened.tokenizer).encode(text.replace(MASK, mask), add_special_tokens=False).ids
    if len(ids) > opened.max_seqlen:
        raise PipelineError(
            "the text is too long", f"{len(ids)} tokens", where=f"the model takes {opened.max_seqlen}",
            remedy="give a shorter one",
        )  # fmt: skip
    packed, segments, cu_seqlens = opened.pack([ids])
    hidden, _ = opened.model.bert(packed, segments, cu_seqlens, decoded=True)
    scores = opened.model.cls["predictions"](hidden[packed == mask_id])  # [masks, entries]
    entries = opened.tokenizer.get_vocab_size()  # a model may have spare ones, which no token bears
    likely = scores[:, :entries].float().softmax(-1).topk(min(top, entries))
    rows = zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
    return [[(str(opened.tokenizer.id_to_token(i)), p) for i, p in zip(*row, strict=True)] for row in rows]


def reading_masks(tokenizer: Tokenizer) -> Tokenizer:
    """A copy to which a mask in the text is one; other special tokens are text like any other."""
    mask, copied = kind_of(tokenizer).mask, json.loads(tokenizer.to_str())
    for token in copied["added_tokens"]:
        token["special"] = token["special"] and token["content"] != mask
    reading = Tokenizer.from_str(json.dumps(copied))
    reading.encode_special_tokens = True  # as text, which leaves the mask
    return reading


def as_table(text: str, filled: list[Candidates]) -> str:
    """The candidates as text for a person."""
    lines = [text]
    width = max(len(token) for candidates in filled for token, _ in candidates)
    for number, candidates in enumerate(filled, start=1):
        which = f" {number} of {len(filled)}" if len(filled) > 1 else ""
        lines += ["", f"{MASK}{which}".ljust(width + 2) + "  probability"]
        lines += [f"  {token:<{width}}  {100 * probability:9.2f} %" for token, probability in candidates]
    return "\n".join(lines)
