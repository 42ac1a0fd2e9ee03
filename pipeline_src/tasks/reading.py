"""Tables in the layouts their makers publish: tab-separated without quoting (GLUE), comma-separated (SWAG)."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipeline_src.errors import PipelineError
from pipeline_src.progress import log
from pipeline_src.tasks.spec import Column, Columns, TaskSpec

FETCH_AGAIN = "mend the file, or fetch it again"
Row = tuple[int, list[str]]  # line number, counted from 1, and fields


def tab_separated(path: Path) -> Iterator[Row]:
    """Rows of a file split at tabs and line ends alone: quotes are part of the text. A byte order mark is skipped.

    Raises:
        PipelineError: no such file, or not UTF-8.
    """
    # newline="\\n": some texts hold a lone carriage return, which must not end a row
    with _readable(path), open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.strip("\r\n"):
                yield number, line.rstrip("\r\n").split("\t")


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
            raise PipelineError("a quote is not closed", error, where=where, remedy=FETCH_AGAIN) from None


def read_columns(
    spec: TaskSpec, path: Path, columns: Columns, rows: Callable[[Path], Iterator[Row]]
) -> Iterator[tuple[int, dict[Column, str]]]:
    """Yield the line number and the wanted fields, by column, of each row of a table.

    Rows with too few fields are refused, or dropped and counted in the log where the task's declaration says so.

    Raises:
        PipelineError: the file is empty, a column is missing, or a row is too short; file and line are named.
    """
    path = Path(path)
    wanted = [*columns.texts, *columns.choices, columns.label]
    table = rows(path)
    first = next(table, None)
    if first is None:
        raise PipelineError("empty file", path, where=f"task {spec.name}", remedy=FETCH_AGAIN)
    if spec.header:
        places = _places(first[1], wanted, path)
    else:
        places = {column: int(column) - 1 for column in wanted}
        table = itertools.chain([first], table)
    count = dropped = 0
    for number, fields in table:
        if len(fields) > max(places.values()):
            count += 1
            yield number, {column: fields[place] for column, place in places.items()}
        elif spec.short_rows == "drop":
            dropped += 1
        else:
            missing = f"{len(fields)} fields, at least {max(places.values()) + 1} are needed"
            raise PipelineError("a row is too short", missing, where=f"{path}:{number}", remedy=FETCH_AGAIN)
    if dropped:
        log.warning("%s: %d rows dropped (too few fields), %d kept", path, dropped, count)
    if not count:
        raise PipelineError("no rows below the header", path, where=f"task {spec.name}", remedy=FETCH_AGAIN)


def _places(header: list[str], wanted: Sequence[Column], path: Path) -> dict[Column, int]:
    for column in wanted:
        if column not in header:
            where = f"{path}:1, which has {', '.join(header)}"
            raise PipelineError("a column is missing", column, where=where, remedy=FETCH_AGAIN)
    return {column: header.index(str(column)) for column in wanted}


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
            raise PipelineError("not UTF-8", error.reason, where=self.path, remedy=FETCH_AGAIN) from None
