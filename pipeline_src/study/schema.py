"""Base classes of the sections of params.yaml, and validated types of names, paths and seeds."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pipeline_src.base.names import check_file_name, check_name, check_path, shown

# Values that mean "none". They are paths of existing files, since stages depend on the file that is named here.
NO_TEACHER = "catalogue/no-teacher"
NO_MODEL = "catalogue/no-model"
# The prefix of an address on Hugging Face's hub.
HUB = "hub:"
HUB_MODEL = re.compile(rf"{HUB}(?P<repo>\w[\w.-]*/\w[\w.-]*)@(?P<revision>\w[\w.-]*)", re.ASCII)


class Section(BaseModel):
    """A section of params.yaml. It is immutable, and unknown keys are an error.

    Attributes:
        partial: whether keys of this section may be left out of params.yaml, since the defaults are published values
            that never change.
    """

    partial: ClassVar[bool] = False

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ByPhase(Section):
    """A value for each phase of pretraining: ``phase1``, ``phase2``, and optionally ``phase3`` to ``phase9``."""

    model_config = ConfigDict(extra="allow")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self]

    @model_validator(mode="after")
    def _no_gap(self) -> ByPhase:
        if self.names != [f"phase{number}" for number in range(1, min(len(self.names), 9) + 1)]:
            names = ", ".join(self.names)
            raise ValueError(f"phases are phase1, phase2 ... phase9, in order and without a gap; not {names}")
        return self


def _whole_number(value: Any) -> Any:
    # pydantic would also accept ` 1`, `1_0` and `true`. They are refused because the number becomes part of a path.
    if isinstance(value, bool) or (isinstance(value, str) and not re.fullmatch(r"0|[1-9][0-9]{0,9}", value)):
        raise ValueError(f"it should have only digits, without leading zeros; not {shown(value)}")
    return value


def _listed_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{shown(value)} is listed twice; list it once")
    return values


Name = Annotated[str, AfterValidator(check_name)]
FileName = Annotated[str, AfterValidator(check_file_name)]
FilePath = Annotated[str, AfterValidator(check_path)]
# A seed, below 2**31.
Number = Annotated[int, BeforeValidator(_whole_number), Field(ge=0, lt=2**31)]
ListedOnce = AfterValidator(_listed_once)
