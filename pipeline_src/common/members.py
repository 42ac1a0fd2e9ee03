"""Folders of interchangeable members: one file each, loaded by the name that stands in params.yaml."""

from __future__ import annotations

import importlib
import pkgutil


def members(folder: str) -> tuple[str, ...]:
    """Names of the members of ``pipeline_src/<folder>``, sorted; none of them is imported."""
    package = importlib.import_module(f"pipeline_src.{folder}")
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__)))
