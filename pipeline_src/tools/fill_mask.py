"""Tool ``fill-mask``: what the model would put at each [MASK] of a text."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.names import ENCODER, MASKED_WORDS
from pipeline_src.tokenizer.wordpiece import MASK
from pipeline_src.tools.open_model import DEFAULT, Opened, open_model

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
    pieces = text.split(MASK)  # the tokenizer itself takes "[MASK]" for text like any other
    if len(pieces) == 1:
        raise PipelineError(f"no {MASK} in the text", repr(text), remedy=f"put {MASK}, in capitals, where a word is")
    mask_id = opened.tokenizer.token_to_id(MASK)
    ids: list[int] = []
    for number, piece in enumerate(pieces):
        ids += [mask_id] * (number > 0) + opened.tokenizer.encode(piece, add_special_tokens=False).ids
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


def as_table(text: str, filled: list[Candidates]) -> str:
    """The candidates as text for a person."""
    lines = [text]
    width = max(len(token) for candidates in filled for token, _ in candidates)
    for number, candidates in enumerate(filled, start=1):
        which = f" {number} of {len(filled)}" if len(filled) > 1 else ""
        lines += ["", f"{MASK}{which}".ljust(width + 2) + "  probability"]
        lines += [f"  {token:<{width}}  {100 * probability:9.2f} %" for token, probability in candidates]
    return "\n".join(lines)
