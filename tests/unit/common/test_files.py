"""Files that exist whole or not at all."""

import os
import pickle
import stat

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, atomic_file, hash_file, read_json, write_json


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_file(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_that_fails_half_way_leaves_the_old_one(tmp_path):
    folder = tmp_path / "made"
    with atomic_directory(folder) as partial:
        (partial / "a").write_text("old")
    with pytest.raises(RuntimeError), atomic_directory(folder) as partial:
        (partial / "b").write_text("half")
        raise RuntimeError
    assert os.listdir(tmp_path) == ["made"] and os.listdir(folder) == ["a"]


def test_a_new_folder_replaces_the_old_one_whole(tmp_path):
    for name in ("a", "b"):
        with atomic_directory(tmp_path / "made") as partial:
            (partial / name).write_text(name)
    assert os.listdir(tmp_path / "made") == ["b"]


def test_equal_values_are_equal_bytes(tmp_path):
    write_json(tmp_path / "1", {"b": 1, "a": "é"})
    write_json(tmp_path / "2", {"a": "é", "b": 1})
    assert hash_file(tmp_path / "1") == hash_file(tmp_path / "2")


def test_nan_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ValueError):
        write_json(tmp_path / "x.json", {"loss": float("nan")})
    assert os.listdir(tmp_path) == []


def test_unreadable_json_says_what_to_do(tmp_path):
    with pytest.raises(PipelineError, match="file not found"):
        read_json(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"a": ')
    with pytest.raises(PipelineError, match="not a JSON file.*\n.*\n.*remedy"):
        read_json(tmp_path / "cut.json")


def test_an_error_crosses_processes_unchanged():
    error = PipelineError("bad page", 7, where="dump.xml:3", remedy="fetch it again")
    assert (
        str(pickle.loads(pickle.dumps(error)))
        == str(error)
        == "bad page: 7\n  where:  dump.xml:3\n  remedy: fetch it again"
    )


def test_files_of_a_folder_follow_the_umask(tmp_path):
    """safetensors writes for the owner alone; colleagues on a shared disk are to read the model."""
    before = os.umask(0o027)
    try:
        with atomic_directory(tmp_path / "made") as partial:
            (partial / "inner").mkdir()
            (partial / "inner/model").touch(0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "made/inner/model").stat().st_mode) == 0o640
