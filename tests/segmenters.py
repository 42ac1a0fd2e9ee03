"""Segmenters for tests: packages of one module, installed into a folder."""

from __future__ import annotations

import inspect
from pathlib import Path


def in_twos(text: str) -> list[str]:
    """Words of two letters each."""
    letters = "".join(text.split())
    return [letters[start : start + 2] for start in range(0, len(letters), 2)]


def install(folder: Path, package: str = "in_twos", code: str = inspect.getsource(in_twos)) -> str:
    """Install version 1.0 of a package of one module, as pip does; return the folder, which belongs on sys.path."""
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / f"{package}.py").write_text(code)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "RECORD").write_text(f"{package}.py,,\n{about.name}/METADATA,,\n{about.name}/RECORD,,\n")
    return str(folder)
