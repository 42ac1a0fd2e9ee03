"""The committed dvc.lock is what a fresh study writes: of each committed file, and of the code, it has the hash.

If a test fails here after an edit: `make study`, and commit dvc.lock with what else it changes.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_src.code import modules
from pipeline_src.engine.dependencies import declared_stages
from pipeline_src.engine.dvc_lock import hashes, parse_entry, split_entries
from pipeline_src.engine.fingerprint import fingerprint
from pipeline_src.engine.records import dvc_hash

HINT = "run `make study` and commit dvc.lock"


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture(scope="module")
def entries(root: Path) -> dict[str, dict]:
    return {name: parse_entry(text) for name, text in split_entries((root / "dvc.lock").read_text()).items()}


@pytest.fixture(scope="module")
def recorded(entries: dict[str, dict]) -> list[tuple[str, str, str]]:
    """(stage, path, hash) of all dependencies and outputs."""
    return [
        (name, path, digest)
        for name, entry in entries.items()
        for kind in ("deps", "outs")
        for path, digest in hashes(entry, kind).items()
    ]


def committed_hash(root: Path, path: str) -> str | None:
    """DVC's hash of a file or folder with the files that git has there; None if git has none."""
    listed = subprocess.run(["git", "ls-files", "--", path], cwd=root, capture_output=True, text=True, check=True)
    files = [file for file in listed.stdout.splitlines() if not file.endswith(".gitignore")]
    return dvc_hash(path, {file: md5((root / file).read_bytes()) for file in files}) if files else None


def test_dvc_lock_has_stages_of_committed_study(
    entries: dict[str, dict], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    assert set(entries) == set(declared_stages()), HINT


def test_dvc_lock_has_hashes_of_committed_files(recorded: list[tuple[str, str, str]], root: Path) -> None:
    committed = {path: committed_hash(root, path) for _, path, _ in recorded}
    assert {"pipeline_src", "params.yaml", "catalogue/tasks", "results/summary.json"} <= set(
        filter(committed.get, committed)
    )
    stale = {path: stage for stage, path, digest in recorded if committed[path] not in (None, digest)}
    assert stale == {}, HINT


def test_dvc_lock_has_fingerprints_of_code(recorded: list[tuple[str, str, str]]) -> None:
    fingerprints = {f"code/{name}": md5(f"{fingerprint(module)}\n".encode()) for name, module in modules().items()}
    # The hash of the folder in which the stage `code` writes them.
    fingerprints["code"] = dvc_hash("code", fingerprints)
    stale = {path for _, path, digest in recorded if fingerprints.get(path, digest) != digest}
    assert stale == set(), HINT


def test_dvc_lock_has_one_hash_per_path(recorded: list[tuple[str, str, str]]) -> None:
    """What one stage made is what the next has read."""

    def hashes_of(path: str) -> Iterator[str]:
        return (digest for _, other, digest in recorded if other == path)

    different = {path for _, path, _ in recorded if len(set(hashes_of(path))) > 1}
    assert different == set(), HINT
