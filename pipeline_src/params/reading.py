"""From a file of parameters to a checked block, or to one error that names key, value and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.base import Block

B = TypeVar("B", bound=Block)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a file of parameters.

    Raises:
        PipelineError: the file is missing, is not YAML, or holds something else.
    """
    try:
        raw: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PipelineError(
            "no study here", path, remedy="run from the project's root, or `python -m pipeline_src preset sample`"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a thirteenth month, a number of a mile, [[[[…
        raise PipelineError("not a YAML file", path, where=error, remedy="mend the line named above") from None
    if not isinstance(raw, dict):
        if Path(path).name == "params.yaml":
            raise PipelineError("not a study", path, remedy="`python -m pipeline_src preset sample` writes one")
        raise PipelineError("not a mapping of keys", path, remedy=f"`git checkout {path}` brings it back")
    return raw


def check_block(block: type[B], raw: dict[str, Any], path: str | Path) -> B:
    """Turn plain values into a block.

    Raises:
        PipelineError: a key is unknown or missing, or a value is of the wrong type or out of range.
    """
    try:
        return block.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in first["loc"]) or f"the {block.__name__.lower()} as a whole"
        if first["type"] == "missing":
            what, value, remedy = "a key is missing", key, f"add {key}; a preset shows every key"
        elif first["type"] == "extra_forbidden":
            what, value = "unknown key", key
            remedy = f"remove it or mend its spelling; allowed here: {', '.join(_siblings(block, first['loc']))}"
        else:
            shown = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"
            what, value = "value not allowed", f"{key}{shown}"
            remedy = first["msg"].removeprefix("Value error, ")
        more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise PipelineError(what, value, where=f"{path}{more}", remedy=remedy) from None


def _siblings(outer: type[Block], location: tuple[int | str, ...]) -> list[str]:
    """Keys allowed where an unknown one stands."""
    block: Any = outer
    for step in location[:-1]:
        field = getattr(block, "model_fields", {}).get(step)
        block = field.annotation if field is not None else None
    return list(getattr(block, "model_fields", {}) or ["the keys of a preset"])
