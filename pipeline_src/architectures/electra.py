"""ELECTRA's encoder (Clark et al. 2020): BERT without a pooler, over embeddings that may be narrower than it.

How it learns is ``objectives/replaced.py``; its generator is an encoder of this kind too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import INITIAL_STD, Bert, BertConfig, Embeddings, Encoder, Pooler
from pipeline_src.models.names import BERT, Names
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.params.model import ModelParams

OWN_EMBEDDING_WIDTH = True  # so that a narrower generator can share them

ELECTRA = Names(
    model_type="electra",
    title="ELECTRA",
    paper=(
        "Clark et al. 2020, "
        "[ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators](https://arxiv.org/abs/2003.10555)"
    ),
    classes={
        "pretraining": "ElectraForMaskedLM",
        "masked_words": "ElectraForMaskedLM",
        "replaced": "ElectraForPreTraining",
        "next_sentence": "ElectraModel",
        "left_to_right": "ElectraForCausalLM",
        "encoder": "ElectraModel",
        "sequence": "ElectraForSequenceClassification",
        "choice": "ElectraForMultipleChoice",
        "span": "ElectraForQuestionAnswering",
        "token": "ElectraForTokenClassification",
    },
    output_layers=BERT.output_layers,
    fixed=BERT.fixed,
    loaded=(
        (r"^electra\.", "bert."),
        (r"^generator_predictions\.", "cls.predictions.transform."),
        (r"^generator_lm_head\.", "cls.predictions.decoder."),
        (r"^classifier\.dense\.", "bert.pooler.dense."),
        (r"^sequence_summary\.summary\.", "bert.pooler.dense."),
        (r"^classifier\.out_proj\.", "classifier."),
        *BERT.loaded,
        (r"^(bert\.)?embeddings_project\.", "bert.encoder.embeddings_project."),
    ),
    saved=(
        (r"^cls\.predictions\.transform\.", "generator_predictions."),
        (r"^cls\.predictions\.decoder\.bias$", "generator_lm_head.bias"),
        (r"^bert\.encoder\.embeddings_project\.", "bert.embeddings_project."),
        (r"^bert\.pooler\.dense\.", "sequence_summary.summary."),
        (r"^bert\.", "electra."),
    ),
    saved_tasks={
        "sequence": ((r"^classifier\.", "classifier.out_proj."), (r"^bert\.pooler\.dense\.", "classifier.dense."))
    },
)


@dataclass(frozen=True)
class ElectraConfig(BertConfig):
    """Its embeddings are ``embedding_size`` wide, and projected to ``hidden_size`` where that is another width."""

    names: ClassVar[Names] = ELECTRA
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


class Projection(nn.Linear):
    """From the embeddings' width to the encoder's; its weights start of Glorot's deviation (TensorFlow's default)."""

    def adjust_initial_weights(self) -> None:
        """After weights are drawn."""
        self.weight.mul_(math.sqrt(2 / (self.in_features + self.out_features)) / INITIAL_STD)


class ElectraEmbeddings(Embeddings):
    """BERT's, of their own width."""

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__(replace(config, hidden_size=config.embedding_size))


class ElectraEncoder(Encoder):
    """BERT's, behind the projection."""

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__(config)
        narrow = config.embedding_size != config.hidden_size
        self.embeddings_project = Projection(config.embedding_size, config.hidden_size) if narrow else nn.Identity()

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, E] -> [T, H], or [R, H] for the R rows of which what the last block makes is read."""
        return super().forward(self.embeddings_project(hidden), layout, rows)

    def states(self, hidden: Tensor, layout: PackedLayout) -> list[Tensor]:
        """[T, E] -> what is projected and what each block makes of it, as many [T, H] as blocks and one."""
        return super().states(self.embeddings_project(hidden), layout)


class ElectraPooler(Pooler):
    """Nothing in pretraining trains it; transformers' heads of tasks have it, the original has none."""

    def forward(self, token: Tensor) -> Tensor:
        """[B, H] -> [B, H]."""
        return F.gelu(self.dense(token))


class Electra(Bert):
    """ELECTRA's encoder."""

    Embeddings = ElectraEmbeddings
    Encoder = ElectraEncoder
    Pooler = ElectraPooler


ARCHITECTURE = Architecture(config=ElectraConfig, encoder=Electra)
