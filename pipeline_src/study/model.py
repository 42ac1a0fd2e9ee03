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
        architecture: ``bert``, or a name in ``pipeline_src/family``.
        num_hidden_layers: Transformer blocks (L).
        hidden_size: width (H).
        embedding_size: width of the embeddings (E), if the architecture factorises them; null means hidden_size.
        num_attention_heads: attention heads (A); null means hidden_size / 64.
        intermediate_size: inner width of the feed-forward layer; null means 4 x hidden_size.
        max_position_embeddings: number of learned positions, so the longest input; 512 in the paper.
        position_init: how position embeddings, which are trained, are initialised: ``random`` like all weights (paper);
            ``sinusoidal`` (Vaswani et al. 2017, section 3.5); ``neighbor_heads``: sinusoidal, with two heads of the
            first block that attend to the token before and after; narrow embeddings are projected by the identity.
        hidden_dropout_prob: dropout of every layer; 0.1 in the paper (appendix A.2).
        attention_probs_dropout_prob: dropout of the attention probabilities; null means hidden_dropout_prob.
        global_rope_theta: base of the rotary frequencies of ModernBERT's global blocks, until
            ``pretrain.later_phases`` changes it; 10,000 in its paper's first phase. Optional: 160,000, as in its last.
        hidden_act: ``gelu`` (exact) or ``gelu_tanh`` (as in google-research/bert).
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
            raise ValueError(f"no architecture is called {architecture!r}; there are {names}")
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
            raise ValueError(f"architecture: {self.architecture} takes an even width of its {part}, not {width}")
        if self.position_init == "neighbor_heads" and head_width % 2:
            raise ValueError(f"heads that begin at neighbours have an even width, not {head_width}")
        return self
