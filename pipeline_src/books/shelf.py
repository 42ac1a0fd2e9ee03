"""The files of a shelf and how each is read: one book a file, one a row, or a list of sentences without books.

A :class:`Piece` is what becomes one document. Files of books are left to the worker that cleans them; rows and lists
are streamed, a few pieces at a time, so that a file may be larger than memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pipeline_src.books.encodings import BLOCK, MARKS, decode_blocks, find_encoding, name_of
from pipeline_src.books.plain_text import LIST_LINES, SENTENCE_MOST, blank_lines_part, is_sentence_list
from pipeline_src.books.rows import ROW_READERS, Row, read_rows
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import list_folder

BOOK_SUFFIXES = (".txt", ".md")
SUFFIXES = (*BOOK_SUFFIXES, *ROW_READERS)
LARGEST_BOOK = 256 << 20  # bytes; the longest novels have a tenth of it


@dataclass(frozen=True)
class Piece:
    """What becomes one document.

    Attributes:
        id: of the document.
        title: for people.
        path: the file that holds it.
        text: its text as it stands in the file; None where it is the whole file.
        sentences: how many lines ``text`` has, where each is one sentence; 0 where it is a book.
    """

    id: str
    title: str
    path: Path
    text: str | None = None
    sentences: int = 0


def find_books(folder: Path) -> list[Path]:
    """Every file below ``folder`` that can be read, in the order of their paths.

    Raises:
        PipelineError: there is none, or two have the same name, so that their documents would share an id.
    """
    paths = sorted(path for path in _files(folder) if suffix_of(path) in SUFFIXES)
    if not paths:
        raise PipelineError(
            "no books found", where=folder,
            remedy=f"run `download_books`, or put files there: {', '.join(SUFFIXES)}",
        )  # fmt: skip
    by_name: dict[str, Path] = {}
    for path in paths:
        if stem_of(path) in by_name:
            raise PipelineError(
                "two books have the same name",
                path,
                where=by_name[stem_of(path)],
                remedy="rename or remove one of them",
            )
        by_name[stem_of(path)] = path
    return paths


def count_others(folder: Path) -> int:
    """How many files below ``folder`` are in no format that can be read (the download's own record apart)."""
    return sum(suffix_of(path) not in SUFFIXES and path.name != "source.json" for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    for name in list_folder(folder):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif name[0] != "." and path.is_file():
            yield path


def suffix_of(path: Path) -> str:
    """The end of a file's name that tells its format: ``.txt``, ``.jsonl.gz``."""
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), path.suffix.lower())


def stem_of(path: Path) -> str:
    """A file's name without what tells its format."""
    return path.name[: -len(suffix_of(path)) or None]


def read_shelf(
    paths: Iterable[Path], sentences_per_document: int, encoding: str | None, text_column: str, encodings: Counter[str]
) -> Iterator[Piece]:
    """Yield the pieces of every file, in order.

    Args:
        paths: as :func:`find_books` gives them.
        sentences_per_document: lines or rows of one piece, where each is a sentence.
        encoding: ``books.encoding``.
        text_column: ``books.text_column``.
        encodings: how streamed text files were decoded is counted here, once they are read to their end.

    Raises:
        PipelineError: a file is not in its format; file and byte, line or row are named.
    """
    for path in paths:
        if suffix_of(path) in ROW_READERS:
            yield from _rows(path, text_column, sentences_per_document)
            if suffix_of(path) != ".parquet":
                encodings["utf-8"] += 1
            continue
        found = _list_layout(path, encoding) if suffix_of(path) == ".txt" else None
        if found:
            name, parted = found
            yield from _parts(path, _lines(decode_blocks(path, name, encoding)), sentences_per_document, parted)
            encodings[name_of(name)] += 1
        elif path.stat().st_size > LARGEST_BOOK:
            raise PipelineError(
                "too large for one book", path, where=f"{path.stat().st_size:,} bytes, not a sentence on each line",
                remedy="cut it into one file a book, or into one sentence a line",
            )  # fmt: skip
        else:
            yield Piece(f"books:{stem_of(path)}", _title(path), path)


def _list_layout(path: Path, declared: str | None) -> tuple[str, bool] | None:
    """Of a list of sentences, to judge by its start, the encoding and whether blank lines part documents.

    None for any other file.
    """
    with open(path, "rb") as file:
        head = file.read(BLOCK)
    likely = next((encoding for mark, encoding in MARKS if head.startswith(mark)), declared or "utf-8")
    text = head.decode(likely, "replace")
    if not is_sentence_list(text):
        return None
    try:
        encoding = find_encoding(head, path, declared, whole=len(head) < BLOCK)
        next(decode_blocks(path, encoding, declared))
    except PipelineError:
        return None  # read as a book it cannot be decoded either: dropped, or an error, by books.undecodable
    return encoding, blank_lines_part(text)


def _lines(blocks: Iterable[str]) -> Iterator[str]:
    rest = ""
    for block in blocks:
        *lines, rest = (rest + block).split("\n")
        yield from lines
    yield rest


def _rows(path: Path, text_column: str, sentences_per_document: int) -> Iterator[Piece]:
    """A piece a row, or where each row is one sentence (as some editions of BookCorpus have it) a piece for many."""
    rows = read_rows(path, suffix_of(path), text_column)
    start: list[Row] = []
    for row in islice(rows, 2 * LIST_LINES + 1):
        start.append(row)
        if "\n" in row.text or len(row.text) > SENTENCE_MOST:
            break
    listed = is_sentence_list("\n".join(row.text for row in start))
    everything = _all(start, rows)
    if listed:
        yield from _parts(path, (row.text.replace("\n", " ") for row in everything), sentences_per_document)
        return
    for row in everything:
        name = f"{stem_of(path)}-{row.id or f'{row.number:06d}'}"
        yield Piece(f"books:{name}", row.title or f"{_title(path)}, row {row.number + 1}", path, row.text)


def _all(start: list[Row], rows: Iterator[Row]) -> Iterator[Row]:
    while start:  # a row is let go as soon as it is read
        yield start.pop(0)
    yield from rows


def _parts(path: Path, lines: Iterable[str], size: int, parted: bool = False) -> Iterator[Piece]:
    """Pieces of up to ``size`` lines; blank lines end one where documents are ``parted`` by them, else do not count."""
    for number, part in enumerate(_lots(lines, size, parted)):
        name, title = f"books:{stem_of(path)}-{number:06d}", f"{_title(path)}, part {number + 1}"
        yield Piece(name, title, path, "\n".join(part), len(part))


def _lots(lines: Iterable[str], size: int, parted: bool) -> Iterator[list[str]]:
    part: list[str] = []
    for line in lines:
        blank = not line or line.isspace()
        if not blank:
            part.append(line)
        if part and (len(part) == size or (blank and parted)):
            yield part
            part = []
    if part:
        yield part


def _title(path: Path) -> str:
    return " ".join(stem_of(path).replace("_", " ").replace("-", " ").split())
