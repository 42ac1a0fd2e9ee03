"""Tests of the documentation read recorded figures through ``versions``, so that `make study` cannot break them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.versions import versions


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one file, which git does not find inside another repository."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "summary.json").write_text("recorded")
    return tmp_path


def test_versions_changed_file_gives_committed_text_first(project: Path) -> None:
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=project, check=True)
    (project / "summary.json").write_text("of this machine")
    assert versions("summary.json", project) == ["recorded", "of this machine"]
    (project / "summary.json").unlink()
    assert versions("summary.json", project) == ["recorded"]


def test_versions_without_git_gives_the_file_in_the_folder(project: Path) -> None:
    assert versions("summary.json", project) == ["recorded"]
