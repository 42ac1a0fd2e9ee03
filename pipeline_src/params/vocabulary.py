"""params.yaml, block ``vocabulary``: the WordPiece vocabulary."""

from __future__ import annotations

from pydantic import Field

from pipeline_src.params.base import Block


class VocabularyParams(Block):
    """Size and spelling of the vocabulary.

    Attributes:
        size: entries in all, special tokens and single characters included; 30,000 in the paper (section 3),
            30,522 in the released uncased vocabulary. Ids are stored in 16 bits, hence the limit.
        lowercase: lower-case text and strip accents (the uncased models).
        min_count: words rarer than this are not learnt from.
        alphabet: most single characters kept; rarer ones become [UNK].
    """

    size: int = Field(ge=100, le=65_536)
    lowercase: bool = True
    min_count: int = Field(default=2, ge=1)
    alphabet: int = Field(default=1000, ge=26)
