"""Dropped documents: removed from shards, and sampled."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.text.documents import Document, read_slice, slice_shards, write_manifest, write_shard
from pipeline_src.text.dropped import MAX_CHARACTERS, SAMPLE_SIZE, DroppedSample, drop_documents
from tests.studies import read_dropped


def sample_of(numbers: list[int]) -> DroppedSample:
    sample = DroppedSample()
    for number in numbers:
        sample.add("even" if number % 2 == 0 else "odd", Document(f"a:{number}", "A", f"text {number}"), number, 0.5)
    return sample


@given(st.lists(st.integers(0, 500), unique=True), st.integers(), st.integers(1, 5))
def test_dropped_sample_any_order_gives_same_records(numbers: list[int], seed: int, parts: int) -> None:
    shuffled = random.Random(seed).sample(numbers, len(numbers))
    merged = DroppedSample()
    for part in range(parts):
        merged.merge(sample_of(shuffled[part::parts]).records())
    records = sample_of(numbers).records()
    assert records == merged.records()
    assert [record["reason"] for record in records] == sorted(record["reason"] for record in records)
    for reason, remainder in (("even", 0), ("odd", 1)):
        candidates = {number for number in numbers if number % 2 == remainder}
        sampled = [record["value"] for record in records if record["reason"] == reason]
        assert len(sampled) == min(len(candidates), SAMPLE_SIZE)
        assert set(sampled) <= candidates


@given(st.text(st.characters(), max_size=50), st.text(st.characters(), max_size=50))
def test_dropped_sample_any_text_survives_write_and_read(title: str, text: str) -> None:
    sample = DroppedSample()
    sample.add("x", Document("a:1", title, text))
    with TemporaryDirectory() as folder:
        sample.write(Path(folder))
        assert read_dropped(Path(folder)) == [{"reason": "x", "id": "a:1", "title": title, "text": text}]


def test_dropped_sample_long_text_is_truncated(tmp_path: Path) -> None:
    sample = DroppedSample()
    sample.add("x", Document("a:1", "A", "ab" * MAX_CHARACTERS), 0.25, 0.2)
    sample.write(tmp_path)
    (record,) = read_dropped(tmp_path)
    assert record == {"reason": "x", "id": "a:1", "title": "A", "value": 0.25, "limit": 0.2, "text": "ab" * 1_000}


# The last three are repeated.
NUMBERS = (*range(12), 3, 5, 3)
SHARDS = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9, 10, 11, 12), (13, 14), ())


def write_shards(folder: Path, positions: tuple[tuple[int, ...], ...]) -> list[dict]:
    documents = [Document(f"d:{number}", "", f"text {number} " + "word " * number) for number in NUMBERS]
    return [
        write_shard(folder / f"{name}.jsonl", [documents[position] for position in part])
        for name, part in enumerate(positions)
    ]


def read_ids(folder: Path, shards: list[dict]) -> list[str]:
    write_manifest(folder, shards, {})
    return [document.id for part in slice_shards(folder) for document in read_slice(part)]


REPEATED = {"1.jsonl": {7}, "2.jsonl": {0, 1}}


@pytest.mark.parametrize("max_words", [None, 10_000, 90, 40, 3, 1])
def test_drop_documents_any_shards_keep_same_documents(tmp_path: Path, max_words: int | None) -> None:
    sample = DroppedSample()
    shards = write_shards(tmp_path, SHARDS)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    result, dropped = drop_documents(tmp_path, shards, max_words, sample, REPEATED)
    unchanged = {path.name for path in tmp_path.iterdir() if before[path.name] == path.stat().st_mtime_ns}
    ids = read_ids(tmp_path, result)
    words = {f"d:{number}": number + 2 for number in range(12)}
    assert ids == [name for name in words if name in ids]
    assert dropped == Counter(repeated=3, beyond_max_words=12 - len(ids))
    assert sorted(record["id"] for record in sample.records()) == ["d:3", "d:5"]
    total = sum(words[name] for name in ids)
    assert total == sum(shard["words"] for shard in result)
    if max_words in (None, 10_000):
        assert unchanged == {"0.jsonl", "3.jsonl"}
    else:
        assert not unchanged
    # A document is dropped only if it does not fit.
    smallest_dropped = min((words[name] for name in words.keys() - set(ids)), default=0)
    assert max_words is None or len(ids) == 12 or max_words - smallest_dropped < total <= max_words
    reversed_shard = write_shards(tmp_path, (tuple(range(11, -1, -1)),))
    assert read_ids(tmp_path, drop_documents(tmp_path, reversed_shard, max_words, sample)[0]) == ids[::-1]
