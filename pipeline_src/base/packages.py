from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions

PROJECT = __name__.partition(".")[0]


def distributions_of(module: str) -> frozenset[str]:
    """Return the names of the installed distributions that provide a module.

    The set is empty for modules of the standard library and of this project, and if nothing is installed.
    """
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names or package == PROJECT:
        return frozenset()
    return frozenset(_installed(tuple(sys.path)).get(package, ()))


@cache
def _installed(search_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    # Cached, since reading the folders of sys.path takes 0.2 s. The argument is the cache's key.
    return packages_distributions()
