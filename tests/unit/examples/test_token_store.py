"""Token stores and sample indices: damaged files are rejected when they are opened."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.examples.token_store import SAMPLE_INDEX, TokenStore, read_sample_index


@pytest.mark.parametrize("kind", ["sentences", "documents"])
@pytest.mark.parametrize(("index", "value"), [(0, 1), (1, 10**6), (2, 0), (-1, 10**6)])
def test_token_store_damaged_offsets_are_rejected(tmp_path, store, kind, index, value):
    path = tmp_path / f"train.{kind}"
    offsets = np.fromfile(path, "<i8")
    offsets[index] = value
    offsets.tofile(path)
    with pytest.raises(PipelineError, match="token shard is damaged: offsets that do not rise"):
        TokenStore(tmp_path, "train")


@pytest.mark.parametrize(
    "change",
    [{"tokens": -1}, {"tokens": "x"}, {"id_type": "float64"}, {"id_type": "x"}, {"documents": None}],
    ids=str,
)
def test_token_store_damaged_manifest_is_rejected(tmp_path, store, change):
    manifest = read_json(tmp_path / "manifest.json")
    manifest["splits"]["train"] |= change
    write_json(tmp_path / "manifest.json", manifest)
    with pytest.raises(PipelineError, match="unexpected content in a JSON file|invalid id_type"):
        TokenStore(tmp_path, "train")
    for wrong in ([], {"splits": []}, {"splits": {}}):
        write_json(tmp_path / "manifest.json", wrong)
        with pytest.raises(PipelineError, match="unexpected content in a JSON file"):
            TokenStore(tmp_path, "train")


def test_token_store_equals_written_documents(store, documents):
    assert len(store) == len(documents)
    for number, document in enumerate(documents):
        offsets = store.sentences[store.documents[number] : store.documents[number + 1] + 1]
        assert [store.ids[a:b].tolist() for a, b in pairwise(offsets)] == document


def test_token_store_is_pickled_as_its_path(store):
    """Another process maps the files itself."""
    pickled = pickle.dumps(store.of_documents(2, 5))
    assert len(pickled) < 1000
    copy = pickle.loads(pickled)
    assert np.array_equal(copy.ids, store.ids)
    assert np.array_equal(copy.documents, store.documents[2:6])


def test_token_store_shorter_file_is_rejected(tmp_path, store):
    ids = tmp_path / "train.ids"
    ids.write_bytes(ids.read_bytes()[:-4])
    with pytest.raises(PipelineError, match="token shard is damaged"):
        TokenStore(tmp_path, "train")


def test_token_store_files_are_little_endian(tmp_path, make_store):
    make_store(tmp_path, [[[258, 1], [3]]])
    assert (tmp_path / "train.ids").read_bytes() == b"\x02\x01\x01\x00\x03\x00"
    assert (tmp_path / "train.sentences").read_bytes() == bytes([0] * 8 + [2] + [0] * 7 + [3] + [0] * 7)


def test_counts_id_beyond_vocabulary_is_rejected(tmp_path, store):
    assert store.counts(140).tolist() == np.bincount(store.ids, minlength=140).tolist()
    with pytest.raises(PipelineError, match="token id outside the vocabulary: 139, with vocab_size 120"):
        store.counts(120)


EXAMPLES = np.array([(2, 9, 3, 1, 0)] * 4, SAMPLE_INDEX)


def test_read_sample_index_damaged_file_is_rejected(tmp_path):
    path = tmp_path / "index.npy"
    np.save(path, EXAMPLES)
    assert len(read_sample_index(path, 10)) == 4
    content = path.read_bytes()
    for spoilt in (b"", content[:30], content[:-1], b"x" * 200):
        path.write_bytes(spoilt)
        with pytest.raises(PipelineError, match="the sample index is damaged"):
            read_sample_index(path, 10)
    for table in (np.zeros(4), np.zeros((2, 2), SAMPLE_INDEX), np.array({"a": 1})):
        np.save(path, table, allow_pickle=True)
        with pytest.raises(PipelineError, match="the sample index is damaged"):
            read_sample_index(path, 10)


@pytest.mark.parametrize(("column", "value"), [("a", -1), ("a", 8), ("b", 10), ("b", 2**62), ("b_length", 9)])
def test_read_sample_index_example_beyond_the_tokens_is_rejected(tmp_path, column, value):
    wrong = EXAMPLES.copy()
    wrong[column][2] = value
    np.save(tmp_path / "index.npy", wrong)
    with pytest.raises(PipelineError, match="example 2 exceeds the token store"):
        read_sample_index(tmp_path / "index.npy", 10)
