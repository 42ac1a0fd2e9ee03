"""DeBERTa, versions 2 and 3 (He et al. 2021; 2023): buckets of relative positions, projected as contents are.

A model that is imported may have the convolution of v2's xlarge; one that is pretrained here has none, as version 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.deberta import (
    Asked,
    DebertaBlock,
    DebertaConfig,
    DebertaEncoder,
    DebertaModel,
    DisentangledAttention,
    deberta_names,
)
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.flops import Workload
from pipeline_src.models.layer_norm import LayerNorm
from pipeline_src.models.names import Names
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse

REFUSED_OBJECTIVES = {
    "left_to_right": "it reads both directions, and transformers has no class for one",
    "layers": "its scores are of contents and of distances, and a student's of contents alone would be told the sum",
}
REFUSED_PAIRS = "its mask decoder reads another last layer than the label of a pair would"
CONVOLUTION = "bert.encoder.layer.0.convolution."  # it ends the first block
JUDGE = "discriminator_predictions."
ACTIVATIONS = {"tanh": torch.tanh, "gelu": F.gelu}  # of the convolution


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
            fixed={"conv_kernel_size": (0, 3), "conv_groups": (1,), "conv_act": tuple(ACTIVATIONS)},
            loaded=(
                (r"\.attention\.self\.(query|key|value)_proj\.", r".attention.self.\1."),
                (r"^bert\.encoder\.conv\.", CONVOLUTION),
                (r"^mask_predictions\.classifi?er\.", f"{JUDGE}dense_prediction."),
                (r"^mask_predictions\.", JUDGE),
            ),
            saved=(
                (r"\.attention\.self\.(query|key|value)\.", r".attention.self.\1_proj."),
                (f"^{CONVOLUTION}", "bert.encoder.conv."),
                (f"^{JUDGE}dense_prediction\\.", "mask_predictions.classifier."),
                (f"^{JUDGE}", "mask_predictions."),
            ),
        )
    )
    judged_with_first: ClassVar[bool] = True
    position_buckets: int = 256  # microsoft/DeBERTa, experiments/language_model
    conv_kernel_size: int = 0  # 3 in v2's xlarge
    conv_act: str = "tanh"  # transformers' default; gelu in v2's xlarge

    @property
    def half_table(self) -> int:
        """Half of the rows of relative positions."""
        return self.position_buckets

    @property
    def bucket_reach(self) -> int | None:
        """The distance at which the last bucket ends."""
        return self.max_position_embeddings

    def training_flops(self, work: Workload) -> int:
        """As :meth:`DebertaConfig.training_flops`, and 6 H^2 a token for each place of the convolution."""
        return super().training_flops(work) + 6 * self.conv_kernel_size * self.hidden_size**2 * work.tokens


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


class Convolution(nn.Module):
    """Of neighbouring vectors of a sequence, added to others and normalised (DeBERTa's bert.py, ``ConvLayer``)."""

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__()
        self.conv = nn.Conv1d(config.hidden_size, config.hidden_size, config.conv_kernel_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.activation = ACTIVATIONS[config.conv_act]

    def forward(self, hidden: Tensor, residual: Tensor, layout: PackedLayout, rows: RowsInUse | None) -> Tensor:
        """[T, H], and [T, H] or [R, H] of the rows in use -> as many."""
        taps = self.conv.weight.shape[2]
        places = torch.arange(len(hidden), device=hidden.device) if rows is None else rows.index
        seen = []
        for offset in range(-(taps // 2), taps // 2 + 1):
            near = (places + offset).clamp(0, len(hidden) - 1)
            same = layout.position[near] == layout.position[places] + offset  # else of another sequence, or of none
            seen.append(hidden.index_select(0, near) * same[:, None])
        weight = self.conv.weight.transpose(1, 2).flatten(1)  # [H, taps x H]
        mixed = F.linear(torch.cat(seen, 1), weight, self.conv.bias)
        return self.LayerNorm(residual + self.activation(self.dropout(mixed)))


class ConvolvedBlock(DebertaV2Block):
    """The first of v2's xlarge: a convolution of what it reads is added to what it makes."""

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        self.convolution = Convolution(config)

    def forward(
        self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None, asked: Asked | None = None
    ) -> Tensor:
        """As :meth:`DebertaBlock.forward`."""
        return self.convolution(hidden, super().forward(hidden, layout, rows, asked), layout, rows)


class DebertaV2Encoder(DebertaEncoder):
    """The table goes through a LayerNorm."""

    Block = DebertaV2Block

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        if config.conv_kernel_size:
            self.layer[0] = ConvolvedBlock(config)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def table(self) -> Tensor:
        """Relative positions as the blocks read them, [rows, H]."""
        return self.LayerNorm(super().table())


class DebertaV2(DebertaModel):
    """Version 2's encoder."""

    Encoder = DebertaV2Encoder


ARCHITECTURE = Architecture(config=DebertaV2Config, encoder=DebertaV2)
