"""Folders of interchangeable members, one file each, loaded by name."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError


def member_names(folder: str) -> list[str]:
    """Names of the members in a folder of the package, such as ``objectives``, sorted; none of them is imported."""
    package = importlib.import_module(f"pipeline_src.{folder}")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def stated(folder: str, name: str, constant: str, otherwise: Any) -> Any:
    """What a member's file assigns to ``constant`` as a literal; ``otherwise`` where it does not. It is not imported.

    Raises:
        PipelineError: there is no such member.
    """
    found = importlib.util.find_spec(f"pipeline_src.{folder}.{name}")
    if found is None or found.origin is None:
        raise _no_member(folder, name)
    for line in ast.parse(Path(found.origin).read_bytes()).body:
        if isinstance(line, ast.Assign) and any(getattr(target, "id", "") == constant for target in line.targets):
            return ast.literal_eval(line.value)
    return otherwise


def load_member(folder: str, name: str) -> Any:
    """What ``<folder>/<name>.py`` defines under the folder's own name: ``OBJECTIVE`` in ``objectives``.

    Raises:
        PipelineError: there is no such file.
    """
    if name not in member_names(folder):
        raise _no_member(folder, name)
    return getattr(importlib.import_module(f"pipeline_src.{folder}.{name}"), folder.removesuffix("s").upper())


def _no_member(folder: str, name: str) -> PipelineError:
    known = ", ".join(member_names(folder))
    return PipelineError(
        f"no such {folder.removesuffix('s')}", name, where=f"pipeline_src/{folder}", remedy=f"give one of {known}"
    )
