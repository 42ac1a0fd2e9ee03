"""Files of one book a row: JSON lines, gzipped or not, and Parquet; read a few rows at a time."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipeline_src.common.errors import PipelineError

TITLES = ("title", "book_title", "name")
IDS = ("id", "book_id", "gutenberg_id")
BATCH = 4 << 20  # bytes of text read from a Parquet file at a time


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        number: from 0, in the file.
        text: of the column that params.yaml names.
        title: of the first of ``TITLES`` that is there; '' for none.
        id: of the first of ``IDS`` that is there; '' for none.
    """

    number: int
    text: str
    title: str
    id: str


def read_rows(path: Path, suffix: str, text_column: str) -> Iterator[Row]:
    """Yield the rows of a file in order.

    Raises:
        PipelineError: the file is damaged, a line is not a JSON object, there is no such column, or a row has no text;
            file and line or row are named.
    """
    for number, (where, record) in enumerate(ROW_READERS[suffix](path, text_column)):
        if text_column not in record:
            raise _no_column(where, text_column, record)
        text = record[text_column]
        if not isinstance(text, str):
            raise PipelineError(
                "a row without text", f"{text_column} is {json.dumps(text, default=str)[:80]}", where=where,
                remedy="leave such rows out of the file, or name another column as books.text_column in params.yaml",
            )  # fmt: skip
        row = Row(number, text.replace("\r\n", "\n").replace("\r", "\n"), _first(record, TITLES), _first(record, IDS))
        try:
            f"{row.text}{row.title}{row.id}".encode()
        except UnicodeEncodeError as error:
            raise PipelineError(
                "half a character", ascii(error.object[error.start]), where=where, remedy="mend or remove that row"
            ) from None
        yield row


def _first(record: dict[str, Any], names: Iterable[str]) -> str:
    values = (record[name] for name in names if record.get(name) is not None)
    return " ".join(str(next(values, "")).split())


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
                    raise PipelineError("nested too deeply", where=where, remedy="mend or remove that line") from None
                except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are
                    raise PipelineError("not JSON", error, where=where, remedy="mend or remove that line") from None
                if not isinstance(record, dict):
                    raise PipelineError(
                        "not a JSON object", type(record).__name__, where=where,
                        remedy='write each book as one line: {"title": ..., "text": ...}',
                    )  # fmt: skip
                yield where, record
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise PipelineError(
                "a damaged gzip file", error, where=f"{path}, after line {number:,}", remedy="fetch it again"
            ) from None


def _parquet(path: Path, text_column: str) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            there = file.schema_arrow.names
            if text_column not in there:
                raise _no_column(path, text_column, there)
            columns = [name for name in (text_column, *TITLES, *IDS) if name in there]
            if there.count(text_column) > 1:
                raise PipelineError(
                    "two columns of one name", text_column, where=path, remedy="rename or leave out one of them"
                )
            rows = max(1, file.metadata.num_rows)
            size = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
            batch = max(1, min(1 << 16, BATCH * rows // max(1, size)))
            for table in file.iter_batches(batch, columns=columns, use_threads=False):
                for record in table.to_pylist():
                    yield f"{path}, row {number}", record
                    number += 1
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # UnicodeDecodeError is a ValueError
        raise PipelineError(
            "not a Parquet file, or a damaged one",
            error,
            where=f"{path}, after row {number:,}",
            remedy="fetch it again",
        ) from None


def _no_column(where: object, text_column: str, there: Iterable[str]) -> PipelineError:
    return PipelineError(
        "no such column", text_column, where=f"{where}, which has {', '.join(there) or 'none'}",
        remedy="name the one that holds the text as books.text_column in params.yaml",
    )  # fmt: skip


# by the end of a file's name
ROW_READERS: dict[str, Callable[[Path, str], Iterator[tuple[str, dict[str, Any]]]]] = {
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines,
    ".ndjson": _json_lines,
    ".ndjson.gz": _json_lines,
    ".parquet": _parquet,
}
