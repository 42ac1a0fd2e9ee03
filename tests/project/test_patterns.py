"""Regular expressions mean the same in every supported Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "pipeline_src"
# ")*+" and the like, as a group's repetition.
POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]*\})\+")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_group_is_repeated_possessively(path: Path) -> None:
    """Before Python 3.11.5, a repetition that fails at a lookahead is kept: use (?>(?:...)*) instead.

    ``re.match(r"(?:'(?!a))*+", "'a")`` then matches "'a" (https://github.com/python/cpython/issues/106052). A single
    character or a set may be repeated so.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert POSSESSIVE_GROUP.findall(node.value) == [], node.value
