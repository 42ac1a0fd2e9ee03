"""YAML as people write it, read with one meaning.

PyYAML reads YAML 1.1, DVC (by ruamel.yaml) YAML 1.2: ``010`` is 8 to the one and 10 to the other, ``yes`` is true or a
word. What both do not read alike is refused, so that a stage runs with the values that dvc.lock keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline_src.common.names import shown, shown_text

LARGEST = 1_000_000  # characters
MOST = 100_000  # values, those behind aliases counted each time

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> Any:
    """What a YAML text holds, as plain values.

    Raises:
        ValueError: it is not YAML, is too large, names a key twice, or holds a value that has two meanings; one line.
    """
    if len(text) > LARGEST:
        raise ValueError(f"{len(text):,} characters, more than {LARGEST:,}")
    try:
        ours = yaml.load(text, Loader=_Loader)
        _refuse_bombs(ours)
        theirs = YAML(typ="safe", pure=True).load(text)
        for key, one, other in _differences(ours, theirs, ""):
            raise ValueError(
                f"{shown_text(key) or 'the whole'} is {shown(one)} in YAML 1.1 and {shown(other)} in YAML 1.2: "
                "write a text in quotes, a number without leading zeros, and true or false"
            )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (yaml.YAMLError, YAMLError) as error:
        raise ValueError(_in_one_line(error)) from None
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError) as error:  # of tags and of odd numbers
        raise ValueError(f"a value that cannot be read ({type(error).__name__}: {shown(str(error))})") from None
    return ours


def _refuse_bombs(value: Any) -> None:
    """Count values without unfolding more than :data:`MOST` of them."""
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
    """Whether both are one value; ``1e-05``, which `dvc exp run -S` writes, is a text to YAML 1.1, read as one."""
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
