"""ALBERT (Lan et al. 2020): narrow embeddings, and one block that runs as often as there are layers.

Its sentence order is ``examples.pairs``, its n-gram masks and LAMB are no part of the encoder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import Bert, BertConfig, Embeddings, Encoder
from pipeline_src.models.flops import Workload, training_flops
from pipeline_src.models.names import BERT, Names
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.params.model import ModelParams

OWN_EMBEDDING_WIDTH = True
REFUSED_OBJECTIVES = {"left_to_right": "it reads both directions, and transformers has no class for one"}
THEIRS = "albert.encoder.albert_layer_groups.0.albert_layers.0."  # the one block
OURS = "bert.encoder.layer.0."
PARTS = {  # of the block, ours -> theirs
    "attention.self.": "attention.",
    "attention.output.": "attention.",
    "intermediate.dense.": "ffn.",
    "output.dense.": "ffn_output.",
    "output.LayerNorm.": "full_layer_layer_norm.",
}

ALBERT = Names(
    model_type="albert",
    title="ALBERT",
    paper="Lan et al. 2020, [ALBERT: A Lite BERT](https://arxiv.org/abs/1909.11942)",
    classes={
        "pretraining": "AlbertForPreTraining",
        "masked_words": "AlbertForMaskedLM",
        "next_sentence": "AlbertModel",
        "encoder": "AlbertModel",
        "sequence": "AlbertForSequenceClassification",
        "choice": "AlbertForMultipleChoice",
        "span": "AlbertForQuestionAnswering",
        "token": "AlbertForTokenClassification",
    },
    output_layers=BERT.output_layers,
    fixed={"num_hidden_groups": (1,), "inner_group_num": (1,)},
    loaded=(
        (r"^(embeddings|encoder|pooler)\.", r"albert.\1."),
        (f"^{THEIRS}attention\\.(query|key|value)\\.", rf"{OURS}attention.self.\1."),
        (f"^{THEIRS}attention\\.", f"{OURS}attention.output."),
        *((f"^{THEIRS}{re.escape(theirs)}", f"{OURS}{ours}") for ours, theirs in PARTS.items()),
        (r"^albert\.encoder\.embedding_hidden_mapping_in\.", "bert.encoder.embeddings_project."),
        (r"^albert\.pooler\.", "bert.pooler.dense."),
        (r"^albert\.", "bert."),
        (r"^predictions\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
        (r"^predictions\.bias$", "cls.predictions.decoder.bias"),
        (r"^predictions\.decoder\.", "cls.predictions.decoder."),
        (r"^sop_classifier\.classifier\.", "cls.seq_relationship."),
    ),
    saved=(
        *((f"^{OURS}{ours}", f"{THEIRS}{theirs}") for ours, theirs in PARTS.items()),
        (r"^bert\.encoder\.embeddings_project\.", "albert.encoder.embedding_hidden_mapping_in."),
        (r"^bert\.pooler\.dense\.", "albert.pooler."),
        (r"^bert\.", "albert."),
        (r"^cls\.predictions\.transform\.", "predictions."),
        (r"^cls\.predictions\.decoder\.bias$", "predictions.bias"),
        (r"^cls\.seq_relationship\.", "sop_classifier.classifier."),
    ),
)


@dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """Its embeddings are ``embedding_size`` wide; 128 in the paper (section 3.1)."""

    names: ClassVar[Names] = ALBERT
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

    def training_flops(self, work: Workload) -> int:
        """As :func:`pipeline_src.models.flops.training_flops`; embeddings of any width are projected."""
        as_wide = self.embedding_size == self.hidden_size
        return training_flops(self, work) + (6 * self.hidden_size**2 * work.tokens if as_wide else 0)


class AlbertEmbeddings(Embeddings):
    """BERT's, of their own width."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(replace(config, hidden_size=config.embedding_size))


class AlbertEncoder(Encoder):
    """One block many times, behind a projection; its gradient is the sum of what each run of it gives."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(replace(config, num_hidden_layers=1))
        self.layers = config.num_hidden_layers
        self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, E] -> [T, H], or [R, H] for the R rows of which what the last block makes is read."""
        return super().forward(self.embeddings_project(hidden), layout, rows)

    def states(self, hidden: Tensor, layout: PackedLayout) -> list[Tensor]:
        """[T, E] -> what is projected and what each run of the block makes of it."""
        return super().states(self.embeddings_project(hidden), layout)

    def blocks(self) -> Sequence[nn.Module]:
        """The one block, as often as there are layers."""
        return [self.layer[0]] * self.layers


class Albert(Bert):
    """ALBERT's encoder."""

    Embeddings = AlbertEmbeddings
    Encoder = AlbertEncoder


ARCHITECTURE = Architecture(config=AlbertConfig, encoder=Albert)
