"""DeBERTa, versions 2 and 3 (He et al. 2021; 2023): buckets of relative positions, projected as contents are.

The convolution of v2's xlarge is left out; version 3 has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
from pipeline_src.models.layer_norm import LayerNorm
from pipeline_src.models.names import Names

REFUSED_OBJECTIVES = {
    "left_to_right": "it reads both directions, and transformers has no class for one",
    "layers": "its scores are of contents and of distances, and a student's of contents alone would be told the sum",
}
REFUSED_PAIRS = "its mask decoder reads another last layer than the label of a pair would"


@dataclass(frozen=True)
class DebertaV2Config(DebertaConfig):
    """Distances fall into ``position_buckets`` to each side."""

    names: ClassVar[Names] = deberta_names(
        Names(
            model_type="deberta-v2",
            title="DeBERTa-v2",
            paper="He et al. 2023, [DeBERTaV3](https://arxiv.org/abs/2111.09543)",
            classes={
                "pretraining": "DebertaV2ForMaskedLM",
                "masked_words": "DebertaV2ForMaskedLM",
                "next_sentence": "DebertaV2Model",
                "encoder": "DebertaV2Model",
                "sequence": "DebertaV2ForSequenceClassification",
                "choice": "DebertaV2ForMultipleChoice",
                "span": "DebertaV2ForQuestionAnswering",
                "token": "DebertaV2ForTokenClassification",
            },
            output_layers={},
            written={"share_att_key": True, "norm_rel_ebd": "layer_norm"},
            fixed={"conv_kernel_size": (0,)},
            loaded=((r"\.attention\.self\.(query|key|value)_proj\.", r".attention.self.\1."),),
            saved=((r"\.attention\.self\.(query|key|value)\.", r".attention.self.\1_proj."),),
        )
    )
    position_buckets: int = 256  # microsoft/DeBERTa, experiments/language_model

    @property
    def half_table(self) -> int:
        """Half of the rows of relative positions."""
        return self.position_buckets

    @property
    def bucket_reach(self) -> int | None:
        """The distance at which the last bucket ends."""
        return self.max_position_embeddings


class SharedAttention(DisentangledAttention):
    """Positions go through the layers that make queries and keys of contents."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.query, self.key, self.value = (nn.Linear(config.hidden_size, config.hidden_size) for _ in range(3))

    def ask(self, hidden: Tensor) -> Tensor:
        """[R, H] -> queries [R, H]."""
        return self.query(hidden)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[T, H] -> keys and values, [T, heads, head size] each."""
        key, value = (layer(hidden).view(len(hidden), self.heads, -1) for layer in (self.key, self.value))
        return key, value

    def project(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of relative positions [rows, H] -> as queries and as keys, [rows, H] each."""
        return self.query(table), self.key(table)


class DebertaV2Block(DebertaBlock):
    """Version 2's."""

    Attention = SharedAttention


class DebertaV2Encoder(DebertaEncoder):
    """The table goes through a LayerNorm."""

    Block = DebertaV2Block

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def table(self) -> Tensor:
        """Relative positions as the blocks read them, [rows, H]."""
        return self.LayerNorm(super().table())


class DebertaV2(DebertaModel):
    """Version 2's encoder."""

    Encoder = DebertaV2Encoder


ARCHITECTURE = Architecture(config=DebertaV2Config, encoder=DebertaV2)
