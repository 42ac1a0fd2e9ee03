"""params.yaml, block ``books``: which shelf is read and which of its books are kept."""

from __future__ import annotations

from pydantic import Field

from pipeline_src.params.base import Block


class BooksParams(Block):
    """Which shelf, and how it is filtered.

    Attributes:
        source: entry of ``sources.yaml`` that holds the books.
        min_words: shorter books are dropped (counted as ``too_short``).
        sentences_per_document: where a file holds one sentence per line without book boundaries
            (BookCorpus as distributed), so many lines make one document.
    """

    source: str
    min_words: int = Field(default=0, ge=0)
    sentences_per_document: int = Field(default=1000, ge=2)
