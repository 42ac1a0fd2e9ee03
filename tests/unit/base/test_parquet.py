from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.parquet import read_parquet


def no_column(column: str, names: list[str]) -> PipelineError:
    return PipelineError("no such column", column, where=", ".join(names), hint="name another")


def read(path: Path, *required: str, optional: tuple[str, ...] = ()) -> list[dict]:
    return list(read_parquet(path, required, optional, missing=no_column))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_read_parquet_gives_rows_as_written(tmp_path_factory: pytest.TempPathFactory, rows: list) -> None:
    records = [{"text": text, "label": label} for text, label in rows]
    path = tmp_path_factory.mktemp("rows") / "a.parquet"
    schema = pyarrow.schema([("text", pyarrow.string()), ("label", pyarrow.int64())])
    parquet.write_table(pyarrow.Table.from_pylist(records, schema), path, row_group_size=3)
    assert read(path, "text", "label") == records


def test_read_parquet_optional_columns_are_read_if_present(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a"], "id": [1], "image": [b"\xff"]}), path)
    assert read(path, "text", optional=("id", "title")) == [{"text": "a", "id": 1}]


def test_read_parquet_missing_or_repeated_column_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"]), pyarrow.array([1])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["text", "text", "label"]), path)
    with pytest.raises(PipelineError, match=r"no such column: title\n  where:  text, text, label"):
        read(path, "label", "title")
    with pytest.raises(PipelineError, match=r"two columns have the same name: text\n  where:  .*a\.parquet"):
        read(path, "label", "text")


@pytest.mark.parametrize("content", [b"", b"PAR1 no parquet", b'{"text": "a"}\n'])
def test_read_parquet_other_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=r"damaged or not Parquet: [\s\S]*a\.parquet, after row 0"):
        read(path, "text")
