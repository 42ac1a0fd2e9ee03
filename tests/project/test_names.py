"""Identifiers are the field's words: those that a reader of transformers or PyTorch would have to translate are out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("pipeline_src", "workflow")
WORDS = frozenset(
    "found place places each kept said told odd theirs usual USUAL MOST LEAST LONGEST SHORTEST AT_ONCE AHEAD SHOWN "
    "KEPT EARNED_BACK ANNOUNCED SPEAKS SURE BARE FORM MaskedLM LeftToRight Unmasked Corruption corruption_of goes_on "
    "going_on restart restarts draws row_starts row_pairs squares Diagnoser atlas misfit know_sources keep_words "
    "cut_out up_to break_down uncertainty_of own_tasks own_rows two_towers".split()
)


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield name and line of every definition: functions, classes, arguments, assigned names and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


@pytest.mark.parametrize("folder", FOLDERS)
def test_identifiers_have_no_private_words(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for name, line in identifiers(ast.parse(path.read_text(encoding="utf-8"))):
            assert name.lstrip("_") not in WORDS, f"{path.relative_to(ROOT)}:{line}: {name}"
