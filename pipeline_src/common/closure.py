"""The code that a stage depends on: the folders that its module reaches by imports.

This is the one definition of a stage's code. dvc.yaml is checked against it, and checkpoints and cached features are
known by its checksum, so that all of them agree on what an edit makes stale.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Folders of interchangeable members: a stage depends on the one it loads by name, so that a new member makes no
# trained model stale. File that loads a member -> how dvc.yaml spells the dependency.
LOADERS = {
    "pipeline_src/models/architecture.py": "pipeline_src/architectures/${model.architecture}.py",
    "pipeline_src/training/objective.py": "pipeline_src/objectives/${pretrain.objective}.py",
}
MEMBER_FOLDERS = ("pipeline_src/architectures", "pipeline_src/objectives")
# Not code of a stage: params.yaml states every value, DVC compares the values, and the schema only checks them.
CHECKED_VALUES = "pipeline_src/params"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # fields of a statement that hold statements


def closure(module: str, root: Path = ROOT) -> list[str]:
    """Folders of the files that importing ``module`` may read, relative to ``root``, sorted.

    Imports inside functions count too. A folder stands for all that lies in it. Of a member folder the members
    that are imported are named, and of those loaded by name the pattern, as in :data:`LOADERS`.

    Raises:
        FileNotFoundError: there is no such module.
    """
    entries = set()
    for file in imported_files(module, root):
        folder = str(Path(file).parent)
        if file in LOADERS:
            entries.add(LOADERS[file])
        if folder != CHECKED_VALUES:
            entries.add(file if folder in MEMBER_FOLDERS else folder)
    return sorted(entry for entry in entries if not any(entry.startswith(f"{other}/") for other in entries))


def code_checksum(module: str, loaded: Mapping[str, str] | None = None, root: Path = ROOT) -> str:
    """Sixteen characters that stand for the code of ``module``.

    Args:
        module: as for :func:`closure`.
        loaded: key of params.yaml -> name of the member loaded by it, such as ``{"model.architecture": "bert"}``.
        root: of the project.
    """
    digest = hashlib.sha256()
    for entry in closure(module, root):
        for key, name in (loaded or {}).items():
            entry = entry.replace(f"${{{key}}}", name)
        for path in _files(root / entry):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(entry: Path) -> list[Path]:
    """What DVC hashes of an entry (``.dvcignore`` leaves out bytecode)."""
    if entry.is_file():
        return [entry]
    return sorted(path for path in entry.rglob("*") if path.is_file() and path.suffix != ".pyc")


def imported_files(module: str, root: Path = ROOT) -> list[str]:
    """Files below ``root`` that importing ``module`` may read; of the packages' ``__init__`` those that hold code.

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
    return sorted(str(file.relative_to(root)) for file in reached if not _only_says(file))


@cache
def _file(module: str, root: Path) -> Path | None:
    """The file of a module of the project; None for a library, or for a name that is no module."""
    base = root.joinpath(*module.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None)


@cache  # one module stands in the closure of many stages
def _imports(file: Path, package: str) -> list[str]:
    """Names that a file imports; ``from a import b`` gives ``a`` and ``a.b``, which may be a module."""
    names = []
    for node in _import_nodes(ast.parse(file.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names


@cache
def _only_says(file: Path) -> bool:
    """Whether a package's ``__init__`` holds nothing but words on it."""
    if file.name != "__init__.py":
        return False
    return all(isinstance(node, ast.Expr) for node in ast.parse(file.read_text(encoding="utf-8")).body)


def _import_nodes(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Imports among statements and in the blocks of these; no expression is walked, for there are many."""
    for node in statements:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        for block in BLOCKS:
            yield from _import_nodes(getattr(node, block, ()))
