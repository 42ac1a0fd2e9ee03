"""params.yaml, block ``vocabulary``: what its kind is, how large and how spelt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline_src.params.base import Block

# Fewest entries of each kind: five special tokens, and the 256 bytes of byte-level pieces.
FEWEST = {"wordpiece": 6, "byte_bpe": 262, "unigram": 6}


class VocabularyParams(Block):
    """Kind, size and spelling of the vocabulary.

    Attributes:
        kind: ``wordpiece`` (BERT, ELECTRA, DistilBERT), ``byte_bpe`` (RoBERTa; DeBERTa v1) or ``unigram`` (ALBERT;
            DeBERTa v3).
        entries: how many in all, special tokens and single characters included; 30,000 in the paper (section 3),
            30,522 in the released uncased vocabulary. Ids are stored in 16 bits up to 65,536 entries, in 32 above.
        lowercase: lower-case text and strip accents (the uncased models).
        min_count: words rarer than this (of byte-level pieces: pairs of pieces) are not learnt from.
        alphabet: most single characters kept; rarer ones become [UNK]. Of WordPiece alone.
        unused: entries reserved for later use, [unused0] to [unusedN-1], placed as in the released vocabularies (994
            in the uncased one): up to 99 of them right after [PAD], the rest after [MASK]. Of WordPiece alone.
        longest_word: characters; longer words become [UNK]. 100 in transformers, 200 in google-research/bert. The other
            kinds write them in pieces, and unigram does not learn from them.
    """

    kind: Literal["wordpiece", "byte_bpe", "unigram"] = "wordpiece"
    entries: int = Field(ge=100, le=1_000_000)
    lowercase: bool = True
    min_count: int = Field(default=2, ge=1, le=1_000_000_000)
    alphabet: int = Field(default=1000, ge=26, le=1_000_000)
    unused: int = Field(default=0, ge=0, le=60_000)
    longest_word: int = Field(default=100, ge=1, le=10_000)

    @model_validator(mode="after")
    def _reserved_entries_fit(self) -> VocabularyParams:
        if self.entries < FEWEST[self.kind]:
            raise ValueError(f"entries ({self.entries}) must be at least {FEWEST[self.kind]} for kind: {self.kind}")
        if self.unused and self.kind != "wordpiece":
            raise ValueError(f"unused ({self.unused}) is of kind: wordpiece alone; set it to 0")
        if self.unused + 5 >= self.entries:
            raise ValueError(f"unused ({self.unused}) and the five special tokens leave none of {self.entries} entries")
        return self
