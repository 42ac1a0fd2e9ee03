"""Embeddings of a width of their own, and the projection from it to the encoder's: what ALBERT and ELECTRA share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from pipeline_src.models.bert import Bert, BertConfig, Embeddings, Encoder
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.params.model import ModelParams


@dataclass(frozen=True)
class NarrowConfig(BertConfig):
    """Its embeddings are ``embedding_size`` wide; 128 in ALBERT (section 3.1) and ELECTRA-small (appendix A)."""

    embedding_size: int = 128

    @classmethod
    def from_params(cls, params: ModelParams, entries: int, causal: bool = False, **run: Any) -> Self:
        """As :meth:`BertConfig.from_params`."""
        config = super().from_params(params, entries, causal, **run)
        return replace(config, embedding_size=params.embedding or params.hidden)

    @property
    def embedding_width(self) -> int:
        """Width of a token's embedding, and of what the head of masked words multiplies by them."""
        return self.embedding_size


class NarrowEmbeddings(Embeddings):
    """BERT's, of their own width."""

    def __init__(self, config: NarrowConfig) -> None:
        super().__init__(replace(config, hidden_size=config.embedding_size))


class NarrowEncoder(Encoder):
    """BERT's, behind the projection."""

    Projection: type[nn.Module] = nn.Linear

    def __init__(self, config: NarrowConfig) -> None:
        super().__init__(config)
        self.embeddings_project = self.Projection(config.embedding_size, config.hidden_size)

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, E] -> [T, H], or [R, H] for the R rows of which what the last block makes is read."""
        return super().forward(self.embeddings_project(hidden), layout, rows)

    def look_beside(self, offsets: Sequence[int], waves: int) -> None:
        """Behind a projection, which begins by passing its input on: no head would find the positions otherwise."""
        if isinstance(self.embeddings_project, nn.Linear):
            weight = self.embeddings_project.weight
            weight += torch.eye(*weight.shape)
        super().look_beside(offsets, waves)

    def states(self, hidden: Tensor, layout: PackedLayout) -> list[Tensor]:
        """[T, E] -> what is projected and what each block makes of it, as many [T, H] as blocks and one."""
        return super().states(self.embeddings_project(hidden), layout)


class NarrowBert(Bert):
    """An encoder over such embeddings."""

    Embeddings = NarrowEmbeddings
    Encoder = NarrowEncoder
