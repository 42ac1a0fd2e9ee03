from __future__ import annotations

import operator
from typing import Literal

from pydantic import Field, field_validator, model_validator

from pipeline_src.base.registry import architecture_spec, member_names
from pipeline_src.study.schema import Section


class ModelParams(Section):
    """The encoder's architecture and size.

    By default num_attention_heads = hidden_size / 64 and intermediate_size = 4 x hidden_size (paper, section 3).

    Attributes:
        architecture: ``bert``, or the name of an architecture in ``pipeline_src/family``.
        num_hidden_layers: number of Transformer blocks (L).
        hidden_size: width of the hidden states (H).
        embedding_size: width of the embeddings (E), for architectures with factorized embeddings. Null: hidden_size.
        num_attention_heads: number of attention heads (A). Null: hidden_size / 64.
        intermediate_size: inner width of the feed-forward layer. Null: 4 x hidden_size.
        max_position_embeddings: number of learned positions, which is the maximum length of an input; 512 in the paper.
        position_init: initialization of the position embeddings, which are trained in all cases.
            ``random``: like all other weights (paper).
            ``sinusoidal``: as in Vaswani et al. 2017, section 3.5.
            ``neighbor_heads``: sinusoidal, and two heads of the first block start by attending to the previous and the
            next token. If embeddings are narrower than hidden states, their projection starts as the identity.
        hidden_dropout_prob: dropout rate of all layers; 0.1 in the paper (appendix A.2).
        attention_probs_dropout_prob: dropout rate of the attention probabilities. Null: hidden_dropout_prob.
        hidden_act: ``gelu`` (exact) or ``gelu_tanh`` (approximation, as in google-research/bert).
        global_rope_theta: RoPE theta of ModernBERT's global attention layers, until ``pretrain.later_phases`` changes
            it. 10,000 in the first phase of the ModernBERT paper. The key may be left out: 160,000, as in its last
            phase.
    """

    architecture: str = "bert"
    num_hidden_layers: int = Field(ge=1, le=200)
    hidden_size: int = Field(ge=8, le=16_384)
    embedding_size: int | None = Field(default=None, ge=8, le=16_384)
    num_attention_heads: int | None = Field(default=None, ge=1, le=16_384)
    intermediate_size: int | None = Field(default=None, ge=1, le=262_144)
    max_position_embeddings: int = Field(default=512, ge=8, le=8192)
    position_init: Literal["random", "sinusoidal", "neighbor_heads"] = "random"
    hidden_dropout_prob: float = Field(default=0.1, ge=0, lt=1)
    attention_probs_dropout_prob: float | None = Field(default=None, ge=0, lt=1)
    hidden_act: Literal["gelu", "gelu_tanh"] = "gelu"
    global_rope_theta: float | None = Field(default=None, gt=0, le=1e9, exclude_if=operator.not_)

    @property
    def has_dropout(self) -> bool:
        return bool(self.hidden_dropout_prob or self.attention_probs_dropout_prob)

    @field_validator("architecture")
    @classmethod
    def _known_architecture(cls, architecture: str) -> str:
        if architecture not in member_names("models"):
            names = ", ".join(member_names("models"))
            raise ValueError(f"unknown architecture {architecture!r}; use one of {names}")
        return architecture

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> ModelParams:
        heads = self.num_attention_heads or max(1, self.hidden_size // 64)
        if self.hidden_size % heads:
            raise ValueError(f"hidden_size ({self.hidden_size}) must be a multiple of num_attention_heads ({heads})")
        head_width = self.hidden_size // heads
        part = architecture_spec(self.architecture).even
        width = head_width if part == "head" else self.hidden_size
        if part is not None and width % 2:
            raise ValueError(f"architecture: {self.architecture} needs an even {part} width, not {width}")
        if self.position_init == "neighbor_heads" and head_width % 2:
            raise ValueError(f"position_init: neighbor_heads needs an even head width, not {head_width}")
        return self
