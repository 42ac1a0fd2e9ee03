"""The catalogue's folders of YAML files, one an entry: names, and an entry as plain values.

A test knows by the folders that a stage's modules import from here which entries dvc.yaml must name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import check_name
from pipeline_src.common.yaml_files import parse_yaml

SOURCES = "catalogue/sources"  # where a corpus comes from
TASK_SOURCES = "catalogue/task_sources"  # where a task's official files come from
TASK_SPECS = "catalogue/tasks"  # what a task is
ROOT = Path(__file__).parents[1]
HELP = "pipeline_src/catalogue/README.md"


def entry_names(folder: str) -> list[str]:
    """Names of a folder's entries, in order of the alphabet."""
    return sorted(path.stem for path in (ROOT / folder).glob("*.yaml"))


def read_entry(folder: str, name: str) -> dict[str, Any]:
    """What stands in ``<folder>/<name>.yaml``.

    Raises:
        PipelineError: the name is no entry's, or the file is not YAML or not a mapping of keys.
    """
    where = f"pipeline_src/{folder}"
    try:
        check_name(name)
    except ValueError as error:
        raise PipelineError("not a name for an entry of the catalogue", where=where, remedy=str(error)) from None
    path = ROOT / folder / f"{name}.yaml"
    try:
        entry: Any = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PipelineError(
            "no such entry in the catalogue", name, where=where,
            remedy=f"add {name}.yaml there, or name one that is there: {', '.join(entry_names(folder))}",
        ) from None  # fmt: skip
    except (OSError, ValueError) as error:
        raise PipelineError(
            "an entry of the catalogue cannot be read", f"{name}.yaml: {error}", where=where, remedy=f"see {HELP}"
        ) from None
    if not isinstance(entry, dict):
        raise PipelineError(
            "an entry of the catalogue is not a mapping of keys", f"{name}.yaml", where=where, remedy=f"see {HELP}"
        )
    return entry
