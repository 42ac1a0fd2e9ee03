"""Tool ``fill-mask``: the likeliest tokens at each [MASK] of a text."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file
from pipeline_src.models.adapter import ENCODER, MLM_HEAD
from pipeline_src.models.bert import BertForPretraining
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tools.open_model import DEFAULT, Opened, open_model
from pipeline_src.tools.texts import add_text_arguments, check_output, in_order, read_texts, tracked

MASK = "[MASK]"  # as a user writes it, whatever the vocabulary has
USED = (*ENCODER, MLM_HEAD)
Candidates = list[tuple[str, float]]  # tokens and their probabilities, in descending order


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    add_text_arguments(parser, f'texts with one {MASK} or several, such as "The cat sat on the {MASK}."')
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")
    parser.add_argument("--top", type=int, default=5, help=f"candidates for each {MASK} (default 5)")
    parser.add_argument("--output", type=Path, help="file, .jsonl; without it, texts of the command line give tables")


def main(arguments: argparse.Namespace) -> None:
    """Write the candidates for each [MASK]: tables for texts of the command line, else JSON lines."""
    output = arguments.output
    check_output(output, [".jsonl"])
    with ExitStack() as stack:
        texts = read_texts(arguments)
        opened = open_model(arguments.model, BertForPretraining, USED, "the model does not predict masked words")
        if opened.config.is_decoder:
            raise PipelineError(
                "the model predicts the next word, not masked ones", "is_decoder", where=arguments.model,
                hint="give --model one that was trained with pretrain.objective: mlm",
            )  # fmt: skip
        filled = tracked(fill_mask(opened, texts, arguments.top, arguments.file), arguments, stack, "filling masks")
        if arguments.texts and output is None:
            print("\n\n".join(as_table(text, candidates) for text, candidates in filled))
            return
        file = stack.enter_context(atomic_file(output)) if output else sys.stdout
        for text, candidates in filled:
            masks = [[{"token": token, "probability": p} for token, p in each] for each in candidates]
            file.write(json.dumps({"text": text, "masks": masks}, ensure_ascii=False) + "\n")


def fill_mask(
    opened: Opened[BertForPretraining], texts: Iterable[str], top: int, where: object = None
) -> Iterator[tuple[str, list[Candidates]]]:
    """Yield each text with the ``top`` likeliest tokens at each [MASK], in order; the other masks stay unfilled."""
    if top < 1:
        raise PipelineError("no candidates asked for", top, where="--top", hint="give 1 or more")
    mask = kind_of(opened.tokenizer).mask
    mask_id, tokenizer = opened.tokenizer.token_to_id(mask), reading_masks(opened.tokenizer)
    assert mask_id is not None, "every tokenizer here has a mask"
    vocab_size = opened.tokenizer.get_vocab_size()  # a model may have spare embeddings without a token
    read = 0

    def encode(some: list[str]) -> list[list[int]]:
        nonlocal read
        replaced = [text.replace(MASK, mask) for text in some]
        ids = [encoding.ids for encoding in tokenizer.encode_batch(replaced, add_special_tokens=False)]
        for text, text_ids in zip(some, ids, strict=True):
            read += 1
            place = f"{where or 'text'} {read:,}"
            if MASK not in text:
                hint = f"put {MASK}, in capitals, where a word is"
                raise PipelineError(f"no {MASK} in the text", repr(text), where=place, hint=hint)
            if len(text_ids) > opened.max_seqlen:
                taken = f"{len(text_ids)} tokens, of which the model takes {opened.max_seqlen}"
                raise PipelineError("the text is too long", taken, where=place, hint="give a shorter one")
        return ids

    @torch.inference_mode()
    def compute(texts: list[list[int]]) -> Iterator[list[Candidates]]:
        packed, token_type_ids, cu_seqlens = opened.pack(texts)
        hidden, _ = opened.model.bert(packed, token_type_ids, cu_seqlens, decoded=True)
        logits = opened.model.cls["predictions"](hidden[packed == mask_id])  # [masks, vocab_size]
        likely = logits[:, :vocab_size].float().softmax(-1).topk(min(top, vocab_size))
        rows = zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
        named = ([(str(opened.tokenizer.id_to_token(i)), p) for i, p in zip(*row, strict=True)] for row in rows)
        return (list(islice(named, text.count(mask_id))) for text in texts)

    yield from in_order(texts, encode, compute)


def reading_masks(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that encodes masks in the text as masks; other special tokens are plain text."""
    mask, copied = kind_of(tokenizer).mask, json.loads(tokenizer.to_str())
    for token in copied["added_tokens"]:
        token["special"] = token["special"] and token["content"] != mask
    reading = Tokenizer.from_str(json.dumps(copied))
    reading.encode_special_tokens = True  # as text, which leaves the mask
    return reading


def as_table(text: str, filled: list[Candidates]) -> str:
    """Return the candidates as a table for people."""
    lines = [text]
    width = max(len(token) for candidates in filled for token, _ in candidates)
    for number, candidates in enumerate(filled, start=1):
        which = f" {number} of {len(filled)}" if len(filled) > 1 else ""
        lines += ["", f"{MASK}{which}".ljust(width + 2) + "  probability"]
        lines += [f"  {token:<{width}}  {100 * probability:9.2f} %" for token, probability in candidates]
    return "\n".join(lines)
