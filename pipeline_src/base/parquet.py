"""Rows of a Parquet file, of which one batch at a time is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_src.base.errors import PipelineError

if TYPE_CHECKING:
    from pyarrow import parquet

# Approximate size of a batch, and its maximum number of rows.
BATCH_BYTES = 4 << 20
BATCH_ROWS = 1 << 16


def read_parquet(
    path: Path,
    required: Sequence[Any],
    optional: Sequence[str] = (),
    *,
    missing: Callable[[Any, Sequence[str]], PipelineError],
) -> Iterator[dict[str, Any]]:
    """Yield column -> value for each row, with the required columns and those optional ones that the file has.

    Args:
        missing: makes the error for a required column that the file lacks, from this column and those of the file.
    """
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            names = file.schema_arrow.names
            for column in required:
                if column not in names:
                    raise missing(column, names)
                if names.count(column) > 1:
                    hint = "rename or remove one of them"
                    raise PipelineError("two columns have the same name", column, where=path, hint=hint)
            columns = [*required, *(name for name in optional if name in names)]
            for batch in file.iter_batches(_rows_per_batch(file.metadata), columns=columns, use_threads=False):
                for record in batch.to_pylist():
                    yield record
                    number += 1
    # ValueError includes UnicodeDecodeError.
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        where = f"{path}, after row {number:,}"
        raise PipelineError("the file is damaged or not Parquet", error, where=where, hint="fetch it again") from None


def _rows_per_batch(metadata: parquet.FileMetaData) -> int:
    size = 0
    for number in range(metadata.num_row_groups):
        size += metadata.row_group(number).total_byte_size
    rows = BATCH_BYTES * max(1, metadata.num_rows) // max(1, size)
    return max(1, min(BATCH_ROWS, rows))
