"""What a JSON value must look like, so that a file that was edited or damaged is refused where it is read.

A shape is a type (``int``: a whole number from 0 on; ``float``: any finite number), ``[shape]`` for a list,
``{"key": shape, ...}`` for an object with at least these keys, ``{str: shape}`` for one with any keys, or ``object``.
"""

from __future__ import annotations

import math
from typing import Any

from pipeline_src.common.names import shown


def misfit(value: Any, shape: Any, place: str = "") -> str | None:
    """The first place at which a value is not of a shape, and what is there; None where it is."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return _said(value, place, "an object")
        if missing := [key for key in shape if isinstance(key, str) and key not in value]:
            return f"{place or 'the file'} lacks {missing[0]}"
        pairs = [(key, shape.get(key, shape.get(str))) for key in value]
        inner = (misfit(value[key], of, f"{place}.{key}".lstrip(".")) for key, of in pairs if of is not None)
        return next((found for found in inner if found), None)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _said(value, place, "a list")
        inner = (misfit(one, shape[0], f"{place}[{number}]") for number, one in enumerate(value))
        return next((found for found in inner if found), None)
    return None if _is_plain(value, shape) else _said(value, place, NAMES.get(shape, shape.__name__))


NAMES = {int: "a whole number", float: "a finite number", str: "a text", dict: "an object", list: "a list"}


def _is_plain(value: Any, kind: type) -> bool:
    if kind is int:
        return type(value) is int and value >= 0
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return isinstance(value, kind)


def _said(value: Any, place: str, wanted: str) -> str:
    return f"{place or 'the file'} is {shown(value)}, not {wanted}"
