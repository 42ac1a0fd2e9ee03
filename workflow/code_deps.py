"""Is the code that dvc.yaml declares for each stage the code that the stage's module imports?

``python workflow/code_deps.py`` compares it with ``pipeline_src.common.closure``; ``--fix`` rewrites the code entries
of dvc.yaml and keeps all else.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline_src.__main__ import STAGES
from pipeline_src.common.closure import closure, imported_files

CODE = "pipeline_src/"
CATALOGUES = "pipeline_src/catalogue"  # YAML files of which a stage names the keys it reads


def stage_module(command: str) -> str | None:
    """The module behind a stage's command, as the table in ``__main__`` names it; None for another command."""
    named = re.search(r"python -m pipeline_src (\w+)", command)
    return STAGES[named[1]].module if named else None


def compare(root: Path, *, fix: bool = False) -> list[str]:
    """Sentences on every stage whose declared code is not the closure of its module; ``fix`` mends dvc.yaml."""
    round_trip = YAML()
    round_trip.width = 120
    round_trip.indent(mapping=2, sequence=4, offset=2)
    path = root / "dvc.yaml"
    text = path.read_text(encoding="utf-8")
    declared = round_trip.load(text) if fix else YAML(typ="safe").load(text)
    complaints = []
    for name, stage in declared["stages"].items():
        body = stage.get("do", stage)
        command = body["cmd"] if isinstance(body["cmd"], str) else "\n".join(body["cmd"])
        try:
            module = stage_module(command)
        except KeyError as error:
            complaints.append(f"{name}: python -m pipeline_src has no stage {error}")
            continue
        if module is None:
            continue
        needed = closure(module, root)
        unnamed = [file for file in catalogues(module, root) if file not in _declared(body)]
        complaints += [f"{name}: reads {file}, which is neither in deps nor in params" for file in unnamed]
        code = [str(dep) for dep in body.get("deps") or [] if _is_code(dep)]
        if code == needed:
            continue
        missing, beyond = sorted(set(needed) - set(code)), sorted(set(code) - set(needed))
        complaints.append(
            f"{name}: "
            + "; ".join(
                _listed(missing, "imports %s, not in its deps") + _listed(beyond, "does not import %s of its deps")
            )
        )
        body["deps"] = [*needed, *(dep for dep in body.get("deps") or [] if not _is_code(dep))]
    if fix:
        with open(path, "w", encoding="utf-8") as file:
            round_trip.dump(declared, file)
    return complaints


def catalogues(module: str, root: Path) -> list[str]:
    """Files of the catalogue that ``module`` or what it imports names in a string: data that it reads."""
    known = {path.name: str(path.relative_to(root)) for path in (root / CATALOGUES).glob("*.yaml")}
    texts = {text for file in imported_files(module, root) for text in _strings(root / file, frozenset(known))}
    return sorted(known[text] for text in texts)


def _is_code(dep: object) -> bool:
    return str(dep).startswith(CODE) and not str(dep).startswith(f"{CATALOGUES}/")


def _listed(files: list[str], sentence: str) -> list[str]:
    return [sentence % ", ".join(files)] if files else []


def _declared(stage: Any) -> set[str]:
    """Paths in a stage's deps, and parameter files of which it names keys."""
    files = {file for entry in stage.get("params", []) if not isinstance(entry, str) for file in entry}
    return {str(dep) for dep in stage.get("deps") or []} | files


@cache
def _strings(file: Path, names: frozenset[str]) -> set[str]:
    """Which of ``names`` stand as a string in a module."""
    text = file.read_text(encoding="utf-8")
    if not any(name in text for name in names):  # most modules: spares the parsing
        return set()
    return {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and node.value in names}


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
