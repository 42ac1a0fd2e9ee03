"""Tables as their makers publish them: tabs without quoting (GLUE), quoted commas (SWAG), lines of JSON (one's own)."""

from __future__ import annotations

import csv
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown_text
from pipeline_src.common.progress import log
from pipeline_src.tasks.files.spec import Column, Layout

FETCH_AGAIN = "mend the file, or fetch it again"
SHORT, LONG = "rows dropped (a column is missing)", "rows with more fields than the header (kept)"
Row = tuple[int, list[str]]  # line number, counted from 1, and fields
Record = tuple[int, dict[Column, str]]  # line number and the wanted fields that the line has


def read_columns(task: str, path: Path, layout: Layout, counts: Counter[str] | None = None) -> Iterator[Record]:
    """Yield the line number and the wanted fields, by column, of each row of a table in any of the formats.

    Args:
        task: named in errors.
        path: the file; its suffix, one of ``READERS``, tells the format.
        layout: what to read.
        counts: filled with what was dropped and what looks odd, by reason; the log says it too.

    Raises:
        PipelineError: the file is empty, in no known format or not UTF-8, or a row lacks a column or cannot be read;
            file and line are named.
    """
    if path.suffix not in READERS:
        remedy = f"tables end in {', '.join(READERS)}"
        raise PipelineError("no reader for this kind of file", path.suffix or "no suffix", where=path, remedy=remedy)
    wanted = layout.columns.wanted
    reasons: Counter[str] = Counter()
    count = 0
    missing_first: Column | None = None
    has: set[str] = set()  # columns of the rows that lack one
    for number, fields in READERS[path.suffix](path, wanted, layout.header, reasons):
        missing = [column for column in wanted if column not in fields]
        if missing and not layout.drop_short:
            where = f"{path}:{number}"
            raise PipelineError("a row has no value for a column", missing[0], where=where, remedy=FETCH_AGAIN)
        if missing:
            missing_first = missing_first or missing[0]
            has.update(map(str, fields))
            reasons[SHORT] += 1
        else:
            count += 1
            yield number, fields
    for reason, times in reasons.items():
        log.warning("%s: %d %s, %d rows read", path, times, reason, count)
    if counts is not None:
        counts.update(reasons)
    if not count and reasons[SHORT] and path.suffix == ".jsonl":  # every row lacks it: the column itself is missing
        others = ", ".join(map(shown_text, sorted(has))) or "none"
        there = f"{path}, of whose rows none has it; of those wanted they have {others}"
        raise PipelineError(
            "a column is missing", missing_first, where=there, remedy=f"name one that it has, or {FETCH_AGAIN}"
        )
    if not count:
        what = "no rows in the file" if path.stat().st_size else "empty file"
        raise PipelineError(what, path, where=f"task {task}", remedy=FETCH_AGAIN)


def tab_separated(path: Path) -> Iterator[Row]:
    """Rows of a file split at tabs and line ends alone: quotes are part of the text. A byte order mark is skipped.

    Raises:
        PipelineError: no such file, or not UTF-8.
    """
    for number, line in _lines(path):
        yield number, line.split("\t")


def comma_separated(path: Path) -> Iterator[Row]:
    """Rows of a quoted CSV file; a row's number is that of the line it starts on.

    Raises:
        PipelineError: no such file, not UTF-8, or a quote that is never closed.
    """
    with _readable(path), open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        start = 1
        try:
            for fields in reader:
                if fields:
                    yield start, fields
                start = reader.line_num + 1
        except csv.Error as error:
            where = f"{path}:{start}"
            what = "a field is too long" if "field limit" in str(error) else "a quote is not closed, or stands wrongly"
            raise PipelineError(what, error, where=where, remedy=FETCH_AGAIN) from None


def json_lines(path: Path, wanted: Sequence[Column], header: bool, counts: Counter[str]) -> Iterator[Record]:
    """Lines that are one JSON object each, whose keys are the columns; numbers are taken as they are written.

    Raises:
        PipelineError: no such file, not UTF-8, a line is no JSON object, or a wanted value is no text.
    """
    for number, line in _lines(path):
        where = f"{path}:{number}"
        try:
            record = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
        except RecursionError:
            raise PipelineError("a line is nested too deeply", where=where, remedy=FETCH_AGAIN) from None
        except ValueError as error:
            raise PipelineError("a line is not JSON", error, where=where, remedy=FETCH_AGAIN) from None
        if not isinstance(record, dict):
            raise PipelineError("a line is not a JSON object", line[:80], where=where, remedy=FETCH_AGAIN)
        fields: dict[Column, str] = {column: record[column] for column in wanted if column in record}
        for column, value in fields.items():
            if not isinstance(value, str):
                shown = f"{column} = {json.dumps(value)}"
                raise PipelineError("a value is no text", shown, where=where, remedy="write a text or a number")
            refuse_surrogates(value, where)
        yield number, fields


def refuse_surrogates(text: str, where: str) -> None:
    """Stop at a character that only JSON can spell (``\\ud800``): it stands for no letter and cannot be written.

    Raises:
        PipelineError: the text holds one.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        what = f"{ascii(text[error.start])} in {ascii(text[:40])}"
        raise PipelineError("half a character", what, where=where, remedy=FETCH_AGAIN) from None


def _table(
    rows: Callable[[Path], Iterator[Row]], path: Path, wanted: Sequence[Column], header: bool, counts: Counter[str]
) -> Iterator[Record]:
    table = rows(path)
    first = next(table, None)
    if first is None:
        return
    width = len(first[1])
    if header:
        places = _places(first[1], wanted, path)
    else:
        places = {column: int(column) - 1 for column in wanted}
        table = itertools.chain([first], table)
    for number, fields in table:
        if header and len(fields) > width:
            counts[LONG] += 1
        yield number, {column: fields[place] for column, place in places.items() if place < len(fields)}


READERS: dict[str, Callable[[Path, Sequence[Column], bool, Counter[str]], Iterator[Record]]] = {
    ".tsv": partial(_table, tab_separated),
    ".csv": partial(_table, comma_separated),
    ".jsonl": json_lines,
}


def _places(header: list[str], wanted: Sequence[Column], path: Path) -> dict[Column, int]:
    for column in wanted:
        if column not in header:
            where = f"{path}:1, which has {', '.join(header)}"
            raise PipelineError("a column is missing", column, where=where, remedy=FETCH_AGAIN)
    return {column: header.index(str(column)) for column in wanted}


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number, counted from 1, and text of each line, without its end. A byte order mark is skipped.

    Raises:
        PipelineError: no such file, or not UTF-8.
    """
    # newline="\\n": some texts hold a lone carriage return, which must not end a row
    with _readable(path), open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that hold something."""
    return ((number, line) for number, line in read_lines(path) if line)


class _readable:
    """Turns what goes wrong while a file is opened or decoded into one clear error."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            remedy = "run the stage download_tasks, or `dvc pull`"
            raise PipelineError("task file not found", self.path, remedy=remedy) from None
        if isinstance(error, UnicodeDecodeError):
            _refuse_encoding(self.path)


def _refuse_encoding(path: Path) -> NoReturn:
    """Say where a file stops being UTF-8: the decoder itself names only a place in its buffer."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                value = line[max(0, error.start - 10) : error.end + 10]
                remedy = "save it as UTF-8, or fetch it again"
                raise PipelineError("not UTF-8", value, where=f"{path}:{number}", remedy=remedy) from None
    raise PipelineError("not UTF-8", path, remedy="save it as UTF-8, or fetch it again")
