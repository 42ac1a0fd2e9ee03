"""Read YAML files and the entries of catalogue/.

YAML is read as DVC reads it, so that a stage runs with the values that dvc.lock records. DVC uses ruamel.yaml and YAML
1.2, in which ``010`` is ten, ``yes`` is a string, and ``1e-05`` (written by ``dvc exp run -S``) is a number.

If a stage's code imports the name of a catalogue folder (such as ``SOURCES``), its stage in dvc.yaml must depend on the
entries of that folder. A test checks this.
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
    """Parse a YAML text into plain Python values.

    Raises:
        ValueError: the YAML is invalid. The message is one line.
    """
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
        # For example, an unknown tag or the number 1e999999.
        raise ValueError(f"invalid value: {shown_text(error)}") from None


def find_reference(text: str) -> tuple[str, int] | None:
    """Find the first anchor, alias or merge key (``&name``, ``*name``, ``<<``) in valid YAML.

    Returns:
        The sign and its line number, or None if there is none.
    """
    # A quick test first: parsing takes as long as loading, and nearly every file has none of these characters.
    if not REFERENCE_CHARACTERS.search(text):
        return None
    for event in YAML(typ="safe").parse(text):
        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent):
            return f"*{event.anchor}", line
        if getattr(event, "anchor", None):
            return f"&{event.anchor}", line
        # `"<<": 1` in quotes is an ordinary key. event.implicit[0] is true only for a scalar without quotes.
        if isinstance(event, ScalarEvent) and event.value == "<<" and event.implicit[0]:
            return "<<", line
    return None


CATALOGUE = "catalogue"
SOURCES = f"{CATALOGUE}/sources"
# Downloads of the official task files. The tasks themselves are defined in TASK_SPECS.
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
        raise PipelineError("invalid name of a catalogue entry", where=folder, hint=str(error)) from None
    path = ROOT / folder / f"{name}.yaml"
    try:
        entry: Any = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PipelineError(
            "no such catalogue entry",
            name,
            where=folder,
            hint=f"create {folder}/{name}.yaml, or use one of: {', '.join(entry_names(folder))}",
        ) from None
    except (OSError, ValueError) as error:
        message, hint = f"{name}.yaml: {error}", f"fix the file; {HELP} describes its format"
        raise PipelineError("catalogue entry cannot be read", message, where=folder, hint=hint) from None
    if not isinstance(entry, dict):
        hint = f"write `key: value` lines; {HELP} describes them"
        raise PipelineError("catalogue entry has no keys", f"{name}.yaml", where=folder, hint=hint)
    return entry
