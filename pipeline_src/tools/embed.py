"""Tool ``embed``: vectors of texts, pooled from the last layer of an encoder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.files import atomic_file
from pipeline_src.common.progress import log
from pipeline_src.models.adapter import ENCODER
from pipeline_src.models.bert import Bert, make_encoder
from pipeline_src.tools.open_model import DEFAULT, Opened, open_model
from pipeline_src.tools.texts import add_text_arguments, check_output, in_order, read_texts, tracked

NO_ENCODER = "the folder has no encoder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    add_text_arguments(parser)
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")
    parser.add_argument(
        "--pooling", choices=POOLINGS, default="mean",
        help="mean or maximum of the token vectors, special tokens included, or the first token's (default mean)",
    )  # fmt: skip
    parser.add_argument("--normalise", action="store_true", help="divide each vector by its length")
    parser.add_argument("--output", type=Path, help=f"file, {' or '.join(WRITERS)}; without it, JSON lines to stdout")


def main(arguments: argparse.Namespace) -> None:
    """Write one vector per text, in the order of the texts."""
    output = arguments.output
    check_output(output, WRITERS)
    with ExitStack() as stack:
        texts = read_texts(arguments)
        opened = open_model(arguments.model, make_encoder, ENCODER, NO_ENCODER)
        vectors = embed(opened, texts, arguments.pooling, arguments.normalise)
        vectors = tracked(vectors, arguments, stack, "embedding")
        mode, write = WRITERS[output.suffix if output else ".jsonl"]
        write(vectors, stack.enter_context(atomic_file(output, mode)) if output else sys.stdout, opened)


def embed(
    opened: Opened[Bert], texts: Iterable[str], pooling: str = "mean", normalise: bool = False
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each text with its vector, float32 [H], in order.

    Texts that are too long for the model are truncated, and their number is logged. An empty text is ``[CLS] [SEP]``.
    """
    cut = 0

    def encode(some: list[str]) -> list[list[int]]:
        nonlocal cut
        encodings = opened.tokenizer.encode_batch(some, add_special_tokens=False)
        cut += sum(len(encoding) > opened.max_seqlen for encoding in encodings)
        return [encoding.ids[: opened.max_seqlen] for encoding in encodings]

    yield from in_order(texts, encode, lambda ids: pool(opened, ids, pooling, normalise))
    if cut:
        log.warning("%d texts were cut to the %d tokens that the model takes", cut, opened.max_seqlen)


@torch.inference_mode()
def pool(opened: Opened[Bert], texts: list[list[int]], pooling: str = "mean", normalise: bool = False) -> np.ndarray:
    """Return the vectors of a batch of texts given as ids, float32 [B, H]."""
    ids, token_type_ids, cu_seqlens = opened.pack(texts)
    hidden, _ = opened.model(ids, token_type_ids, cu_seqlens)
    vectors = POOLINGS[pooling](hidden.float(), cu_seqlens)
    return (torch.nn.functional.normalize(vectors) if normalise else vectors).cpu().numpy()


# Each takes hidden states [T, H] and cu_seqlens [B + 1], and returns [B, H].
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda hidden, cu_seqlens: torch.segment_reduce(hidden, "mean", offsets=cu_seqlens),
    "max": lambda hidden, cu_seqlens: torch.segment_reduce(hidden, "max", offsets=cu_seqlens),
    "cls": lambda hidden, cu_seqlens: hidden[cu_seqlens[:-1]],
}


def write_lines(vectors: Iterable[tuple[str, np.ndarray]], file: IO[str], opened: Opened[Bert]) -> None:
    """Write a JSON object per line: ``text`` and ``vector``, in the fewest digits that give the same float32."""
    for text, vector in vectors:
        numbers = [float(str(number)) for number in vector]
        file.write(json.dumps({"text": text, "vector": numbers}, ensure_ascii=False) + "\n")


def write_array(vectors: Iterable[tuple[str, np.ndarray]], file: IO[bytes], opened: Opened[Bert]) -> None:
    """Write NumPy's format, float32 [texts, H]; its header has room for the number of texts, known at the end."""

    def write_header(count: int) -> None:
        shape = (count, opened.config.hidden_size)
        np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": "<f4"})

    write_header(0)
    count = 0
    for _, vector in vectors:
        file.write(vector.astype("<f4").tobytes())
        count += 1
    file.seek(0)
    write_header(count)


Writer = Callable[[Iterable[tuple[str, np.ndarray]], IO[Any], Opened[Bert]], None]
WRITERS: dict[str, tuple[str, Writer]] = {".jsonl": ("w", write_lines), ".npy": ("wb", write_array)}
