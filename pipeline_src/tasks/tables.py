"""Readers of task tables: tab-separated without quoting, CSV with quoting, JSON Lines, or Parquet."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown_text
from pipeline_src.base.parquet import read_parquet
from pipeline_src.base.progress import log
from pipeline_src.study.task_spec import Column, Layout

FETCH_AGAIN = "fix the file, or fetch it again"
SHORT = "rows dropped (a column is missing)"
LONG = "rows with more fields than the header (kept)"

# The csv module's own limit is 131,072 characters in a field, and some texts are longer. This is the highest possible.
csv.field_size_limit(2**31 - 1)

# (line number counted from 1, fields)
Row = tuple[int, list[str]]

# (line number counted from 1, required column -> field). Columns that the line lacks are left out.
Record = tuple[int, dict[Column, str]]


def read_columns(task: str, path: Path, layout: Layout, counts: Counter[str] | None = None) -> Iterator[Record]:
    """Yield (line number, column -> field) for each row, with the columns that ``layout`` requires.

    Args:
        path: file of the table. Its suffix, a key of ``READERS``, determines the format.
        counts: filled with the number of dropped or doubtful rows, by reason. The numbers are also logged.
    """
    if path.suffix not in READERS:
        hint = f"convert the table to one of {', '.join(READERS)}"
        raise PipelineError("unsupported file format", path.suffix or "no suffix", where=path, hint=hint)
    required = layout.columns.required
    reasons: Counter[str] = Counter()
    count = 0
    missing: list[Column] = []
    # The required columns that are present in rows where another required column is missing.
    available: set[str] = set()
    for number, fields in READERS[path.suffix](path, required, layout.header, reasons, layout.columns.labels):
        if len(fields) == len(required):
            count += 1
            yield number, fields
            continue
        missing += [column for column in required if column not in fields]
        if not layout.drop_short:
            where = f"{path}:{number}"
            raise PipelineError("a row has no value for a column", missing[0], where=where, hint=FETCH_AGAIN)
        available.update(map(str, fields))
        reasons[SHORT] += 1
    for reason, times in reasons.items():
        log.warning("%s: %d %s, %d rows read", path, times, reason, count)
    if counts is not None:
        counts.update(reasons)
    if count:
        return
    if missing and path.suffix == ".jsonl":
        # No row has all required columns.
        names = ", ".join(map(shown_text, sorted(available))) or "none"
        where = f"{path}, required columns found: {names}"
        hint = f"name a column that the file has, or {FETCH_AGAIN}"
        raise PipelineError("a column is missing", missing[0], where=where, hint=hint)
    problem = "no rows in the file" if path.stat().st_size else "empty file"
    raise PipelineError(problem, path, where=f"task {task}", hint=FETCH_AGAIN)


def tab_separated(path: Path) -> Iterator[Row]:
    # Quotation marks are part of the text.
    for number, line in _filled_lines(path):
        yield number, line.split("\t")


def comma_separated(path: Path) -> Iterator[Row]:
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
            problem = "a quotation mark is not closed, or misplaced"
            raise PipelineError(problem, error, where=where, hint=FETCH_AGAIN) from None


def json_lines(
    path: Path, required: Sequence[Column], header: bool, counts: Counter[str], unchecked: Sequence[Column] = ()
) -> Iterator[Record]:
    # Numbers are returned as text with their original spelling: 1.0 -> "1.0".
    # `unchecked`: columns whose values need not be texts or numbers, such as lists of labels.
    for number, line in _filled_lines(path):
        where = f"{path}:{number}"
        try:
            record = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
        except RecursionError:
            raise PipelineError("JSON is nested too deeply", where=where, hint=FETCH_AGAIN) from None
        except ValueError as error:
            raise PipelineError("a line is not JSON", error, where=where, hint=FETCH_AGAIN) from None
        if not isinstance(record, dict):
            raise PipelineError("a line is not a JSON object", line[:80], where=where, hint=FETCH_AGAIN)
        fields: dict[Column, str] = {column: record[column] for column in required if column in record}
        for column, value in fields.items():
            if column not in unchecked:
                reject_surrogates(_spelling(column, value, where), where)
        yield number, fields


def parquet_rows(
    path: Path, required: Sequence[Column], header: bool, counts: Counter[str], unchecked: Sequence[Column] = ()
) -> Iterator[Record]:
    # Numbers are returned as Python spells them: the integer 1 -> "1", the float 1 -> "1.0". Rows are counted from 1.
    # `unchecked`: as in `json_lines`. Numbers in lists become texts too.
    if not path.exists():
        raise _no_file(path)
    rows = read_parquet(path, required, missing=partial(_no_column, path))
    for number, record in enumerate(rows, start=1):
        fields = {}
        for column in required:
            value = record[str(column)]
            if column not in unchecked:
                value = _spelling(column, value, f"{path}:{number}")
            elif isinstance(value, list):
                value = list(map(str, value))
            fields[column] = value
        yield number, fields


def _spelling(column: Column, value: object, where: str) -> str:
    # bool is a subclass of int.
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        field = f"{column} = {json.dumps(value, default=str)[:200]}"
        hint = "name another column in the task's entry, or convert it to text"
        raise PipelineError("a value is not a text or a number", field, where=where, hint=hint)
    return str(value)


def _no_column(where: object, column: Column, names: Sequence[str]) -> PipelineError:
    hint = f"name a column that the file has, or {FETCH_AGAIN}"
    return PipelineError("a column is missing", column, where=f"{where}, columns found: {', '.join(names)}", hint=hint)


def reject_surrogates(text: str, where: str) -> None:
    # "\\ud800" is valid in JSON, but cannot be encoded as UTF-8.
    try:
        text.encode()
    except UnicodeEncodeError as error:
        value = f"{ascii(text[error.start])} in {ascii(text[:40])}"
        raise PipelineError("invalid Unicode (unpaired surrogate)", value, where=where, hint=FETCH_AGAIN) from None


def _table(
    rows: Callable[[Path], Iterator[Row]],
    path: Path,
    required: Sequence[Column],
    header: bool,
    counts: Counter[str],
    unchecked: Sequence[Column] = (),
) -> Iterator[Record]:
    table = rows(path)
    if header:
        _, names = next(table, (0, []))
        for column in required if names else ():
            if column not in names:
                raise _no_column(f"{path}:1", column, names)
        indices = {column: names.index(str(column)) for column in required if names}
    else:
        indices = {column: int(column) - 1 for column in required}
    for number, fields in table:
        if header and len(fields) > len(names):
            counts[LONG] += 1
        yield number, {column: fields[index] for column, index in indices.items() if index < len(fields)}


READERS: dict[str, Callable[..., Iterator[Record]]] = {
    ".tsv": partial(_table, tab_separated),
    ".csv": partial(_table, comma_separated),
    ".jsonl": json_lines,
    ".parquet": parquet_rows,
}
# Formats whose every row has the names of its columns.
NAMED_FORMATS = (".jsonl", ".parquet")


def first_row(path: Path, columns: Sequence[Column], header: bool) -> dict[Column, str]:
    # Returns column -> field of the first row. Columns that the row lacks are left out. The result is empty if the
    # header lacks one of the columns, or the row cannot be read.
    try:
        _, fields = next(READERS[path.suffix](path, columns, header, Counter()), (0, {}))
    except PipelineError:
        return {}
    return fields


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    # Yields (line number counted from 1, line). A byte order mark is skipped. Some texts contain carriage returns, so a
    # carriage return without a line feed does not end a line.
    with _readable(path), open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")


def _filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in read_lines(path) if line)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise _no_file(path) from None
    except UnicodeDecodeError:
        # This error only has a position in the decoder's buffer, so the line is searched for in the file.
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    value = line[max(0, error.start - 10) : error.end + 10]
                    hint = "save it as UTF-8, or fetch it again"
                    raise PipelineError("not UTF-8", value, where=f"{path}:{number}", hint=hint) from None
        raise


def _no_file(path: Path) -> PipelineError:
    return PipelineError("task file not found", path, hint="run the stage download_tasks, or `dvc pull`")
