"""The rules of ``common.names`` as types of what a block or an entry of the catalogue holds."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from pipeline_src.common.names import check_file_name, check_name, check_path, shown


def _whole_number(value: Any) -> Any:
    """A number as it stands in a path: what else Python reads as one (`` 1``, ``1_0``, ``true``) has two spellings."""
    if isinstance(value, bool) or (isinstance(value, str) and not re.fullmatch(r"0|[1-9][0-9]{0,9}", value)):
        raise ValueError(f"a number of digits alone, unlike {shown(value)}")
    return value


def _listed_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values of which none stands twice: each is a folder of its own."""
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise ValueError(f"{shown(twice[0])} stands there twice; each may be listed once")
    return values


Name = Annotated[str, AfterValidator(check_name)]
FileName = Annotated[str, AfterValidator(check_file_name)]
FilePath = Annotated[str, AfterValidator(check_path)]
Number = Annotated[int, BeforeValidator(_whole_number), Field(ge=0, lt=2**31)]  # of a restart
ListedOnce = AfterValidator(_listed_once)
