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

from ruamel.yaml import YAML

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline_src.__main__ import STAGES
from pipeline_src.common import catalogue
from pipeline_src.common.closure import closure, imported_files

CODE = "pipeline_src/"
CATALOGUE = "pipeline_src/catalogue/"  # YAML files, of which a stage names those that it reads
CATALOGUE_FOLDERS = ("SOURCES", "TASK_SOURCES", "TASK_SPECS")  # in pipeline_src/common/catalogue.py


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
        deps = [str(dep) for dep in body.get("deps") or []]
        unnamed = [folder for folder in catalogue_folders(module, root) if not any(d.startswith(folder) for d in deps)]
        complaints += [f"{name}: reads {folder}, of which nothing is in its deps" for folder in unnamed]
        code = [dep for dep in deps if _is_code(dep)]
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


def catalogue_folders(module: str, root: Path) -> list[str]:
    """Folders of the catalogue that ``module`` or what it imports takes from ``common.catalogue``: what it reads."""
    named = {name for file in imported_files(module, root) for name in _from_catalogue(root / file)}
    return sorted(f"{CODE}{getattr(catalogue, name)}" for name in named if name in CATALOGUE_FOLDERS)


def _is_code(dep: object) -> bool:
    return str(dep).startswith(CODE) and not str(dep).startswith(CATALOGUE)


def _listed(files: list[str], sentence: str) -> list[str]:
    return [sentence % ", ".join(files)] if files else []


@cache
def _from_catalogue(file: Path) -> set[str]:
    """What a module imports from ``common.catalogue``."""
    text = file.read_text(encoding="utf-8")
    if catalogue.__name__ not in text:  # most modules: spares the parsing
        return set()
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return {name.name for node in imports if node.module == catalogue.__name__ for name in node.names}


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
