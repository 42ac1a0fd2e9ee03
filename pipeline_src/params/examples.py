"""params.yaml, block ``examples``: which sentence pairs are drawn, and how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline_src.params.base import Block


class Lengths(Block):
    """Tokens per example in each phase of pretraining, marks ([CLS], [SEP]) included."""

    short: int = Field(ge=8, le=4096)
    long: int = Field(ge=8, le=4096)


class ExamplesParams(Block):
    """How sentence pairs are drawn.

    Attributes:
        lengths: longest example of each phase; 128 and 512 in the paper (appendix A.2).
        duplicates: passes over the corpus, each with its own pairs and masks (``dupe_factor`` of google-research/bert).
        short_seq_prob: chance that a document is cut into shorter examples (google-research/bert).
        random_next_prob: chance of the coin that replaces sentence B by text of another document (that swaps A and B,
            where ``pairs`` is ``sentence_order``); 0.5 in the paper (section 3.1).
        pairs: what is learnt of two segments. ``next_sentence``: whether B follows A, or is of another document (the
            paper, section 3.1); ``sentence_order``: whether B follows A, or A follows B (ALBERT, Lan et al. 2020,
            section 3.1); ``none`` gives single segments of whole sentences, for training on words alone ("No NSP" of
            the paper, section 5.1).
    """

    lengths: Lengths
    duplicates: int = Field(default=5, ge=1, le=1000)
    short_seq_prob: float = Field(default=0.1, ge=0, le=1)
    random_next_prob: float = Field(default=0.5, ge=0, le=1)
    pairs: Literal["next_sentence", "sentence_order", "none"] = "next_sentence"
