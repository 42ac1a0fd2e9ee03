"""Atomic files and folders, and JSON of a known shape."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import (
    atomic_directory,
    atomic_file,
    hash_file,
    own_folder,
    read_json,
    read_json_lines,
    schema_error,
    write_json,
)
from pipeline_src.base.mistakes import explain
from tests.damage import mutated
from tests.studies import write_params
from tests.users import FIRST, SECOND, as_user, needs_root, share


def test_own_folder_is_private_and_reused(tmp_path):
    path = own_folder(tmp_path / "gpus")
    assert stat.S_IMODE(path.stat().st_mode) == 0o700 and own_folder(path) == path


@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.symlink_to(path.parent),
        lambda path: path.write_text(""),
        lambda path: (path.mkdir(), path.chmod(0o777)),
    ],
    ids=["a link", "a file", "a folder that others may write"],
)
def test_own_folder_link_file_or_shared_folder_is_rejected(tmp_path, plant):
    plant(tmp_path / "gpus")
    with pytest.raises(PipelineError, match="belongs to another user, or others can write to it: .*gpus\n.*TMPDIR"):
        own_folder(tmp_path / "gpus")


@needs_root
def test_own_folder_of_another_user_is_rejected(tmp_path):
    (tmp_path / "gpus").mkdir(mode=0o700)
    os.chown(tmp_path / "gpus", FIRST, -1)
    with pytest.raises(PipelineError, match="belongs to another user, or others can write"):
        own_folder(tmp_path / "gpus")


def test_atomic_writes_keep_old_content_after_error(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "a.txt") as file:
        file.write("half")
        raise RuntimeError
    with atomic_directory(tmp_path / "made") as partial:
        (partial / "a").write_text("old")
    with pytest.raises(RuntimeError), atomic_directory(tmp_path / "made") as partial:
        (partial / "b").write_text("half")
        raise RuntimeError
    assert (tmp_path / "a.txt").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "made"] and os.listdir(tmp_path / "made") == ["a"]


@pytest.mark.parametrize("nested", [False, True])
def test_atomic_directory_full_disk_names_path(tmp_path, nested):
    with pytest.raises(OSError) as full, atomic_directory(tmp_path / "made") as partial:
        if nested:
            with atomic_file(partial / "a.json"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(explain(full.value)).startswith(f"no space left on the disk: {tmp_path}/")


def test_atomic_directory_files_are_synced_before_rename(tmp_path, monkeypatch):
    synced, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    monkeypatch.setattr(os, "replace", lambda *paths: (synced.append("replaced"), replace(*paths)))
    with atomic_directory(tmp_path / "made") as partial:
        (partial / "in").mkdir()
        (partial / "in/a").write_text("x")
    assert synced == [(tmp_path / "made/in/a").stat().st_ino, "replaced"]


def test_atomic_directory_killed_while_replacing_leaves_old_or_no_folder(tmp_path, monkeypatch):
    made, replace = tmp_path / "made", os.replace

    def killed(*paths):
        replace(*paths)
        raise KeyboardInterrupt

    for name in ("a", "b", "c", "d"):
        monkeypatch.setattr(os, "replace", killed if name == "b" else replace)
        with contextlib.suppress(KeyboardInterrupt), atomic_directory(made) as partial:
            (partial / name).write_text(name)
        assert not made.exists() if name == "b" else os.listdir(made) == [name]
    assert os.listdir(tmp_path) == ["made"]


def test_write_json_equal_values_have_equal_bytes(tmp_path):
    write_json(tmp_path / "1", {"b": 1, "a": "é"})
    write_json(tmp_path / "2", {"a": "é", "b": 1})
    assert hash_file(tmp_path / "1") == hash_file(tmp_path / "2")


def test_write_json_nan_is_rejected(tmp_path):
    with pytest.raises(ValueError):
        write_json(tmp_path / "x.json", {"loss": float("nan")})
    assert os.listdir(tmp_path) == []


def test_read_json_missing_or_damaged_file_is_rejected(tmp_path):
    with pytest.raises(PipelineError, match="file not found"):
        read_json(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"a": ')
    with pytest.raises(PipelineError, match="invalid JSON file.*\n.*\n.*hint"):
        read_json(tmp_path / "cut.json")


@given(st.lists(st.dictionaries(st.text(), st.text())))
def test_read_json_lines_returns_written_records(rows):
    with TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8", "surrogatepass")
        assert list(read_json_lines(path, {str: str}, "not a row", "make it again")) == rows


@pytest.mark.parametrize("line", [b"", b"[", b"[" * 100_000, b'{"a": 1}', b"\xff"])
def test_read_json_lines_invalid_line_is_rejected(tmp_path, line):
    (tmp_path / "rows.jsonl").write_bytes(b'{"a": "x"}\n' + line + b"\n{}\n")
    rows = read_json_lines(tmp_path / "rows.jsonl", {"a": str}, "not a row", "make it again")
    assert next(rows) == {"a": "x"}
    with pytest.raises(PipelineError, match=r"not a row: [\s\S]*rows\.jsonl:2[\s\S]*make it again"):
        next(rows)


def test_atomic_directory_files_follow_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic_directory(tmp_path / "made") as partial:
            (partial / "inner").mkdir()
            (partial / "inner/model").touch(0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "made/inner/model").stat().st_mode) == 0o640


SHAPE = {"splits": {str: {"tokens": int, "loss": float}}, "shards": [{"name": str}], "more": object}
WRITTEN = {"splits": {"train": {"tokens": 3, "loss": 0.5, "extra": None}}, "shards": [{"name": "a"}], "more": [1]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (WRITTEN, None),
        ([], "the file is [], not an object"),
        ({}, "the file lacks splits"),
        (WRITTEN | {"splits": {"train": {"tokens": -1, "loss": 1}}}, "splits.train.tokens is -1, not a whole number"),
        (WRITTEN | {"splits": {"train": {"tokens": True, "loss": 1}}}, "splits.train.tokens is True"),
        (WRITTEN | {"splits": {"train": {"tokens": 1, "loss": float("nan")}}}, "splits.train.loss is nan"),
        (WRITTEN | {"splits": {"train": {"tokens": 1}}}, "splits.train lacks loss"),
        (WRITTEN | {"shards": {}}, "shards is {}, not a list"),
        (WRITTEN | {"shards": [{"name": "a"}, 5]}, "shards[1] is 5, not an object"),
    ],
)
def test_schema_error_names_first_mismatch(value, message):
    error = schema_error(value, SHAPE)
    assert (error is None) if message is None else error.startswith(message)


@given(mutated(WRITTEN))
def test_read_json_mutated_file_matches_shape_or_is_rejected(value):
    with TemporaryDirectory() as folder:
        path = Path(folder, "manifest.json")
        # As a damaged file may hold it: write_json refuses infinity.
        path.write_text(json.dumps(value))
        try:
            read = read_json(path, SHAPE)
        except PipelineError as error:
            assert path in (error.where, error.value)
        else:
            assert all(row["tokens"] >= 0 for row in read["splits"].values())
            assert all(isinstance(shard["name"], str) for shard in read["shards"])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"mounting a small tmpfs needs more rights: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_clean_on_full_disk_keeps_earlier_text(small_disk, root):
    write_params(small_disk)
    raw = small_disk / "data/raw/books/fetched-files"
    raw.mkdir(parents=True)
    paragraph = "The old house stood by the river, and nobody had lived there for many years. " * 6
    (raw / "one.txt").write_text((paragraph + "\n\n") * 600, encoding="utf-8")

    def books() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pipeline_src", "clean", "--source", "books"],
            cwd=small_disk, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True,
        )  # fmt: skip

    (small_disk / "filler").write_bytes(bytes(600_000))
    earlier = small_disk / "data/text/books/clean-text"
    earlier.mkdir(parents=True)
    (earlier / "manifest.json").write_text("earlier")
    full = books()
    assert full.returncode == 2 and "no space left on the disk" in full.stderr and "Traceback" not in full.stderr
    assert [path.name for path in (small_disk / "data/text").iterdir()] == ["books"]
    assert (earlier / "manifest.json").read_text() == "earlier"

    (small_disk / "filler").unlink()  # the hint the message names
    assert books().returncode == 0
    assert "sha256" in (earlier / "manifest.json").read_text()


@needs_root
def test_atomic_writes_replace_files_of_another_user(project):
    share(project)

    def write() -> None:
        with atomic_file("file") as file:
            file.write("x")
        with atomic_directory("folder") as folder:
            (folder / "inner").write_text("x")

    def leave() -> None:
        """What a killed process leaves."""
        Path(".file.partial").write_text("x")
        Path(".file.partial").chmod(0o600)
        Path(".folder.partial").mkdir()

    as_user(FIRST, write)
    as_user(FIRST, leave)
    as_user(SECOND, write)
    assert [(project / name).stat().st_uid for name in ("file", "folder", "folder/inner")] == [SECOND] * 3


@needs_root
def test_atomic_directory_hard_link_to_file_of_another_user_keeps_permissions(project):
    share(project)

    def download() -> None:
        Path("download").write_text("x")
        Path("download").chmod(0o666)

    def take() -> None:
        with atomic_directory("folder") as folder:
            os.link("download", folder / "file")
            (folder / "own").write_text("x")
            (folder / "own").chmod(0o600)

    as_user(FIRST, download)
    as_user(SECOND, take)
    assert [stat.S_IMODE((project / "folder" / name).stat().st_mode) for name in ("file", "own")] == [0o666, 0o664]


@needs_root
def test_atomic_directory_unremovable_leftover_is_named_in_error(project):
    share(project)

    def leave() -> None:
        Path(".folder.partial").mkdir()
        Path(".folder.partial/file").touch()
        Path(".folder.partial").chmod(0o700)

    def write() -> None:
        with pytest.raises(PermissionError) as caught, atomic_directory("folder"):
            pass
        assert caught.value.filename == ".folder.partial" and "no permission" in str(explain(caught.value))

    as_user(FIRST, leave)
    as_user(SECOND, write)
