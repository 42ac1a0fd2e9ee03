"""A few dropped documents of each reason: the same few in any order, and any text survives the file."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.common.errors import PipelineError
from pipeline_src.corpus.documents import Document
from pipeline_src.corpus.dropped import CHARACTERS, FILE, KEPT, DroppedSample, read_dropped


def sample_of(numbers: list[int]) -> DroppedSample:
    """Of documents by number, of two reasons."""
    sample = DroppedSample()
    for number in numbers:
        sample.add("even" if number % 2 == 0 else "odd", Document(f"a:{number}", "A", f"text {number}"), number, 0.5)
    return sample


@given(st.lists(st.integers(0, 500), unique=True), st.integers(), st.integers(1, 5))
def test_dropped_sample_same_rows_for_any_order_and_merge(numbers: list[int], seed: int, parts: int) -> None:
    shuffled = random.Random(seed).sample(numbers, len(numbers))
    merged = DroppedSample()
    for part in range(parts):
        merged.merge(sample_of(shuffled[part::parts]).rows())
    rows = sample_of(numbers).rows()
    assert rows == merged.rows()
    assert [row["reason"] for row in rows] == sorted(row["reason"] for row in rows)
    for reason, remainder in (("even", 0), ("odd", 1)):
        there = [number for number in numbers if number % 2 == remainder]
        kept = [row["value"] for row in rows if row["reason"] == reason]
        assert len(kept) == min(len(there), KEPT)
        assert set(kept) <= set(there)


@given(st.text(st.characters(), max_size=50), st.text(st.characters(), max_size=50))
def test_dropped_sample_any_text_survives_write_and_read(title: str, text: str) -> None:
    sample = DroppedSample()
    sample.add("x", Document("a:1", title, text))
    with TemporaryDirectory() as folder:
        sample.write(Path(folder))
        assert read_dropped(Path(folder)) == [{"reason": "x", "id": "a:1", "title": title, "text": text}]


def test_dropped_sample_long_text_is_truncated(tmp_path: Path) -> None:
    sample = DroppedSample()
    sample.add("x", Document("a:1", "A", "ab" * CHARACTERS), 0.25, 0.2)
    sample.write(tmp_path)
    (row,) = read_dropped(tmp_path)
    assert row == {"reason": "x", "id": "a:1", "title": "A", "value": 0.25, "limit": 0.2, "text": "ab" * 1_000}


def test_read_dropped_missing_or_damaged_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no record of dropped documents[\s\S]*dropped\.jsonl"):
        read_dropped(tmp_path)
    for line in ('{"reason": "x"}', "[", "[" * 100_000):
        (tmp_path / FILE).write_text(f'{{"reason": "x", "id": "a", "title": "", "text": ""}}\n{line}\n')
        with pytest.raises(PipelineError, match=r"not a dropped document[\s\S]*dropped\.jsonl:2"):
            read_dropped(tmp_path)
