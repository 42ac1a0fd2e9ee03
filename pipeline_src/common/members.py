"""Folders of interchangeable members, one file each, loaded by name: which members there are."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def member_names(folder: str) -> list[str]:
    """Names of the members in a folder of the package, such as ``objectives``, sorted; none is imported."""
    return sorted(path.stem for path in (PACKAGE / folder).glob("*.py") if not path.stem.startswith("_"))
