"""Read YAML that has the same meaning in YAML 1.1 and 1.2, and the entries of the catalogue.

PyYAML reads YAML 1.1, DVC (with ruamel.yaml) YAML 1.2: ``010`` is 8 or 10, ``yes`` is true or a word. A text that they
read differently is refused, so that a stage runs with the values that dvc.lock records.

A test derives from a stage's imports of the catalogue's folders which entries dvc.yaml must name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import check_name, shown, shown_text

LARGEST = 1_000_000  # characters
MOST = 100_000  # values, those of aliases counted each time

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> Any:
    """Return the plain values of a YAML text.

    Raises:
        ValueError: it is not YAML, is too large, has a key twice, or has a value with two meanings; one line.
    """
    if len(text) > LARGEST:
        raise ValueError(f"{len(text):,} characters, more than {LARGEST:,}")
    try:
        ours = yaml.load(text, Loader=_Loader)
        _refuse_bombs(ours)
        theirs = YAML(typ="safe", pure=True).load(text)
        for key, one, other in _differences(ours, theirs, ""):
            raise ValueError(
                f"{shown_text(key) or 'the file'} is {shown(one)} in YAML 1.1 and {shown(other)} in YAML 1.2: "
                "write a text in quotes, a number without leading zeros, and true or false"
            )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (yaml.YAMLError, YAMLError) as error:
        raise ValueError(_in_one_line(error)) from None
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError) as error:  # from tags and odd numbers
        raise ValueError(f"a value that cannot be read ({type(error).__name__}: {shown(str(error))})") from None
    return ours


def _refuse_bombs(value: Any) -> None:
    """Refuse more than :data:`MOST` values, without unfolding more."""
    count, waiting = 0, [value]
    while waiting:
        node = waiting.pop()
        count += 1
        if count > MOST:
            raise ValueError(f"more than {MOST:,} values, aliases unfolded")
        if isinstance(node, dict):
            waiting += node.values()
        elif isinstance(node, list | tuple | set):
            waiting += node


def _differences(ours: Any, theirs: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(map(repr, ours)) != list(map(repr, theirs)):
            odd = next(
                (pair for pair in zip(ours, theirs, strict=False) if repr(pair[0]) != repr(pair[1])), (ours, theirs)
            )
            yield f"a key of {key or 'the file'}", *odd
        for name in ours.keys() & theirs.keys():
            yield from _differences(ours[name], theirs[name], f"{key}.{name}" if key else str(name))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(*pair, f"{key}.{number}")
    elif not _same(ours, theirs):
        yield key, ours, theirs


def _same(ours: Any, theirs: Any) -> bool:
    """Return whether both are the same value; ``1e-05``, written by `dvc exp run -S`, is a string in YAML 1.1."""
    if isinstance(ours, str) and isinstance(theirs, float):
        try:
            return float(ours) == theirs
        except ValueError:
            return False
    if isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours):
        return math.isnan(theirs)
    return type(ours) is type(theirs) and bool(ours == theirs)


def _in_one_line(error: yaml.YAMLError | YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return shown_text(problem) + (f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "")


CATALOGUE = "catalogue"
SOURCES = f"{CATALOGUE}/sources"  # sources of a corpus
TASK_SOURCES = f"{CATALOGUE}/task_sources"  # sources of a task's official files
TASK_SPECS = f"{CATALOGUE}/tasks"  # definitions of tasks
MODELS = f"{CATALOGUE}/models"  # models to go on from
ROOT = Path(__file__).parents[2]
HELP = "catalogue/README.md"


def entry_names(folder: str) -> list[str]:
    """Return the sorted names of a folder's entries."""
    return sorted(path.stem for path in (ROOT / folder).glob("*.yaml"))


def read_entry(folder: str, name: str) -> dict[str, Any]:
    """Return the mapping in ``<folder>/<name>.yaml``."""
    where = f"{folder}"
    try:
        check_name(name)
    except ValueError as error:
        raise PipelineError("not a name for an entry of the catalogue", where=where, hint=str(error)) from None
    path = ROOT / folder / f"{name}.yaml"
    try:
        entry: Any = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PipelineError(
            "no such entry in the catalogue", name, where=where,
            hint=f"add {name}.yaml there, or name one that is there: {', '.join(entry_names(folder))}",
        ) from None  # fmt: skip
    except (OSError, ValueError) as error:
        raise PipelineError(
            "an entry of the catalogue cannot be read", f"{name}.yaml: {error}", where=where, hint=f"see {HELP}"
        ) from None
    if not isinstance(entry, dict):
        raise PipelineError(
            "an entry of the catalogue is not a mapping of keys", f"{name}.yaml", where=where, hint=f"see {HELP}"
        )
    return entry
