"""DeBERTa (He et al. 2021), version 1: a row for each relative position, projections of its own for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.deberta import (
    DebertaBlock,
    DebertaConfig,
    DebertaEncoder,
    DebertaModel,
    DisentangledAttention,
    deberta_names,
)
from pipeline_src.models.names import Names

REFUSED_OBJECTIVES = {
    "left_to_right": "it reads both directions, and transformers has no class for one",
    "layers": "its scores are of contents and of distances, and a student's of contents alone would be told the sum",
}
REFUSED_PAIRS = "its mask decoder reads another last layer than the label of a pair would"


@dataclass(frozen=True)
class DebertaV1Config(DebertaConfig):
    """Version 1's."""

    names: ClassVar[Names] = deberta_names(
        Names(
            model_type="deberta",
            title="DeBERTa",
            paper="He et al. 2021, [DeBERTa](https://arxiv.org/abs/2006.03654)",
            classes={
                "pretraining": "DebertaForMaskedLM",
                "masked_words": "DebertaForMaskedLM",
                "next_sentence": "DebertaModel",
                "encoder": "DebertaModel",
                "sequence": "DebertaForSequenceClassification",
                "choice": "DebertaModel",  # transformers has none for choices
                "span": "DebertaForQuestionAnswering",
                "token": "DebertaForTokenClassification",
            },
            output_layers={},
        )
    )


class PackedAttention(DisentangledAttention):
    """Query, key and value of each head side by side in one matrix; keys have no bias."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.in_proj = nn.Linear(width, 3 * width, bias=False)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.pos_proj = nn.Linear(width, width, bias=False)
        self.pos_q_proj = nn.Linear(width, width)

    def adjust_initial_weights(self) -> None:
        """Biases that no layer has start at 0 too."""
        self.q_bias.zero_()
        self.v_bias.zero_()

    def ask(self, hidden: Tensor) -> Tensor:
        """[R, H] -> queries [R, H]."""
        return F.linear(hidden, self._weights[:, 0].reshape(len(self.q_bias), -1), self.q_bias)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[T, H] -> keys and values, [T, heads, head size] each."""
        key, value = F.linear(hidden, self._weights[:, 1:].flatten(0, 2)).view(
            len(hidden), self.heads, 2, -1
        ).unbind(2)  # fmt: skip
        return key, value + self.v_bias.view(self.heads, -1)

    def project(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of relative positions [rows, H] -> as queries and as keys, [rows, H] each."""
        return self.pos_q_proj(table), self.pos_proj(table)

    @property
    def _weights(self) -> Tensor:
        """[heads, 3, head size, H]."""
        return self.in_proj.weight.view(self.heads, 3, -1, self.in_proj.in_features)


class DebertaV1Block(DebertaBlock):
    """Version 1's."""

    Attention = PackedAttention


class DebertaV1Encoder(DebertaEncoder):
    """Version 1's."""

    Block = DebertaV1Block


class Deberta(DebertaModel):
    """Version 1's encoder."""

    Encoder = DebertaV1Encoder


ARCHITECTURE = Architecture(config=DebertaV1Config, encoder=Deberta)
