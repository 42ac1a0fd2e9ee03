"""Folders of interchangeable members, one file each, loaded by name."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from pipeline_src.common.errors import PipelineError


def member_names(folder: str) -> list[str]:
    """Names of the members in a folder of the package, such as ``objectives``, sorted; none of them is imported."""
    package = importlib.import_module(f"pipeline_src.{folder}")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def load_member(folder: str, name: str) -> Any:
    """What ``<folder>/<name>.py`` defines under the folder's own name: ``OBJECTIVE`` in ``objectives``.

    Raises:
        PipelineError: there is no such file.
    """
    kind, names = folder.removesuffix("s"), member_names(folder)
    if name not in names:
        raise PipelineError(
            f"no such {kind}", name, where=f"pipeline_src/{folder}", remedy=f"give one of {', '.join(names)}"
        )
    return getattr(importlib.import_module(f"pipeline_src.{folder}.{name}"), kind.upper())
