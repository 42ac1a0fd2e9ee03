"""Read the catalogue's entries, and YAML as DVC does, so that a stage runs with the values that dvc.lock records.

DVC reads YAML 1.2 with ruamel.yaml: ``010`` is ten, ``yes`` is a word, ``1e-05`` (``dvc exp run -S``) is a number.

A test checks that a stage whose code imports a folder's name (``SOURCES``) depends on its entries in dvc.yaml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, ScalarEvent

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import check_name, shown_text

REFERENCE_CHARACTERS = re.compile(r"[&*]|<<")


def parse_yaml(text: str) -> Any:
    """Return the plain values of a YAML text; raise ValueError with a message of one line if it is not valid."""
    try:
        return YAML(typ="safe").load(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        position = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ValueError(f"{shown_text(problem)}{position}") from None
    except (ValueError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # Tags and odd numbers.
        raise ValueError(f"a value that cannot be read: {shown_text(error)}") from None


def find_reference(text: str) -> tuple[str, int] | None:
    """Return the first anchor, alias or merge key (``&name``, ``*name``, ``<<``) of valid YAML, and its line."""
    # Parsing takes as long as loading, and nearly every file has none of these characters.
    if not REFERENCE_CHARACTERS.search(text):
        return None
    for event in YAML(typ="safe").parse(text):
        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent):
            return f"*{event.anchor}", line
        if getattr(event, "anchor", None):
            return f"&{event.anchor}", line
        # A key in quotes is not merged: event.implicit says whether its tag follows from plain text.
        if isinstance(event, ScalarEvent) and event.value == "<<" and event.implicit[0]:
            return "<<", line
    return None


CATALOGUE = "catalogue"
SOURCES = f"{CATALOGUE}/sources"
# Where the official files of tasks are from; TASK_SPECS defines the tasks.
TASK_SOURCES = f"{CATALOGUE}/task_sources"
TASK_SPECS = f"{CATALOGUE}/tasks"
# Models that pretraining can start from.
MODELS = f"{CATALOGUE}/models"
ROOT = Path(__file__).parents[2]
HELP = "catalogue/README.md"


def entry_names(folder: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / folder).glob("*.yaml"))


def read_entry(folder: str, name: str) -> dict[str, Any]:
    try:
        check_name(name)
    except ValueError as error:
        raise PipelineError("not a name for an entry of the catalogue", where=folder, hint=str(error)) from None
    path = ROOT / folder / f"{name}.yaml"
    try:
        entry: Any = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PipelineError(
            "no such entry in the catalogue",
            name,
            where=folder,
            hint=f"add {name}.yaml there, or name one that is there: {', '.join(entry_names(folder))}",
        ) from None
    except (OSError, ValueError) as error:
        message, hint = f"{name}.yaml: {error}", f"see {HELP}"
        raise PipelineError("an entry of the catalogue cannot be read", message, where=folder, hint=hint) from None
    if not isinstance(entry, dict):
        what = "an entry of the catalogue is not a mapping of keys"
        raise PipelineError(what, f"{name}.yaml", where=folder, hint=f"see {HELP}")
    return entry
