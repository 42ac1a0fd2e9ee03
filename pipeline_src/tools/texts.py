"""Texts of a tool: read from arguments, a file or standard input, computed by length, returned in order."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import Progress

BATCH_TOKENS = 4_096  # in one batch
AT_ONCE = 4_096  # texts that are sorted by length together
Result = TypeVar("Result")


def add_text_arguments(parser: argparse.ArgumentParser, what: str = "texts") -> None:
    """Add ``texts`` and ``--file``."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help=f"{what}; without any, lines of --file or stdin")
    parser.add_argument("--file", type=Path, help="a text a line, UTF-8")


def check_output(output: Path | None, kinds: Iterable[str]) -> None:
    """Check the ending of an output file."""
    if output is not None and output.suffix not in kinds:
        raise PipelineError("unknown kind of output", output, hint=f"name it {' or '.join(f'*{s}' for s in kinds)}")


def read_texts(arguments: argparse.Namespace) -> Iterable[str]:
    """Return the texts of :func:`add_text_arguments`; those of a file are read as they are needed."""
    if arguments.texts and arguments.file:
        raise PipelineError("texts and --file", arguments.file, hint="give one of the two")
    return arguments.texts or read_lines(arguments.file)


def read_lines(path: Path | None) -> Iterator[str]:
    """Yield the lines of a file, or of standard input."""
    where = path or "standard input"
    try:
        with open(path, "rb") if path else nullcontext(sys.stdin.buffer) as file:
            for line in file:
                yield line.decode("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError("texts cannot be read", error, where=where, hint="give a file in UTF-8") from None


def tracked(
    results: Iterable[tuple[str, Result]], arguments: argparse.Namespace, stack: ExitStack, what: str
) -> Iterator[tuple[str, Result]]:
    """Yield the results; show the bytes of their texts as progress, with the time left if they are from a file."""
    size = os.path.getsize(arguments.file) if arguments.file and arguments.file.is_file() else None
    progress = None if arguments.texts else stack.enter_context(Progress(what, size, "B"))
    for text, result in results:
        yield text, result
        if progress is not None:
            progress.advance(len(text.encode()) + 1)


def in_order(
    texts: Iterable[str],
    encode: Callable[[list[str]], Sequence[list[int]]],
    compute: Callable[[list[list[int]]], Iterable[Result]],
    batch_tokens: int = BATCH_TOKENS,
    at_once: int = AT_ONCE,
) -> Iterator[tuple[str, Result]]:
    """Yield each text with its result, in order; at most ``at_once`` of them are in memory.

    Args:
        texts: any number of them.
        encode: returns the ids of some texts.
        compute: returns the results of a batch, texts of similar lengths given as ids.
        batch_tokens: most tokens of a batch; a longer text is one alone.
    """
    texts = iter(texts)
    while some := list(islice(texts, at_once)):
        ids = encode(some)
        results: list[Result | None] = [None] * len(some)
        for numbers in batches([len(text) + 2 for text in ids], batch_tokens):
            for number, result in zip(numbers, compute([ids[number] for number in numbers]), strict=True):
                results[number] = result
        yield from zip(some, results, strict=True)  # type: ignore[misc]


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield indices of texts, the longest first, as many at once as fit if padded to the longest."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    yield batch
