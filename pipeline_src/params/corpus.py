"""params.yaml, block ``corpus``: what holds for the text of every source."""

from __future__ import annotations

from pydantic import Field

from pipeline_src.params.base import Block


class CorpusParams(Block):
    """What is kept apart for measuring.

    Attributes:
        validation: share of documents (0 to 0.5) that no training stage sees; the masked-language-model loss is
            measured on them.
    """

    validation: float = Field(default=0.01, gt=0, le=0.5)
