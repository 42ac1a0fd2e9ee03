"""What a kind of vocabulary spells in a way of its own: special tokens, and pieces inside words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError


@dataclass(frozen=True)
class Kind:
    """A kind of vocabulary; each has a file of its own, and a row in ``load.KINDS``.

    Attributes:
        pad, unk, mask: the special tokens beside the marks of :mod:`pipeline_src.tokenizer.frame`, by their roles.
        continues_word: whether a piece belongs to the word before it.
        spelt: a piece as it stands in its word.
        by_chunk: whether the ids of a text are those of its chunks between spaces, so that each is looked up once.
    """

    pad: str
    unk: str
    mask: str
    continues_word: Callable[[str], bool]
    spelt: Callable[[str], str]
    by_chunk: bool = False

    def id_of(self, tokenizer: Tokenizer, token: str) -> int:
        """The id of a special token.

        Raises:
            PipelineError: the vocabulary lacks it.
        """
        number = tokenizer.token_to_id(token)
        if number is None:
            raise PipelineError(
                "the vocabulary lacks a special token", token,
                remedy="use the tokenizer that the stage `train_tokenizer` writes",
            )  # fmt: skip
        return number

    def all_in(self, tokenizer: Tokenizer) -> bool:
        """Whether a vocabulary has the special tokens."""
        return None not in map(tokenizer.token_to_id, (self.pad, self.unk, self.mask))

    def inner_pieces(self, tokenizer: Tokenizer) -> np.ndarray:
        """Whether each id continues a word, bool [entries]."""
        inner = np.zeros(tokenizer.get_vocab_size(), bool)
        inner[[number for piece, number in tokenizer.get_vocab().items() if self.continues_word(piece)]] = True
        return inner
