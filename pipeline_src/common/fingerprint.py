"""Fingerprint of code: what a stage, a checkpoint or a cache was made by.

It covers every file of the project that a module imports, directly or not, as its syntax tree without docstrings, and
data files beside them. Comments, docstrings and formatting do not change it; a change of what is computed does.
dvc.yaml, checkpoints, the feature cache and the baselines use the same one, so that they agree on what an edit makes
stale.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Folders whose members are loaded by name, so that no import leads to them. A stage that loads one depends on the
# member's own fingerprint too.
MEMBER_FOLDERS = ("architectures", "objectives")
# Not code of a stage: params.yaml states every value, DVC compares the values, and the schema only checks them.
CHECKED_VALUES = "pipeline_src/params"
# Entries are dependencies of the stages that read them, one by one
CATALOGUE = "pipeline_src/catalogue"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # fields of a statement that hold statements


def fingerprint(module: str, *members: str, root: Path = ROOT) -> str:
    """Return sixteen hexadecimal digits for the code of a module and of all that it imports.

    The same under every Python version.

    Args:
        module: such as ``pipeline_src.pretraining.pretrain``.
        members: modules that it loads by name, from :data:`MEMBER_FOLDERS`; one that is not below ``root``, because it
            was added to the package's path, is not covered.
        root: the project's.

    Raises:
        FileNotFoundError: there is no such module.
    """
    named = [module, *(member for member in members if _file(member, root))]
    files = sorted({file for name in named for file in imported_files(name, root)})
    digest = hashlib.sha256()
    for file in files:
        if str(Path(file).parent) != CHECKED_VALUES:
            digest.update(f"{file}\0{_statements(root / file)}\0".encode())
    folders = {root / Path(file).parent for file in files}
    for path in sorted({path for folder in folders for path in _data_files(folder, root)}):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def imported_files(module: str, root: Path = ROOT) -> list[str]:
    """Files below ``root`` that importing ``module`` may read, imports inside functions included.

    Of the packages' ``__init__``, only those that hold code.

    Raises:
        FileNotFoundError: there is no such module.
    """
    if _file(module, root) is None:
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


def _data_files(folder: Path, root: Path) -> Iterator[Path]:
    """Files in a folder of code, and in folders below it without code of their own, that are not code."""
    for path in folder.iterdir():
        if path.is_dir():
            if path.name != "__pycache__" and path != root / CATALOGUE and not any(path.glob("*.py")):
                yield from _data_files(path, root)
        elif path.suffix not in (".py", ".pyc") and not path.name.startswith("."):
            yield path


@cache
def _statements(file: Path) -> str:
    """A file's syntax tree as text, without docstrings and other bare strings."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        for block in BLOCKS:
            if isinstance(statements := getattr(node, block, None), list):
                setattr(node, block, [each for each in statements if not _is_text(each)])
    return _dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _dump(node: object) -> str:
    """A tree as text. ``ast.dump`` is not the same in every Python: newer ones add fields, empty in older code."""
    if isinstance(node, ast.AST):
        fields = [f"{name}={_dump(value)}" for name, value in ast.iter_fields(node) if value not in (None, [])]
        return f"{type(node).__name__}({','.join(fields)})"
    return f"[{','.join(map(_dump, node))}]" if isinstance(node, list) else repr(node)


@cache
def _file(module: str, root: Path) -> Path | None:
    """The file of a module of the project; None for a library, or a name that is no module."""
    base = root.joinpath(*module.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None)


@cache  # one module is imported by many stages
def _imports(file: Path, package: str) -> list[str]:
    """Names that a file imports; ``from a import b`` gives ``a`` and ``a.b``, which may be a module."""
    names = []
    for node in _import_nodes(ast.parse(file.read_bytes()).body):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names


@cache
def _is_docstring_only(file: Path) -> bool:
    """Whether a package's ``__init__`` holds nothing but a docstring."""
    return file.name == "__init__.py" and all(map(_is_text, ast.parse(file.read_bytes()).body))


def _import_nodes(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Imports among statements and in their blocks; expressions, of which there are many, are not searched."""
    for node in statements:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        for block in BLOCKS:
            yield from _import_nodes(getattr(node, block, ()))
