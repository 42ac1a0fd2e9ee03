"""params.yaml, block ``model``: what the encoder is, and its size."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from pipeline_src.common.members import member_names, stated
from pipeline_src.params.base import Block


class ModelParams(Block):
    """What the encoder is, and its size.

    By default heads = hidden / 64 and feed-forward = 4 x hidden (paper, section 3).

    Attributes:
        architecture: what the encoder is, a file in ``pipeline_src/architectures``.
        layers: Transformer blocks (L).
        hidden: width (H).
        embedding: width of the embeddings (E), where the architecture lets it be another; null means hidden.
        heads: attention heads (A); null means hidden / 64.
        feed_forward: inner width of the feed-forward layer; null means 4 x hidden.
        positions: learned positions, the longest input; 512 in the paper.
        positions_start: what is known of positions at the start: ``learned`` nothing, their vectors are random numbers
            as all weights (the paper's); ``sinusoid`` they are sines and cosines (Vaswani et al. 2017, section 3.5);
            ``neighbours`` those, and two heads of the first block look at the tokens before and after; a projection
            of narrow embeddings begins by passing them on. All are trained on.
        dropout: on every layer; 0.1 in the paper (appendix A.2).
        attention_dropout: on the attention weights; null means the same.
        activation: ``gelu`` (exact) or ``gelu_tanh`` (as in google-research/bert).
    """

    architecture: str = "bert"
    layers: int = Field(ge=1, le=200)
    hidden: int = Field(ge=8, le=16_384)
    embedding: int | None = Field(default=None, ge=8, le=16_384)
    heads: int | None = Field(default=None, ge=1, le=16_384)
    feed_forward: int | None = Field(default=None, ge=1, le=262_144)
    positions: int = Field(default=512, ge=8, le=8192)
    positions_start: Literal["learned", "sinusoid", "neighbours"] = "learned"
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    activation: Literal["gelu", "gelu_tanh"] = "gelu"

    @field_validator("architecture")
    @classmethod
    def _known_architecture(cls, architecture: str) -> str:
        if architecture not in member_names("architectures"):
            raise ValueError(
                f"no architecture is called {architecture!r}; there are {', '.join(member_names('architectures'))}"
            )
        return architecture

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> ModelParams:
        heads = self.heads or max(1, self.hidden // 64)
        if self.hidden % heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({heads})")
        even = stated("architectures", self.architecture, "EVEN", None)
        for what, width in (("hidden", self.hidden), ("head", self.hidden // heads)):
            if even == what and width % 2:
                raise ValueError(f"architecture: {self.architecture} takes an even width of its {what}, not {width}")
        if self.positions_start == "neighbours" and self.hidden // heads % 2:
            raise ValueError(f"heads that begin at neighbours have an even width, not {self.hidden // heads}")
        return self
