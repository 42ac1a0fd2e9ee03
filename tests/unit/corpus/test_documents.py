"""Documents: written, read in slices, and limited in words."""

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import write_json
from pipeline_src.corpus.documents import (
    Document,
    read_documents,
    read_manifest,
    read_slice,
    slice_shards,
    subsample_to_words,
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


@pytest.mark.parametrize("size", [1, 7, 50, 97, 98, 99, 100, 101, 130, 10_000])
def test_read_slice_any_size_returns_every_document_once(corpus, size):
    folder, documents = corpus
    assert [document for part in slice_shards(folder, size) for document in read_slice(part)] == documents
    assert sum(part.bytes for part in slice_shards(folder, size)) == read_manifest(folder)["bytes"]
    assert list(read_documents(folder)) == documents


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
    row = write_shard(tmp_path / "x.jsonl", [Document("d:0", "", "text")])
    with open(tmp_path / "x.jsonl", "ab") as file:
        file.write(line + b"\n")
    write_json(tmp_path / "manifest.json", {"shards": [row | {"bytes": row["bytes"] + len(line) + 1}]})
    with pytest.raises(PipelineError, match=f"byte {row['bytes']}"):
        list(read_documents(tmp_path))


@pytest.mark.parametrize("limit", [None, 10_000, 20, 3, 1])
def test_keep_words_same_documents_within_limit_for_any_shards(corpus, limit):
    folder, documents = corpus
    shards = read_manifest(folder)["shards"]
    total = sum(document.words for document in documents)
    rows, num_left_out = subsample_to_words(folder, shards, limit)
    write_manifest(folder, rows, {})
    selected = list(read_documents(folder))
    assert selected == [document for document in documents if document in selected]
    assert num_left_out == 12 - len(selected)
    words = sum(document.words for document in selected)
    assert (rows is shards) == (limit is None or limit >= total)
    if rows is not shards:
        assert limit - min(document.words for document in documents if document not in selected) < words <= limit
    write_manifest(folder, [write_shard(folder / "all.jsonl", documents)], {})
    again, _ = subsample_to_words(folder, read_manifest(folder)["shards"], limit)
    write_manifest(folder, again, {})
    assert list(read_documents(folder)) == selected  # however the source is cut into shards
