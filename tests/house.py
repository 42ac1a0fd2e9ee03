"""How much code the tree holds, and how densely it is written; tests/unit/test_house.py compares.

``python -m tests.house`` prints the table of the checkout; ``python -m tests.house > tests/house.tsv`` records it.

Code is counted in nodes of Python's syntax trees without docstrings, which no formatter and no comment changes. A
function of eight lines or more is dense if it has more than 14 nodes a line; in nanochat 3 of 102 are, in litgpt none
of 289.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("house.tsv")
COUNTED = ("pipeline_src", "tests", "benchmarks", "workflow")
DENSE_NODES, DENSE_LINES = 14, 8
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def count_tree(root: Path = ROOT) -> dict[str, int]:
    """Return what is counted, such as ``nodes of tests`` -> how often it is there."""
    counts: Counter[str] = Counter()
    for folder in COUNTED:
        for path in sorted((root / folder).rglob("*.py")):
            part = path.relative_to(root).parts
            group = "/".join(part[:2]) if folder == "pipeline_src" and len(part) > 2 else folder
            count_file(path.read_text(encoding="utf-8"), group, counts)
    return dict(sorted(counts.items()))


def count_file(text: str, group: str, counts: Counter[str]) -> None:
    """Add what a file has to ``counts``."""
    tree = ast.parse(text)
    lines_of_docstrings = _without_docstrings(tree)
    counts[f"nodes of {group}"] += _nodes(tree)
    if not group.startswith("pipeline_src"):
        return
    counts["docstrings"] += len(lines_of_docstrings)
    counts["# fmt: skip"] += len(re.findall(r"# fmt: skip", text))
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            inner = [child for child in ast.walk(node) if child is not node and isinstance(child, COMPREHENSIONS)]
            counts["comprehensions inside another"] += len(inner)
        if isinstance(node, FUNCTIONS):
            lines = node.end_lineno - node.lineno + 1 - lines_of_docstrings.get(node, 0)
            if lines >= DENSE_LINES and _nodes(node) > DENSE_NODES * lines:
                counts["dense functions"] += 1


def _without_docstrings(tree: ast.Module) -> dict[ast.AST, int]:
    """Remove docstrings; return what was documented -> lines of its docstring."""
    lines = {}
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body.pop(0)
            lines[node] = docstring.end_lineno - docstring.lineno + 1
    return lines


def _nodes(tree: ast.AST) -> int:
    return sum(1 for _ in ast.walk(tree))


def read_table(path: Path = TABLE) -> dict[str, int]:
    """Return the recorded counts."""
    rows = (line.rsplit("\t", 1) for line in path.read_text(encoding="utf-8").splitlines())
    return {name: int(count) for name, count in rows}


if __name__ == "__main__":
    for name, count in count_tree().items():
        print(f"{name}\t{count}")
