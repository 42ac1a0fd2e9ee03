"""Vectors of words without context: a sequence is the mean of its tokens' vectors (the CBoW of GLUE's baselines).

What the paper argues against, as an encoder like the others: a frozen or tuned table, by itself or under a BiLSTM. The
stage ``train_word_vectors`` makes folders of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import Bert, BertConfig, Encoder
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.flops import Workload, head_flops
from pipeline_src.models.names import BERT, Names
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.params.model import ModelParams

REFUSED_OBJECTIVES = {
    "left_to_right": "the mean of a sequence holds what is to be predicted",
    "replaced": "a vector without context cannot tell what was replaced",
    "distilled": "a vector without context has no layer to distil",
    "layers": "it has no attention to imitate",
}

WORD_VECTORS = Names(
    model_type="word-vectors",
    title="Word vectors",
    paper="Mikolov et al. 2013, [Efficient Estimation of Word Representations](https://arxiv.org/abs/1301.3781)",
    classes={use: known for use, known in BERT.classes.items() if use != "left_to_right"},  # transformers has none
    output_layers=BERT.output_layers,
    loaded=((r"^word_vectors\.", "bert."),),
    saved=((r"^bert\.", "word_vectors."),),
)


@dataclass(frozen=True)
class WordVectorsConfig(BertConfig):
    """One layer, which takes the mean; heads and feed-forward are not there."""

    names: ClassVar[Names] = WORD_VECTORS

    @classmethod
    def from_params(cls, params: ModelParams, entries: int, causal: bool = False, **run: Any) -> Self:
        """As :meth:`BertConfig.from_params`, of one layer."""
        return cls(
            vocab_size=entries,
            hidden_size=params.hidden,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=params.hidden,
            max_position_embeddings=params.positions,
            hidden_dropout_prob=params.dropout,
            is_decoder=causal,
            **run,
        )

    def training_flops(self, work: Workload) -> int:
        """Of the head alone: nothing else is a matrix product."""
        return head_flops(self, work.predictions)


class Vectors(nn.Module):
    """The table."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, ids: Tensor, segments: Tensor, layout: PackedLayout) -> Tensor:
        """[T] ids -> [T, H]; ``segments`` are not read."""
        return self.dropout(self.word_embeddings(ids))


class Mean(nn.Module):
    """Puts the mean of a sequence at its first token, which stands for it, and leaves the others."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        lengths = layout.cu_seqlens.diff()
        sequence = torch.repeat_interleave(
            torch.arange(layout.sequences, device=hidden.device), lengths, output_size=len(hidden)
        )
        sums = hidden.new_zeros(layout.sequences, hidden.shape[1]).index_add(0, sequence, hidden)
        mixed = hidden.index_copy(0, layout.first, sums / lengths[:, None])
        return mixed if rows is None else mixed.index_select(0, rows.index)


class MeanEncoder(Encoder):
    """One layer without parameters."""

    Block = Mean


class WordVectors(Bert):
    """The table, the mean, and the pooler, a layer that fine-tuning trains."""

    Embeddings = Vectors
    Encoder = MeanEncoder


ARCHITECTURE = Architecture(config=WordVectorsConfig, encoder=WordVectors)
