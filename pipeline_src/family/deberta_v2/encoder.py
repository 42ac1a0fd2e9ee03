"""DeBERTa versions 2 and 3 (He et al. 2021; 2023): relative positions in buckets, projected by the content's layers.

Imported models may have the convolution of v2-xlarge. Models that this project pretrains have none, as in version 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.base.names import shown
from pipeline_src.family.deberta.encoder import (
    Deberta,
    DebertaBlock,
    DebertaConfig,
    DebertaEncoder,
    DecoderQuery,
    DisentangledAttention,
    RelativeTable,
    deberta_names,
)
from pipeline_src.model.adapter import StateDictAdapter, huggingface_classes
from pipeline_src.model.attention import Dropout, PackedBatch, QueryRows
from pipeline_src.model.bert import Architecture, LayerNorm
from pipeline_src.model.flops import Workload

CONVOLUTION = "bert.encoder.layer.0.convolution."
DISCRIMINATOR = "discriminator_predictions."
# Name of the convolution's activation -> function.
ACTIVATIONS = {"tanh": torch.tanh, "gelu": F.gelu}


@dataclass(frozen=True)
class DebertaV2Config(DebertaConfig):
    names: ClassVar[StateDictAdapter] = deberta_names(
        StateDictAdapter(
            model_type="deberta-v2",
            title="DeBERTa-v2",
            paper="He et al. 2023, [DeBERTaV3](https://arxiv.org/abs/2111.09543)",
            classes=huggingface_classes("DebertaV2"),
            written={"share_att_key": True, "norm_rel_ebd": "layer_norm"},
            absent={"share_att_key": False, "norm_rel_ebd": "none", "position_buckets": -1},
            fixed={
                **{"share_att_key": (True,), "norm_rel_ebd": ("layer_norm",)},
                **{"conv_kernel_size": (0, 3), "conv_groups": (1,), "conv_act": tuple(ACTIVATIONS)},
            },
            from_hf=(
                (r"\.attention\.self\.(query|key|value)_proj\.", r".attention.self.\1."),
                (r"^bert\.encoder\.conv\.", CONVOLUTION),
                (r"^mask_predictions\.classifi?er\.", f"{DISCRIMINATOR}dense_prediction."),
                (r"^mask_predictions\.", DISCRIMINATOR),
            ),
            to_hf=(
                (r"\.attention\.self\.(query|key|value)\.", r".attention.self.\1_proj."),
                (f"^{CONVOLUTION}", "bert.encoder.conv."),
                (f"^{DISCRIMINATOR}dense_prediction\\.", "mask_predictions.classifier."),
                (f"^{DISCRIMINATOR}", "mask_predictions."),
            ),
        )
    )
    rtd_adds_cls: ClassVar[bool] = True
    # The default is that of microsoft/DeBERTa, experiments/language_model. A value below 1 gives each distance its own
    # embedding.
    position_buckets: int = 256
    # 0 means no convolution. v2-xlarge has 3.
    conv_kernel_size: int = 0
    # The default is transformers'. v2-xlarge has "gelu".
    conv_act: str = "tanh"

    def __post_init__(self) -> None:
        middle = self.position_buckets // 2
        reach = self.max_distance
        if self.position_buckets > 0 and self.max_position_embeddings - 1 > middle and not 0 < middle < reach - 1:
            raise ValueError(f"max_relative_positions is {reach}, too few for position_buckets: {2 * middle}")

    @classmethod
    def from_hf_config(cls, raw: dict[str, Any]) -> dict[str, Any]:
        heads = raw.get("num_attention_heads")
        size = raw.get("attention_head_size")
        if size is not None and not (type(size) is type(heads) is int and size * heads == raw.get("hidden_size")):
            raise ValueError(f"attention_head_size is {shown(size)}, not hidden_size / num_attention_heads")
        return super().from_hf_config(raw)

    @property
    def relative_table(self) -> RelativeTable:
        buckets = self.position_buckets
        return RelativeTable(buckets, self.max_distance) if buckets > 0 else super().relative_table

    def training_flops(self, work: Workload) -> int:
        return super().training_flops(work) + 6 * self.conv_kernel_size * self.hidden_size**2 * work.tokens


class SharedAttention(DisentangledAttention):
    # The layers that project content to queries and keys also project the relative positions.

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def project_query(self, hidden: Tensor) -> Tensor:
        return self.query(hidden)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        key = self.key(hidden).view(len(hidden), self.heads, -1)
        value = self.value(hidden).view(len(hidden), self.heads, -1)
        return key, value

    def project_positions(self, table: Tensor) -> tuple[Tensor, Tensor]:
        return self.query(table), self.key(table)


class DebertaV2Block(DebertaBlock):
    Attention = SharedAttention


class Convolution(nn.Module):
    """Convolution over each sequence, with residual connection and LayerNorm (``ConvLayer`` in DeBERTa's bert.py)."""

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__()
        self.conv = nn.Conv1d(config.hidden_size, config.hidden_size, config.conv_kernel_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.activation = ACTIVATIONS[config.conv_act]

    def forward(self, hidden: Tensor, residual: Tensor, layout: PackedBatch, query_rows: QueryRows | None) -> Tensor:
        # hidden is [T, H]. residual and the result are [T, H], or [R, H] for the query rows.
        index = torch.arange(len(hidden), device=hidden.device) if query_rows is None else query_rows.index
        position = layout.position[index]
        # The kernel covers this many neighbors on each side. Neighbors in another sequence count as zeros.
        reach = self.conv.weight.shape[2] // 2
        neighbors = []
        for offset in range(-reach, reach + 1):
            neighbor = (index + offset).clamp(0, len(hidden) - 1)
            # The token before position 0 may be, for example, position 37 of the previous sequence.
            is_same_sequence = layout.position[neighbor] == position + offset
            states = hidden.index_select(0, neighbor)
            neighbors.append(states * is_same_sequence[:, None])
        # The weight as a matrix, [H, kernel size x H].
        weight = self.conv.weight.transpose(1, 2).flatten(1)
        mixed = F.linear(torch.cat(neighbors, 1), weight, self.conv.bias)
        update = self.activation(self.dropout(mixed))
        return self.LayerNorm(residual + update)


class ConvolvedBlock(DebertaV2Block):
    # The first block of v2-xlarge adds a convolution of its input to its output.

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        self.convolution = Convolution(config)

    def forward(
        self,
        hidden: Tensor,
        layout: PackedBatch,
        query_rows: QueryRows | None = None,
        decoder_query: DecoderQuery | None = None,
    ) -> Tensor:
        output = super().forward(hidden, layout, query_rows, decoder_query)
        return self.convolution(hidden, output, layout, query_rows)


class DebertaV2Encoder(DebertaEncoder):
    Block = DebertaV2Block

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        if config.conv_kernel_size:
            self.layer[0] = ConvolvedBlock(config)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def table(self) -> Tensor:
        return self.LayerNorm(super().table())


class DebertaV2(Deberta):
    Encoder = DebertaV2Encoder


ARCHITECTURE = Architecture(config=DebertaV2Config, encoder=DebertaV2)
