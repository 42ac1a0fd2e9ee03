"""Texts taken out of one text file: a book out of many, cut at its chapters where the catalogue says so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pipeline_src.common.errors import PipelineError
from pipeline_src.sources.catalogue import Excerpt

REMEDY = "mend `excerpts` of this file in the catalogue"


def cut_out(text_file: Path, excerpts: Mapping[str, Excerpt], folder: Path, name: str) -> None:
    """Write each excerpt of ``text_file`` below ``folder``; its bytes are not decoded, so any encoding will do.

    Args:
        text_file: a file of text.
        excerpts: path below ``folder`` -> what stands there. With ``chapters`` the path ``book.txt`` becomes
            ``book-001.txt``, ``book-002.txt``, ...
        folder: an existing folder.
        name: what the file is called in an error.

    Raises:
        PipelineError: an expression is not found in the file, or not after the one before it.
    """
    whole = text_file.read_bytes()
    for path, excerpt in excerpts.items():
        begins = _find(excerpt.begins, whole, 0, name)
        ends = _find(excerpt.ends, whole, begins.end(), name)
        for part_path, part in _parts(path, whole[begins.start() : ends.start()], excerpt.chapters, name):
            target = folder / part_path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(part)


def _parts(path: str, text: bytes, chapters: str | None, name: str) -> list[tuple[PurePosixPath, bytes]]:
    book = PurePosixPath(path)
    if chapters is None:
        return [(book, text)]
    _find(chapters, text, 0, name)  # one at least
    starts = [match.start() for match in re.finditer(chapters.encode(), text, re.M)]
    return [
        (book.with_stem(f"{book.stem}-{number:03d}"), text[start:end])
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(text)], strict=True), start=1)
    ]


def _find(expression: str, text: bytes, position: int, name: str) -> re.Match[bytes]:
    found = re.compile(expression.encode(), re.M).search(text, position)
    if found is None:
        raise PipelineError("not in the file", expression, where=name, remedy=REMEDY)
    return found
