"""Read books and other text from files with one text, one text per row, or one sentence per line.

A file with a single text is read by the worker that cleans it. Files with rows (JSON Lines, Parquet) and lists of
sentences are streamed, so they may be larger than memory.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import list_folder
from pipeline_src.base.parquet import read_parquet
from pipeline_src.base.progress import log
from pipeline_src.study.data import BooksParams, FilesParams
from pipeline_src.text.books.encodings import (
    BLOCK_SIZE,
    BYTE_ORDER_MARKS,
    check_encoding,
    decode,
    decode_blocks,
    find_encoding,
    name_of,
)
from pipeline_src.text.books.epub import read_epub
from pipeline_src.text.books.html import html_text, is_html
from pipeline_src.text.books.plain_text import BLANK_LINES, SENTENCE_END
from pipeline_src.text.sentences import split_sentences

TITLES = ("title", "book_title", "name")
IDS = ("id", "book_id", "gutenberg_id")
# Minimum number of lines of a file that counts as a list of sentences.
MIN_LIST_LINES = 100
# If documents would have fewer sentences on average, the blank lines in a list do not separate documents.
MIN_SENTENCES = 3
# Maximum number of characters in a line of a list.
MAX_SENTENCE_LENGTH = 1_000
# A line of a list has about one sentence, while a line with a paragraph has two or more. This is the maximum average.
MAX_SENTENCES_PER_LINE = 1.5
# Maximum size of a file with one text. The longest novels have about a tenth of this size.
MAX_BOOK_BYTES = 256 << 20


class TextRow(NamedTuple):
    """A row of a file.

    The title is the first column of ``TITLES`` that the row has, and the id the first of ``IDS``; '' if it has none.
    """

    # Index of the row in its file, from 0.
    number: int
    text: str
    title: str
    id: str


def read_rows(path: Path, suffix: str, text_column: str) -> Iterator[TextRow]:
    for number, (where, record) in enumerate(ROW_READERS[suffix](path, text_column)):
        if text_column not in record:
            raise _no_column(where, text_column, record)
        text = record[text_column]
        if not isinstance(text, str):
            raise PipelineError(
                "the text column of a row holds no text",
                f"{text_column} is {json.dumps(text, default=str)[:80]}",
                where=where,
                hint="remove such rows, or name another column as text_column of the source in params.yaml",
            )
        row = TextRow(
            number, text.replace("\r\n", "\n").replace("\r", "\n"), _first(record, TITLES), _first(record, IDS)
        )
        try:
            f"{row.text}{row.title}{row.id}".encode()
        except UnicodeEncodeError as error:
            raise PipelineError(
                "invalid Unicode (unpaired surrogate)",
                ascii(error.object[error.start]),
                where=where,
                hint="fix or remove that row",
            ) from None
        yield row


def _first(record: dict[str, Any], names: Iterable[str]) -> str:
    return " ".join(str(next((record[name] for name in names if record.get(name) is not None), "")).split())


def _json_lines(path: Path, _: str) -> Iterator[tuple[str, dict[str, Any]]]:
    opened: IO[bytes] = gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")  # type: ignore[assignment]
    with opened as file:
        number = 0
        try:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    record = json.loads(line.removeprefix(b"\xef\xbb\xbf").decode("utf-8"))
                except RecursionError:
                    raise PipelineError(
                        "the JSON is nested too deeply", where=where, hint="fix or remove that line"
                    ) from None
                # UnicodeDecodeError and JSONDecodeError are subclasses of ValueError.
                except ValueError as error:
                    raise PipelineError("invalid JSON", error, where=where, hint="fix or remove that line") from None
                if not isinstance(record, dict):
                    raise PipelineError(
                        "the line is not a JSON object",
                        type(record).__name__,
                        where=where,
                        hint='write each text as one line: {"title": ..., "text": ...}',
                    )
                yield where, record
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise PipelineError(
                "the gzip file is damaged", error, where=f"{path}, after line {number:,}", hint="fetch it again"
            ) from None


def _parquet(path: Path, text_column: str) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = read_parquet(path, [text_column], (*TITLES, *IDS), missing=partial(_no_column, path))
    for number, record in enumerate(rows):
        yield f"{path}, row {number}", record


def _no_column(where: object, text_column: str, names: Iterable[str]) -> PipelineError:
    return PipelineError(
        "the text column is missing",
        text_column,
        where=f"{where}, whose columns are {', '.join(names) or 'none'}",
        hint="set the source's text_column in params.yaml to the column that holds the text",
    )


# File suffix -> function that yields the location and content of each row.
ROW_READERS: dict[str, Callable[[Path, str], Iterator[tuple[str, dict[str, Any]]]]] = {
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines,
    ".ndjson": _json_lines,
    ".ndjson.gz": _json_lines,
    ".parquet": _parquet,
}


HTML_SUFFIXES = (".html", ".htm", ".xhtml")
SUFFIXES = (".txt", ".md", ".epub", *HTML_SUFFIXES, *ROW_READERS)


# Decide by the first lines whether each line of a text is one sentence, as in the distributed BookCorpus. Blank
# lines are ignored.
def is_sentence_list(text: str) -> bool:
    start = text[: 4 * MIN_LIST_LINES * MAX_SENTENCE_LENGTH]
    lines = [line for line in start.split("\n") if line.strip()][:-1][: 2 * MIN_LIST_LINES]
    num_ended = sum(line.rstrip()[-1] in SENTENCE_END for line in lines)
    if len(lines) < MIN_LIST_LINES or num_ended <= 0.8 * len(lines):
        return False
    return sum(len(split_sentences(line, "")) for line in lines) <= MAX_SENTENCES_PER_LINE * len(lines)


def blank_lines_separate(text: str) -> bool:
    # Decide whether blank lines separate documents, as in the input of google-research/bert. They do not if the
    # documents would have fewer than MIN_SENTENCES sentences on average.
    documents = [block for block in BLANK_LINES.split(text.strip("\n")) if block.strip()]
    return len(documents) > 1 and sum(block.count("\n") + 1 for block in documents) >= MIN_SENTENCES * len(documents)


@dataclass(frozen=True)
class RawDocument:
    id: str
    title: str
    path: Path
    # None if the text is the whole file, which the worker reads.
    text: str | None = None
    # Number of sentences, if each line of the text is one sentence. 0 for a book.
    num_sentences: int = 0


class WrongFile(NamedTuple):
    """A file that the stage ``clean`` cannot read; ``stops``: whether the stage fails or skips it."""

    error: PipelineError
    stops: bool


def find_wrong_files(folder: Path, params: FilesParams) -> Iterator[WrongFile]:
    for path in _files(folder):
        try:
            check_encoding(params.encoding)
            _read_first_text(path, params)
        except PipelineError as error:
            yield WrongFile(error, stops=not isinstance(error, _LeftOut))
    try:
        find_books(folder)
    except PipelineError as error:
        yield WrongFile(error, stops=True)


class _LeftOut(PipelineError):
    # Raised for a file that the stage skips and counts, instead of failing.
    pass


def _read_first_text(path: Path, params: FilesParams) -> None:
    if suffix_of(path) not in SUFFIXES:
        hint = f"convert it to one of {', '.join(SUFFIXES)}, or move it out of the folder"
        raise _LeftOut("unsupported file type", path, hint=hint)
    first = next(read_books("", {path: ""}, params, Counter()), None)
    text = "" if first is None else first.text
    if text is None:
        text = _read_book(path, params)
    if not text.strip():
        raise _LeftOut("the file contains no text", path, hint="replace it, or move it out of the folder")


def _read_book(path: Path, params: FilesParams) -> str:
    try:
        text, _ = read_text(path, params.encoding, Counter())
    except PipelineError as error:
        if params.undecodable == "error":
            raise
        raise _LeftOut(error.what, error.value, where=error.where, hint=error.hint) from None
    return text


def read_text(path: Path, declared: str | None, dropped: Counter[str]) -> tuple[str, str]:
    suffix = suffix_of(path)
    if suffix == ".epub":
        return read_epub(path, dropped)
    text, encoding = decode(path.read_bytes(), path, declared)
    if suffix in HTML_SUFFIXES or (suffix == ".txt" and is_html(text)):
        text = html_text(text, path, dropped, {})
    return text, encoding


def find_books(folder: Path) -> dict[Path, str]:
    # Return path -> name in the ids of documents.
    paths = sorted(path for path in _files(folder) if suffix_of(path) in SUFFIXES)
    if not paths:
        raise PipelineError(
            "no text files found",
            where=folder,
            hint=f"run `download`, or put files there: {', '.join(SUFFIXES)}",
        )
    num_stems = Counter(map(stem_of, paths))
    by_name: dict[str, Path] = {}
    for path in paths:
        name = stem_of(path)
        # Files of the same name in several folders are named by their folders too: "2019-01"
        if num_stems[name] > 1:
            name = "-".join([*path.relative_to(folder).parts[:-1], name])
        if name in by_name:
            raise PipelineError(
                "two files have the same name", path, where=by_name[name], hint="rename or remove one of them"
            )
        by_name[name] = path
    return {path: name for name, path in by_name.items()}


def count_unknown(folder: Path) -> int:
    # source.json is not counted, since the download stage writes it.
    return sum(suffix_of(path) not in SUFFIXES and path.name != "source.json" for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    for name in list_folder(folder):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif name[0] != "." and path.is_file():
            yield path


def suffix_of(path: Path) -> str:
    # Return the suffix, such as ".txt" or ".jsonl.gz".
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), path.suffix.lower())


def stem_of(path: Path) -> str:
    return path.name[: -len(suffix_of(path)) or None]


def read_books(
    source: str, names: Mapping[Path, str], params: FilesParams, encodings: Counter[str]
) -> Iterator[RawDocument]:
    # `names`: path -> name in the ids of documents.
    for path, name in names.items():
        text_id = f"{source}:{name}"
        if suffix_of(path) in ROW_READERS:
            yield from _rows(text_id, path, params)
            if suffix_of(path) != ".parquet":
                encodings["utf-8"] += 1
            continue
        layout = _list_layout(path, params.encoding) if suffix_of(path) == ".txt" else None
        if layout:
            encoding, separated = layout
            lines = _lines(decode_blocks(path, encoding, params.encoding))
            yield from _parts(text_id, path, lines, params.sentences_per_document, separated)
            encodings[name_of(encoding)] += 1
        # An EPUB may be large because of its pictures. Its reader limits the size of the text.
        elif path.stat().st_size > MAX_BOOK_BYTES and suffix_of(path) != ".epub":
            raise PipelineError(
                "the file is too large for a single text",
                path,
                where=f"{path.stat().st_size:,} bytes, and its lines are not single sentences",
                hint="split it into one file per text, or write one sentence per line",
            )
        else:
            yield RawDocument(text_id, _title(path), path)


def _list_layout(path: Path, declared: str | None) -> tuple[str, bool] | None:
    # Return the encoding of a list of sentences, and whether blank lines separate its documents. Return None for any
    # other file.
    with open(path, "rb") as file:
        head = file.read(BLOCK_SIZE)
    marked = (encoding for mark, encoding in BYTE_ORDER_MARKS if head.startswith(mark))
    likely = next(marked, declared or "utf-8")
    text = head.decode(likely, "replace").replace("\r\n", "\n")
    if not is_sentence_list(text):
        return None
    try:
        encoding = find_encoding(head, path, declared, complete=len(head) < BLOCK_SIZE)
        next(decode_blocks(path, encoding, declared))
    except PipelineError:
        # The file is read as a book instead, where the setting `undecodable` decides what happens.
        return None
    return encoding, blank_lines_separate(text)


def _lines(blocks: Iterable[str]) -> Iterator[str]:
    incomplete = ""
    for block in blocks:
        *lines, incomplete = (incomplete + block).split("\n")
        yield from lines
    yield incomplete


def _rows(text_id: str, path: Path, params: FilesParams) -> Iterator[RawDocument]:
    # Yield one document per row. If each row of a source of books is one sentence, as in some editions of BookCorpus,
    # join many rows to a document.
    rows = read_rows(path, suffix_of(path), params.text_column)
    start: list[TextRow] = []
    for row in islice(rows, 2 * MIN_LIST_LINES + 1):
        start.append(row)
        if "\n" in row.text or len(row.text) > MAX_SENTENCE_LENGTH:
            break
    all_rows = chain(start, rows)
    if isinstance(params, BooksParams) and is_sentence_list("\n".join(row.text for row in start)):
        size = params.sentences_per_document
        log.info("%s: each row is one sentence, so every %d rows become a document", path.name, size)
        lines = (row.text.replace("\n", " ") for row in all_rows)
        yield from _parts(text_id, path, lines, size)
        return
    for row in all_rows:
        row_id = row.id or f"{row.number:06d}"
        title = row.title or f"{_title(path)}, row {row.number + 1}"
        yield RawDocument(f"{text_id}-{row_id}", title, path, row.text)


def _parts(text_id: str, path: Path, lines: Iterable[str], size: int, separated: bool = False) -> Iterator[RawDocument]:
    # Yield documents of up to `size` lines. With `separated`, a blank line ends a document; otherwise blank lines are
    # ignored.
    for number, part in enumerate(_groups(lines, size, separated)):
        title = f"{_title(path)}, part {number + 1}"
        yield RawDocument(f"{text_id}-{number:06d}", title, path, "\n".join(part), len(part))


def _groups(lines: Iterable[str], size: int, separated: bool) -> Iterator[list[str]]:
    part: list[str] = []
    for line in lines:
        blank = not line or line.isspace()
        if not blank:
            part.append(line)
        if part and (len(part) == size or (blank and separated)):
            yield part
            part = []
    if part:
        yield part


def _title(path: Path) -> str:
    return " ".join(stem_of(path).replace("_", " ").replace("-", " ").split())
