"""params.yaml, block ``word_vectors``: vectors without context, learnt of the study's tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline_src.params.base import Block


class WordVectorsParams(Block):
    """Word2Vec (Mikolov et al. 2013), as `gensim` has it.

    Attributes:
        method: ``cbow`` predicts a token from the mean of those around it, ``skip_gram`` those around from a token.
        width: of a vector; 300 in GLUE's baselines (Wang et al. 2019).
        window: tokens to either side at most; gensim's 5.
        negative: random tokens that each is told from; gensim's 5.
        sample: share of the text from which on a token is left out at random; gensim's 0.001.
        epochs: passes over the text; gensim's 5.
    """

    method: Literal["cbow", "skip_gram"] = "cbow"
    width: int = Field(default=300, ge=2, le=16_384, multiple_of=2)
    window: int = Field(default=5, ge=1, le=1000)
    negative: int = Field(default=5, ge=1, le=1000)
    sample: float = Field(default=0.001, ge=0, le=1)
    epochs: int = Field(default=5, ge=1, le=1000)
