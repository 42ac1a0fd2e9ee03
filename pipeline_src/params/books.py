"""params.yaml, block ``books``: which shelf is read and which of its books are kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline_src.params.base import Block
from pipeline_src.params.names import Name


class BooksParams(Block):
    """Which shelf, and how it is filtered.

    Attributes:
        source: entry of ``catalogue/sources`` that holds the books.
        min_words: shorter books are dropped (counted as ``too_short``).
        sentences_per_document: where a file holds one sentence per line without book boundaries
            (BookCorpus as distributed), so many lines make one document.
        encoding: of text files (a name that Python knows, such as ``cp1252``); null finds it out.
        undecodable: what becomes of a file that is no text, or whose encoding cannot be told: ``drop`` counts it, and
            the log says why; ``error`` ends the stage.
        text_column: name of the column that holds the text, in JSONL and Parquet.
        near_duplicates: a book whose 5-word shingles overlap an earlier one's by at least this much (Jaccard
            similarity) is dropped; null keeps all but exact copies.
    """

    source: Name
    min_words: int = Field(default=0, ge=0, le=1_000_000_000)
    sentences_per_document: int = Field(default=1000, ge=2, le=10_000_000)
    encoding: str | None = None
    undecodable: Literal["drop", "error"] = "drop"
    text_column: str = Field(default="text", min_length=1)
    near_duplicates: float | None = Field(default=0.8, gt=0, le=1)
