"""Tool ``embed``: texts as vectors, pooled from the last layer of an encoder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file
from pipeline_src.common.progress import log
from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import Bert
from pipeline_src.models.names import ENCODER
from pipeline_src.tools.open_model import DEFAULT, Opened, open_model

BATCH_TOKENS = 16_384  # in one batch
AT_ONCE = 4_096  # texts that are sorted by length and held in memory together


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts; without any, the lines of --file or of stdin")
    parser.add_argument("--file", type=Path, help="a text a line, UTF-8")
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")
    parser.add_argument(
        "--pooling", choices=POOLINGS, default="mean",
        help="mean or maximum of the token vectors, [CLS] and [SEP] included, or that of [CLS] (default mean)",
    )  # fmt: skip
    parser.add_argument("--normalise", action="store_true", help="divide each vector by its length")
    parser.add_argument("--output", type=Path, help=f"file, {' or '.join(WRITERS)}; without it, JSON lines to stdout")


def main(arguments: argparse.Namespace) -> None:
    """Write one vector a text, in the order of the texts.

    Raises:
        PipelineError: no model, no readable text, or an output of unknown kind.
    """
    output = arguments.output
    if output is not None and output.suffix not in WRITERS:
        raise PipelineError("unknown kind of output", output, remedy=f"name it {' or '.join(f'*{s}' for s in WRITERS)}")
    if arguments.texts and arguments.file:
        raise PipelineError("texts and --file", arguments.file, remedy="give one of the two")
    opened = open_model(arguments.model, make_encoder, ENCODER, "the folder has no encoder")
    with ExitStack() as stack:
        texts = arguments.texts or _lines(arguments.file, stack)
        vectors = embed(opened, texts, arguments.pooling, arguments.normalise)
        if output is None:
            write_lines(vectors, sys.stdout)
        else:
            mode, write = WRITERS[output.suffix]
            write(vectors, stack.enter_context(atomic_file(output, mode)))


def _lines(path: Path | None, stack: ExitStack) -> Iterator[str]:
    where = path or "standard input"
    try:
        file = stack.enter_context(open(path, "rb")) if path else sys.stdin.buffer
        for line in file:
            yield line.decode("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError("texts cannot be read", error, where=where, remedy="give a file in UTF-8") from None


def embed(
    opened: Opened[Bert], texts: Iterable[str], pooling: str = "mean", normalise: bool = False
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each text with its vector, float32 [H], in order.

    Texts are encoded in batches of similar lengths, BATCH_TOKENS at most; a longer text than the model takes is cut,
    and how many were is logged. An empty text is [CLS] [SEP].
    """
    cut = 0
    texts = iter(texts)
    while some := list(islice(texts, AT_ONCE)):
        encodings = opened.tokenizer.encode_batch(some, add_special_tokens=False)
        cut += sum(len(encoding) > opened.max_seqlen for encoding in encodings)
        ids = [encoding.ids[: opened.max_seqlen] for encoding in encodings]
        vectors = np.empty((len(some), opened.config.hidden_size), np.float32)
        for numbers in _batches([len(text) + 2 for text in ids]):
            pooled = _pool(opened, [ids[number] for number in numbers], pooling, normalise)
            vectors[numbers] = pooled.cpu().numpy()
        yield from zip(some, vectors, strict=True)
    if cut:
        log.warning("%d texts were cut to the %d tokens that the model takes", cut, opened.max_seqlen)


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Numbers of texts, the longest first, as many at once as fit when padded to the longest of them."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    yield batch


@torch.inference_mode()
def _pool(opened: Opened[Bert], texts: list[list[int]], pooling: str, normalise: bool) -> Tensor:
    ids, segments, cu_seqlens = opened.pack(texts)
    hidden, _ = opened.model(ids, segments, cu_seqlens)
    vectors = POOLINGS[pooling](hidden.float(), cu_seqlens)
    return torch.nn.functional.normalize(vectors) if normalise else vectors


# Each takes hidden states [T, H] and starts [B + 1], and gives [B, H].
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda hidden, cu_seqlens: torch.segment_reduce(hidden, "mean", offsets=cu_seqlens),
    "max": lambda hidden, cu_seqlens: torch.segment_reduce(hidden, "max", offsets=cu_seqlens),
    "cls": lambda hidden, cu_seqlens: hidden[cu_seqlens[:-1]],
}


def write_lines(vectors: Iterable[tuple[str, np.ndarray]], file: IO[str]) -> None:
    """A JSON object a line: ``text`` and ``vector``, in the fewest digits that give the same float32."""
    for text, vector in vectors:
        numbers = [float(str(number)) for number in vector]
        file.write(json.dumps({"text": text, "vector": numbers}, ensure_ascii=False) + "\n")


def write_array(vectors: Iterable[tuple[str, np.ndarray]], file: IO[bytes]) -> None:
    """NumPy's format: float32 [texts, H]; [0, 0] where there are none."""
    rows = [vector for _, vector in vectors]
    np.save(file, np.stack(rows) if rows else np.empty((0, 0), np.float32))


WRITERS = {".jsonl": ("w", write_lines), ".npy": ("wb", write_array)}
