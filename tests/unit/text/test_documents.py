"""Documents: written, and read in slices."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, write_json
from pipeline_src.text.documents import (
    Document,
    read_documents,
    read_manifest,
    read_slice,
    slice_shards,
    without_controls,
    write_manifest,
    write_shard,
)


@pytest.fixture
def corpus(tmp_path):
    documents = [Document(f"d:{n}", "é" * (n % 5), f"text {n}\nzwei \u2028 \x85 北京 😀", n or None) for n in range(12)]
    shards = [write_shard(tmp_path / f"{n}.jsonl", documents[n : n + 4]) for n in (0, 4, 8)]
    shards.append(write_shard(tmp_path / "empty.jsonl", []))
    write_manifest(tmp_path, shards, {})
    return tmp_path, documents


@given(st.text() | st.text(alphabet=st.characters(max_codepoint=0xFF)))
def test_without_controls_keeps_all_other_characters(text):
    kept = [c for c in text if c.isspace() or not c.isascii() or unicodedata.category(c) != "Cc"]
    assert without_controls(text) == "".join(kept)


@pytest.mark.parametrize("size", [1, 7, 50, 97, 98, 99, 100, 101, 130, 10_000])
def test_read_slice_any_size_returns_every_document_once(corpus, size):
    folder, documents = corpus
    assert [document for part in slice_shards(folder, size) for document in read_slice(part)] == documents
    assert sum(part.bytes for part in slice_shards(folder, size)) == read_manifest(folder)["bytes"]
    assert list(read_documents(folder)) == documents


def test_write_shard_returns_size_and_hash_of_the_file(corpus):
    for shard in read_manifest(corpus[0])["shards"]:
        path = corpus[0] / shard["name"]
        assert (shard["bytes"], shard["sha256"]) == (path.stat().st_size, hash_file(path))
        assert shard["documents"] == len(path.read_bytes().splitlines())


def test_write_shard_written_twice_at_the_same_time_is_whole(tmp_path):
    """A runner may start the work of a worker again while that worker still writes."""
    documents = [Document(f"d:{n}", "", "text") for n in range(3)]

    def slow_documents():
        yield documents[0]
        write_shard(tmp_path / "x.jsonl", documents)
        yield from documents[1:]

    shard = write_shard(tmp_path / "x.jsonl", slow_documents())
    assert (shard["name"], shard["sha256"]) == ("x.jsonl", hash_file(tmp_path / "x.jsonl"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_slice_shards_missing_or_truncated_shard_is_rejected(corpus):
    shard = corpus[0] / "4.jsonl"
    shard.write_bytes(b"".join(shard.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(PipelineError, match="shard is damaged"):
        slice_shards(corpus[0])
    shard.unlink()
    with pytest.raises(PipelineError, match="shard not found"):
        slice_shards(corpus[0])


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"id": "d:1"}', b'"\xff"'])
def test_read_documents_damaged_line_is_rejected_with_byte(tmp_path, line):
    shard = write_shard(tmp_path / "x.jsonl", [Document("d:0", "", "text")])
    with open(tmp_path / "x.jsonl", "ab") as file:
        file.write(line + b"\n")
    write_json(tmp_path / "manifest.json", {"shards": [shard | {"bytes": shard["bytes"] + len(line) + 1}]})
    with pytest.raises(PipelineError, match=f"byte {shard['bytes']}"):
        list(read_documents(tmp_path))
