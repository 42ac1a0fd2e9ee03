"""Folders of interchangeable members, one file each, loaded by name: which members there are."""

from __future__ import annotations

import importlib
import pkgutil


def member_names(folder: str) -> list[str]:
    """Names of the members in a folder of the package, such as ``objectives``, sorted; none of them is imported."""
    package = importlib.import_module(f"pipeline_src.{folder}")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))
