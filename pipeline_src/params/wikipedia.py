"""params.yaml, block ``wikipedia``: which dump is read and which of its articles are kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from pipeline_src.params.base import Block
from pipeline_src.params.names import ListedOnce, Name


class WikipediaParams(Block):
    """Which dump, which of its parts, and how they are filtered.

    Attributes:
        dump: entry of ``catalogue/sources`` that holds the dump.
        date: date of the dump as Wikimedia writes it (``20260901``), for entries whose addresses need one.
        parts: parts of the dump, one job each; a name (``common.names``) that the entry's addresses use.
        min_words: articles with fewer words of prose are dropped (counted as ``too_short``).
        beam_args: handed verbatim to Beam's ``PipelineOptions``, such as ``["--runner=FlinkRunner"]``.
    """

    dump: Name
    date: str | None = Field(default=None, pattern=r"^\d{8}$")
    parts: Annotated[tuple[Name, ...], ListedOnce] = Field(min_length=1)
    min_words: int = Field(default=0, ge=0, le=1_000_000_000)
    beam_args: tuple[str, ...] = ()

    @field_validator("date", mode="before")
    @classmethod
    def _date_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) else value
