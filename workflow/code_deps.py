"""The code a stage depends on: every project file that its module imports, directly or not.

``python workflow/code_deps.py`` compares that with dvc.yaml; ``--fix`` rewrites the .py lines there, keeping all else.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def closure(module: str, root: Path) -> list[str]:
    """Files below ``root`` that importing ``module`` may read, ``__init__`` of every package included.

    Imports inside functions count too. Paths are relative to ``root``, sorted.

    Raises:
        FileNotFoundError: there is no such module.
    """
    start = _file(module, root)
    if start is None:
        raise FileNotFoundError(f"no module {module} below {root}")
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _file(name, root)
        if file is None or file in found:
            continue
        found.add(file)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imports(file, package)
        waiting += [name.rpartition(".")[0]] if "." in name else []
    return sorted(str(file.relative_to(root)) for file in found)


def stage_module(command: str, root: Path) -> str | None:
    """The module behind a stage's command, as the table in ``__main__`` names it; None for another command."""
    named = re.search(r"python -m pipeline_src (\w+)", command)
    if named is None:
        return None
    sys.path.insert(0, str(root))
    from pipeline_src.__main__ import STAGES

    return STAGES[named[1]].module


def compare(root: Path, *, fix: bool = False) -> list[str]:
    """Sentences on every stage whose declared code is not the closure of its module; ``fix`` mends dvc.yaml."""
    yaml = YAML()
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    path = root / "dvc.yaml"
    declared = yaml.load(path.read_text(encoding="utf-8"))
    complaints = []
    for name, stage in declared["stages"].items():
        body = stage.get("do", stage)
        command = body["cmd"] if isinstance(body["cmd"], str) else "\n".join(body["cmd"])
        try:
            module = stage_module(command, root)
        except KeyError as error:
            complaints.append(f"{name}: python -m pipeline_src has no stage {error}")
            continue
        if module is None:
            continue
        needed = closure(module, root)
        unnamed = [file for file in data_files(needed, root) if file not in _declared(body)]
        complaints += [f"{name}: reads {file}, which is neither in deps nor in params" for file in unnamed]
        code = [dep for dep in body.get("deps", []) if str(dep).endswith(".py")]
        if code == needed:
            continue
        missing, beyond = sorted(set(needed) - set(code)), sorted(set(code) - set(needed))
        complaints.append(
            f"{name}: "
            + "; ".join(
                _listed(missing, "imports %s, not in its deps") + _listed(beyond, "does not import %s of its deps")
            )
        )
        body["deps"] = [*needed, *(dep for dep in body.get("deps", []) if not str(dep).endswith(".py"))]
    if fix:
        with open(path, "w", encoding="utf-8") as file:
            yaml.dump(declared, file)
    return complaints


def data_files(code: list[str], root: Path) -> list[str]:
    """Files beside a module that it names in a string (``tasks.yaml``): data of the project that it reads."""
    found = set()
    for file in code:
        for name in _strings(root / file):
            beside = (root / file).parent / name
            if beside.suffix not in ("", ".py") and beside.is_file():
                found.add(str(beside.relative_to(root)))
    return sorted(found)


def _listed(files: list[str], sentence: str) -> list[str]:
    return [sentence % ", ".join(files)] if files else []


def _declared(stage: Any) -> set[str]:
    """Paths in a stage's deps, and parameter files of which it names keys."""
    files = {file for entry in stage.get("params", []) if not isinstance(entry, str) for file in entry}
    return {str(dep) for dep in stage.get("deps", [])} | files


@cache
def _file(module: str, root: Path) -> Path | None:
    """The file of a module of the project; None for a library, or for a name that is no module."""
    base = root.joinpath(*module.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None)


@cache  # one module stands in the closure of many stages
def _imports(file: Path, package: str) -> list[str]:
    """Names that a file imports; ``from a import b`` gives ``a`` and ``a.b``, which may be a module."""
    names = []
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names


@cache
def _strings(file: Path) -> set[str]:
    """Strings in a file that may be names of files."""
    texts = {node.value for node in _nodes(file) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if re.fullmatch(r"[\w.-]+", text)}


@cache
def _nodes(file: Path) -> list[ast.AST]:
    whole = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [node for node in whole if isinstance(node, ast.Import | ast.ImportFrom | ast.Constant)]


def main() -> int:
    """Compare or mend; the exit status is 1 where something was wrong and not mended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true", help="rewrite dvc.yaml")
    arguments = parser.parse_args()
    complaints = compare(Path.cwd(), fix=arguments.fix)
    print("\n".join(complaints) or "dvc.yaml names the code of every stage")
    if complaints and not arguments.fix:
        print("mend it by: python workflow/code_deps.py --fix")
    return int(bool(complaints) and not arguments.fix)


if __name__ == "__main__":
    sys.exit(main())
