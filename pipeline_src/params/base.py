"""What every block of params.yaml has in common: frozen, strict about keys, lenient about how a number is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticUndefined


class Block(BaseModel):
    """One block of params.yaml.

    Unknown keys are refused. Numbers may arrive as text: ``dvc exp run -S finetune.lr=1e-5`` writes ``1e-05``,
    which YAML 1.1 reads as a string.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def missing_keys(block: type[Block], values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys of a block, and of the blocks in it, that ``values`` leaves out.

    params.yaml must spell out every key: this package is no stage's declared code, and DVC compares the values that
    are written, so that a default filled in silently could change without making anything stale. Blocks that Python
    makes may leave keys out. A mapping by names of one's own, such as ``finetune.tasks``, holds what differs from
    elsewhere, and may leave out what it likes.

    Yields:
        The dotted key, and its usual value; ``PydanticUndefined`` where it has none.
    """
    for name, field in block.model_fields.items():
        key = f"{prefix}{name}"
        annotations = (field.annotation, *get_args(field.annotation))
        inner = next((each for each in annotations if isinstance(each, type) and issubclass(each, Block)), None)
        if get_args(field.annotation)[:1] == (str,):
            inner = None  # by names of one's own
        if name not in values:
            yield key, field.get_default(call_default_factory=True)
        elif inner is not None and isinstance(values[name], Mapping):
            yield from missing_keys(inner, values[name], f"{key}.")


def usual_value(value: Any) -> str | None:
    """A key's default as params.yaml spells it; None where it has none."""
    if value is PydanticUndefined:
        return None
    if isinstance(value, Block):
        value = value.model_dump(mode="json")
    return json.dumps(value)
