"""The base class of all sections, and the types of names and paths in sections and in the catalogue."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pipeline_src.base.names import check_file_name, check_name, check_path, shown

# existing paths, since stages depend on them
NO_TEACHER = "catalogue/no-teacher"
NO_MODEL = "catalogue/no-model"
# The prefix of an address on Hugging Face's hub.
HUB = "hub:"
HUB_MODEL = re.compile(rf"{HUB}(?P<repo>\w[\w.-]*/\w[\w.-]*)@(?P<revision>\w[\w.-]*)", re.ASCII)


class Section(BaseModel):
    """A section of params.yaml: frozen, without unknown keys.

    Attributes:
        partial: whether params.yaml may leave keys of the section out, because the defaults are published figures.
    """

    partial: ClassVar[bool] = False

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ByPhase(Section):
    """A value for each phase of pretraining: ``phase1``, ``phase2``, and perhaps ``phase3`` and so on without a gap."""

    model_config = ConfigDict(extra="allow")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self]

    @model_validator(mode="after")
    def _no_gap(self) -> ByPhase:
        if self.names != [f"phase{number}" for number in range(1, min(len(self.names), 9) + 1)]:
            names = ", ".join(self.names)
            raise ValueError(f"name them phase1, phase2 ... phase9, in order and without a gap; not {names}")
        return self


def _whole_number(value: Any) -> Any:
    # Python also reads ` 1`, `1_0` and `true` as numbers, but the number becomes part of a path.
    if isinstance(value, bool) or (isinstance(value, str) and not re.fullmatch(r"0|[1-9][0-9]{0,9}", value)):
        raise ValueError(f"a number of digits alone, unlike {shown(value)}")
    return value


def _listed_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{shown(value)} is listed twice; each may be listed once")
    return values


Name = Annotated[str, AfterValidator(check_name)]
FileName = Annotated[str, AfterValidator(check_file_name)]
FilePath = Annotated[str, AfterValidator(check_path)]
# A seed.
Number = Annotated[int, BeforeValidator(_whole_number), Field(ge=0, lt=2**31)]
ListedOnce = AfterValidator(_listed_once)
