"""Reading documents whole and in slices."""

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import write_json
from pipeline_src.corpus.documents import (
    Document,
    keep_words,
    read_documents,
    read_manifest,
    read_slice,
    slice_shards,
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
def test_slices_of_any_size_hold_every_document_once_in_order(corpus, size):
    folder, documents = corpus
    assert [document for part in slice_shards(folder, size) for document in read_slice(part)] == documents
    assert list(read_documents(folder)) == documents


def test_slices_cover_the_bytes(corpus):
    folder, _ = corpus
    assert sum(part.bytes for part in slice_shards(folder, 64)) == read_manifest(folder)["bytes"]


def test_a_missing_shard_is_one_clear_error(corpus):
    folder, _ = corpus
    (folder / "4.jsonl").unlink()
    with pytest.raises(PipelineError, match="shard not found"):
        slice_shards(folder)


def test_a_cut_shard_is_one_clear_error(corpus):
    folder, _ = corpus
    whole = (folder / "4.jsonl").read_bytes()
    (folder / "4.jsonl").write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(PipelineError, match="shard is damaged"):
        slice_shards(folder)


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"id": "d:1"}', b'"\xff"'])
def test_a_line_that_is_no_document_is_one_clear_error(tmp_path, line):
    row = write_shard(tmp_path / "x.jsonl", [Document("d:0", "", "text")])
    with open(tmp_path / "x.jsonl", "ab") as file:
        file.write(line + b"\n")
    write_json(tmp_path / "manifest.json", {"shards": [row | {"bytes": row["bytes"] + len(line) + 1}]})
    with pytest.raises(PipelineError, match=f"byte {row['bytes']}"):
        list(read_documents(tmp_path))


@pytest.mark.parametrize("most", [None, 10_000, 20, 3, 1])
def test_a_source_keeps_no_more_words_than_asked(corpus, most):
    folder, documents = corpus
    shards = read_manifest(folder)["shards"]
    total = sum(document.words for document in documents)
    rows, left_out = keep_words(folder, shards, most)
    write_manifest(folder, rows, {})
    kept = list(read_documents(folder))
    assert kept == [document for document in documents if document in kept] and left_out == 12 - len(kept)
    words = sum(document.words for document in kept)
    assert (rows is shards) == (most is None or most >= total)
    if rows is not shards:
        assert words <= most and most - words < min(document.words for document in documents if document not in kept)
    write_manifest(folder, [write_shard(folder / "all.jsonl", documents)], {})
    again, _ = keep_words(folder, read_manifest(folder)["shards"], most)
    write_manifest(folder, again, {})
    assert list(read_documents(folder)) == kept  # however the source is cut into shards
