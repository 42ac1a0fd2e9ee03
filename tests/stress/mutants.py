"""Change one token of the package at random, many times, and count how many of the changes the tests notice.

``python -m tests.stress.mutants`` works on a clone of the last commit. Each mutant is tested with its module's
tests, then those of its folder, then ``tests/parity``; the survivors are printed as ``file:line: before -> after``.
Fewer than 85 of 100 noticed is a failure.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("text", "examples", "model", "training", "tasks", "evaluate")
MIN_NOTICED = 0.85
MAX_SECONDS = 900  # of the tests of one mutant; an endless loop is noticed too
SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is not": "is", "is": "is not", "not in": "in",
    "in": "not in", "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "//", "&": "|", "|": "&",
    "and": "or", "or": "and",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of bytes [start, stop) of a module."""

    path: Path
    line: int
    start: int
    stop: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"


def mutants(path: Path, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a module; annotations, error messages and log lines stay as they are."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def change(line: int, start: int, stop: int, after: str) -> Mutant:
        return Mutant(path, line, start, stop, source[start:stop].decode(), after)

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def visit(node: ast.AST) -> Iterator[Mutant]:
        operands: list[ast.expr] = []
        match node:
            case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
                return
            case ast.keyword(arg="strict"):
                # No correct caller gives zip unequal lengths.
                return
            case ast.Compare(left=left, comparators=others):
                operands = [left, *others]
            case ast.BinOp(left=left, right=right):
                operands = [left, right]
            case ast.BoolOp(values=values):
                operands = values
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                start, stop = span(node)
                yield change(node.lineno, start, stop, source[slice(*span(operand))].decode())
            case ast.Constant(value=bool(value)):
                yield change(node.lineno, *span(node), str(not value))
            case ast.Constant(value=int(value)):
                yield change(node.lineno, *span(node), str(value + 1))
        for left, right in zip(operands, operands[1:], strict=False):
            start, stop = span(left)[1], span(right)[0]
            between = source[start:stop].decode()
            operator = between.strip(" ()\n\\")
            if operator in SWAPPED and between.count(operator) == 1:
                position = start + between.encode().index(operator.encode())
                yield change(right.lineno, position, position + len(operator), SWAPPED[operator])
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from visit(child)

    yield from visit(ast.parse(source))


def is_noticed(mutant: Mutant, checkout: Path) -> bool:
    """Return whether a test fails while the mutant is in place."""
    module = checkout / mutant.path
    original = module.read_bytes()
    folder = Path("tests/unit", *mutant.path.parts[1:-1])
    module.write_bytes(original[: mutant.start] + mutant.after.encode() + original[mutant.stop :])
    try:
        for tests in (folder / f"test_{mutant.path.name}", folder, Path("tests/parity")):
            if not (checkout / tests).exists():
                continue
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", str(tests)]
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
            try:
                run = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, timeout=MAX_SECONDS)
            except subprocess.TimeoutExpired:
                return True
            if run.returncode:
                return True
        return False
    finally:
        module.write_bytes(original)


def main() -> None:
    """Sample mutants, run the tests against each, and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=FOLDERS, help="below pipeline_src")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    every: list[Mutant] = []
    for folder in sorted(options.folders):
        for path in sorted((ROOT / "pipeline_src" / folder).rglob("*.py")):
            every += mutants(path.relative_to(ROOT), path.read_bytes())
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    noticed = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder, "checkout")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(checkout)], check=True)
        for number, mutant in enumerate(sample, start=1):
            if is_noticed(mutant, checkout):
                noticed += 1
            else:
                print(mutant, flush=True)
            print(f"{noticed} of {number} noticed", file=sys.stderr, flush=True)
    if noticed < MIN_NOTICED * len(sample):
        sys.exit(f"only {noticed} of {len(sample)} mutants were noticed")


if __name__ == "__main__":
    main()
