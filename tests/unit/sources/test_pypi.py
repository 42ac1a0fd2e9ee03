"""Files inside wheels, from a folder of wheels made here: no index is asked."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.sources import pypi
from pipeline_src.sources.catalogue import Wheel

URL = "pypi:tinyshelf==1.0/tinyshelf/book.txt"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel for another platform than this one could be, in the only place where pip looks."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    path = folder / "tinyshelf-1.0-cp39-cp39-win_arm64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tinyshelf/book.txt", "Once upon a time.\n")
        wheel.writestr("tinyshelf-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinyshelf\nVersion: 1.0\n")
        wheel.writestr("tinyshelf-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp39-cp39-win_arm64\n")
        wheel.writestr("tinyshelf-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return path


def wheel(path: Path, **changes: object) -> Wheel:
    checksum = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    tags = {"platforms": ["win_arm64"], "python_version": "3.9", "implementation": "cp", "abi": "cp39"}
    return Wheel.model_validate({"checksum": checksum, **tags, **changes})


def test_extract_wheel_of_other_platform_is_fetched_once(shelf: Path, tmp_path: Path) -> None:
    downloads = tmp_path / "downloads"
    pypi.extract(URL, wheel(shelf), downloads / "book")
    assert (downloads / "book").read_text() == "Once upon a time.\n"
    shelf_wheel = wheel(shelf)
    shelf.unlink()
    pypi.extract(URL, shelf_wheel, downloads / "again")  # the wheel is kept, so pip is not needed
    assert (downloads / "again").read_text() == "Once upon a time.\n"


def test_extract_wheel_of_other_checksum_is_rejected(shelf: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"(?s)wrong checksum: tinyshelf-1.0.*0{64}") as caught:
        pypi.extract(URL, wheel(shelf, checksum=f"sha256:{'0' * 64}"), tmp_path / "downloads/book")
    assert wheel(shelf).checksum in str(caught.value)
    assert all(path.name.startswith(".") and path.is_file() for path in (tmp_path / "downloads").iterdir())


def test_extract_missing_member_is_rejected(shelf: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no such file in the wheel: tinyshelf/other.txt"):
        pypi.extract("pypi:tinyshelf==1.0/tinyshelf/other.txt", wheel(shelf), tmp_path / "book")
    assert not (tmp_path / "book").exists()


def test_extract_wheel_not_in_index_is_rejected(shelf: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"(?s)pip could not fetch a wheel: tinyshelf==2\.0.*ERROR"):
        pypi.extract("pypi:tinyshelf==2.0/tinyshelf/book.txt", wheel(shelf), tmp_path / "book")
    with pytest.raises(PipelineError, match="pip could not fetch a wheel"):  # tags decide, not this machine
        pypi.extract(URL, wheel(shelf, platforms=["linux_x86_64"]), tmp_path / "book")


def test_extract_full_disk_is_rejected(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho 'ERROR: Exception:\nOSError: [Errno 28] No space left on device' >&2\nexit 2\n")
    pip.chmod(0o755)
    monkeypatch.setattr(pypi, "find_pip", lambda: str(pip))
    with pytest.raises(PipelineError, match="no space left on the disk: tinyshelf==1.0"):
        pypi.extract(URL, wheel(shelf), tmp_path / "downloads/book")
    assert all(path.name.startswith(".") and path.is_file() for path in (tmp_path / "downloads").iterdir())


def test_find_pip_falls_back_to_python_outside_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "bare/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    monkeypatch.setattr(sys, "executable", str(bare))
    pypi.find_pip.cache_clear()
    python = pypi.find_pip()
    pypi.find_pip.cache_clear()
    assert python != str(bare)
    assert subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def test_find_pip_without_any_pip_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    pypi.find_pip.cache_clear()
    with pytest.raises(PipelineError, match="no pip found"):
        pypi.find_pip()
