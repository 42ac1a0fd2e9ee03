"""From a file of parameters to a checked block, or to one error that names key, value and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown
from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.params.base import Block

B = TypeVar("B", bound=Block)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a file of parameters.

    Raises:
        PipelineError: the file is missing, is not YAML, or holds something else.
    """
    try:
        raw: Any = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PipelineError(
            "no study here", path, remedy="run from the project's root, or `python -m pipeline_src preset sample`"
        ) from None
    except ValueError as error:
        raise PipelineError(
            "not a YAML file that can be read", path, where=error, remedy="mend what is named above"
        ) from None
    if not isinstance(raw, dict):
        if Path(path).name == "params.yaml":
            raise PipelineError("not a study", path, remedy="`python -m pipeline_src preset sample` writes one")
        raise PipelineError("not a mapping of keys", path, remedy=f"`git checkout {path}` brings it back")
    return raw


def check_block(block: type[B], raw: dict[str, Any], path: str | Path, complete: bool = False) -> B:
    """Turn plain values into a block.

    Args:
        block: what they should be.
        raw: the values.
        path: of the file that holds them.
        complete: whether every key must be spelled out, those with a usual value too; see :func:`missing_keys`.

    Raises:
        PipelineError: a key is unknown or missing, or a value is of the wrong type or out of range.
    """
    missing = list(missing_keys(block, raw))
    mistakes: list[ErrorDetails] = []
    try:
        checked = block.model_validate(raw)
    except ValidationError as error:
        keys = {each.key for each in missing}
        mistakes = [each for each in error.errors(include_url=False) if _dotted(each) not in keys]
    unknown = [each for each in mistakes if each["type"] == "extra_forbidden"]
    missing = [each for each in missing if complete or each.usual is None]
    count = len(mistakes) + len(missing)
    if not count:
        return checked
    if unknown:  # first, since a key misspelt is missing too
        what, value, named = "unknown key", _dotted(unknown[0]), 1
        remedy = f"remove it or mend its spelling; allowed here: {', '.join(_siblings(block, unknown[0]['loc']))}"
    elif missing:
        what, value, named = "a key is missing", ", ".join(each.key for each in missing), len(missing)
        remedy = f"add {', '.join(map(str, missing))}"
    else:
        first = mistakes[0]
        given = "" if isinstance(first["input"], dict) else f" = {shown(first['input'])}"
        key = _dotted(first) or f"the {block.__name__.lower()} as a whole"
        what, value, named = "value not allowed", f"{key}{given}", 1
        remedy = first["msg"].removeprefix("Value error, ")
    more = f" ({count - named} more)" if count > named else ""
    raise PipelineError(what, value, where=f"{path}{more}", remedy=remedy)


@dataclass(frozen=True)
class MissingKey:
    """A key that a file leaves out: dotted, with its usual value as YAML spells it, None where there is none."""

    key: str
    usual: str | None

    def __str__(self) -> str:
        return f"`{self.key}`" if self.usual is None else f"`{self.key}: {self.usual}`"


def missing_keys(block: type[Block], values: Mapping[str, Any], prefix: str = "") -> Iterator[MissingKey]:
    """Keys of a block, and of the blocks in it, that ``values`` leaves out.

    params.yaml must spell out every key: this package is no stage's code, and DVC compares the values that
    are written, so that a default filled in silently could change without making anything stale. Blocks that Python
    makes may leave keys out. So may entries of a mapping by names of one's own, such as ``finetune.tasks``, which say
    what differs.
    """
    for name, field in block.model_fields.items():
        key = f"{prefix}{name}"
        if name not in values:
            yield MissingKey(key, None if field.is_required() else _spelled(field.get_default()))
        elif (inner := _inner_block(field.annotation)) is not None and isinstance(values[name], Mapping):
            yield from missing_keys(inner, values[name], f"{key}.")


def _inner_block(annotation: Any) -> type[Block] | None:
    """The block that a field holds, or may hold."""
    if get_origin(annotation) is dict:
        return None
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Block):
            return kind
    return None


def _spelled(value: Any) -> str:
    """A default as YAML spells it in one line."""
    return json.dumps(value.model_dump(mode="json") if isinstance(value, Block) else value)


def _dotted(mistake: ErrorDetails) -> str:
    return ".".join(str(step) for step in mistake["loc"])


def _siblings(outer: type[Block], location: tuple[int | str, ...]) -> list[str]:
    """Keys allowed where an unknown one stands."""
    block: Any = outer
    for step in location[:-1]:
        field = getattr(block, "model_fields", {}).get(step)
        block = field.annotation if field is not None else None
    return list(getattr(block, "model_fields", {}) or ["the keys of a preset"])
