"""Compute a fingerprint (hash) of the code that produced a stage's outputs, a checkpoint or a cache.

The fingerprint covers every project file that a module imports, directly or indirectly, and the data files in the same
folders. Python files are hashed as syntax trees without docstrings. So edits of comments, docstrings and formatting do
not change the fingerprint, and edits of the computation do. dvc.yaml, checkpoints, the feature cache and the baselines
all use this fingerprint, so they agree on what an edit makes stale.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pipeline_src.engine.dependencies import IGNORED

ROOT = Path(__file__).resolve().parents[2]
# The schema of params.yaml is not part of a stage's code: it only checks values, and DVC compares these values itself.
CHECKED_VALUES = "pipeline_src/study"
# Exception: this schema checks the files of catalogue/tasks. DVC does not compare their values one by one.
TASK_SPEC = "pipeline_src/study/task_spec.py"
# Fields of a syntax tree node that hold lists of statements.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def fingerprint(module: str, *members: str, root: Path = ROOT) -> str:
    """Hash the code of a module and of all its imports to sixteen hexadecimal digits.

    The result is the same in all Python versions.

    Args:
        members: further modules, which ``module`` loads by name at run time (``base.registry``).
        root: folder of the project.

    Raises:
        FileNotFoundError: there is no such module or member.
    """
    code, data = covered_files(module, *members, root=root)
    digest = hashlib.sha256()
    for file in code:
        name = file.relative_to(root).as_posix()
        digest.update(f"{name}\0{_statements(file)}\0".encode())
    for path in data:
        name = path.relative_to(root).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def covered_files(module: str, *members: str, root: Path = ROOT) -> tuple[list[Path], list[Path]]:
    # Returns (Python files, data files), each sorted.
    files: set[str] = set()
    for name in (module, *members):
        files.update(imported_files(name, root))
    code: list[Path] = []
    for file in sorted(files):
        if file == TASK_SPEC or str(Path(file).parent) != CHECKED_VALUES:
            code.append(root / file)
    data: set[Path] = set()
    for folder in {root / Path(file).parent for file in files}:
        data.update(_data_files(folder, root))
    return code, sorted(data)


def imported_files(module: str, root: Path = ROOT) -> list[str]:
    """Return the files below ``root`` that ``module`` imports, directly or indirectly.

    Imports inside functions count too. An ``__init__.py`` with only a docstring is left out.

    Raises:
        FileNotFoundError: there is no such module.
    """
    # A member in a folder elsewhere can be imported, but its files are not this project's.
    if _file(module, root) is None and not _is_importable(module):
        raise FileNotFoundError(f"no module {module} below {root}")
    reached: set[Path] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _file(name, root)
        if file is None or file in reached:
            continue
        reached.add(file)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imports(file, package)
        waiting += [name.rpartition(".")[0]] if "." in name else []
    return sorted(file.relative_to(root).as_posix() for file in reached if not _is_docstring_only(file))


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # A package above it does not exist.
        return False


def _data_files(folder: Path, root: Path) -> Iterator[Path]:
    # Includes data files in subfolders, except subfolders with Python files.
    for path in folder.iterdir():
        if path.name.startswith(".") or any(fnmatch(path.name, pattern) for pattern in IGNORED):
            continue
        if path.is_dir():
            if not any(path.glob("*.py")):
                yield from _data_files(path, root)
        elif path.suffix != ".py":
            yield path


@cache
def _statements(file: Path) -> str:
    return statements_of(file.read_bytes())


def statements_of(source: bytes) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for block in BLOCKS:
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                setattr(node, block, [statement for statement in statements if not _is_text(statement)])
    return _dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _dump(node: object) -> str:
    # Replaces ast.dump, whose text differs between Python versions: newer ones add fields. Empty fields are left out.
    if isinstance(node, ast.AST):
        fields = [f"{name}={_dump(value)}" for name, value in ast.iter_fields(node) if value not in (None, [])]
        return f"{type(node).__name__}({','.join(fields)})"
    return f"[{','.join(map(_dump, node))}]" if isinstance(node, list) else repr(node)


@cache
def _file(module: str, root: Path) -> Path | None:
    base = root.joinpath(*module.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None)


# Cached, since many stages import the same module.
@cache
def _imports(file: Path, package: str) -> list[str]:
    # `from a import b` gives "a" and "a.b", since b may be a module.
    names = []
    for node in _import_nodes(ast.parse(file.read_bytes()).body):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # In the package x.y, `from . import b` (level 1) is relative to x.y, `from .. import b` (level 2) to x.
            parents = package.split(".")
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            names.append(base)
            names += [f"{base}.{alias.name}" for alias in node.names]
    return names


@cache
def _is_docstring_only(file: Path) -> bool:
    return file.name == "__init__.py" and all(map(_is_text, ast.parse(file.read_bytes()).body))


def _import_nodes(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in statements:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        for block in BLOCKS:
            yield from _import_nodes(getattr(node, block, ()))
