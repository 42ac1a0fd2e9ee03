"""Factorized embeddings (ALBERT, ELECTRA), which are narrower than the hidden size and projected to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from pipeline_src.model.attention import PackedBatch, QueryRows
from pipeline_src.model.bert import Bert, BertConfig, Embeddings, Encoder
from pipeline_src.study.model import ModelParams


@dataclass(frozen=True)
class FactorizedConfig(BertConfig):
    # The default width is that of ALBERT (section 3.1) and ELECTRA-small (appendix A).

    embedding_size: int = 128

    @classmethod
    def from_params(cls, params: ModelParams, vocab_size: int, causal: bool = False, **run: Any) -> Self:
        config = super().from_params(params, vocab_size, causal, **run)
        return replace(config, embedding_size=params.embedding_size or params.hidden_size)

    @property
    def embedding_width(self) -> int:
        return self.embedding_size


class FactorizedEmbeddings(Embeddings):
    def __init__(self, config: FactorizedConfig) -> None:
        super().__init__(replace(config, hidden_size=config.embedding_size))


class FactorizedEncoder(Encoder):
    Projection: type[nn.Module] = nn.Linear

    def __init__(self, config: FactorizedConfig) -> None:
        super().__init__(config)
        self.embeddings_project = self.Projection(config.embedding_size, config.hidden_size)

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        return super().forward(self.embeddings_project(hidden), layout, query_rows)

    def init_neighbor_heads(self, offsets: Sequence[int], waves: int) -> None:
        # The projection starts near the identity, so that the heads can read the sinusoidal positions.
        if isinstance(self.embeddings_project, nn.Linear):
            weight = self.embeddings_project.weight
            weight += torch.eye(*weight.shape)
        super().init_neighbor_heads(offsets, waves)

    def hidden_states(self, hidden: Tensor, layout: PackedBatch) -> list[Tensor]:
        return super().hidden_states(self.embeddings_project(hidden), layout)


class FactorizedBert(Bert):
    Embeddings = FactorizedEmbeddings
    Encoder: type[nn.Module] = FactorizedEncoder
