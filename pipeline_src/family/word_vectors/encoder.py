"""Word vectors without context, averaged over a sequence (the CBoW baseline of GLUE).

The model is a baseline, frozen or fine-tuned, with or without a BiLSTM on top. Without the BiLSTM, the two texts of a
pair are averaged separately. The stage ``train_word_vectors`` trains the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from pipeline_src.model.adapter import BERT, StateDictAdapter
from pipeline_src.model.attention import Dropout, PackedBatch, QueryRows
from pipeline_src.model.bert import Architecture, Bert, BertConfig, Encoder
from pipeline_src.model.flops import Workload, head_flops
from pipeline_src.study.model import ModelParams

WORD_VECTORS = StateDictAdapter(
    model_type="word-vectors",
    title="Word vectors",
    paper="Mikolov et al. 2013, [Efficient Estimation of Word Representations](https://arxiv.org/abs/1301.3781)",
    # transformers does not have this architecture, so the class names of BERT are used.
    in_transformers=False,
    classes={use: known for use, known in BERT.classes.items() if use != "causal_lm"},
    from_hf=((r"^word_vectors\.", "bert."),),
    to_hf=((r"^bert\.", "word_vectors."),),
)


@dataclass(frozen=True)
class WordVectorsConfig(BertConfig):
    names: ClassVar[StateDictAdapter] = WORD_VECTORS
    reads_texts_apart: ClassVar[bool] = True

    @classmethod
    def from_params(cls, params: ModelParams, vocab_size: int, causal: bool = False, **run: Any) -> Self:
        return cls(
            vocab_size=vocab_size,
            hidden_size=params.hidden_size,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=params.hidden_size,
            max_position_embeddings=params.max_position_embeddings,
            hidden_dropout_prob=params.hidden_dropout_prob,
            is_decoder=causal,
            **run,
        )

    def training_flops(self, work: Workload) -> int:
        return head_flops(self, work.predictions)


class Vectors(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch) -> Tensor:
        return self.dropout(self.word_embeddings(ids))


class Mean(nn.Module):
    # Replaces the vector of each sequence's first token, which the pooler reads, by the mean of the sequence.

    def __init__(self, config: BertConfig) -> None:
        super().__init__()

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        lengths = layout.cu_seqlens.diff()
        numbers = torch.arange(layout.sequences, device=hidden.device)
        # The index of each token's sequence.
        sequence = torch.repeat_interleave(numbers, lengths, output_size=len(hidden))
        zeros = hidden.new_zeros(layout.sequences, hidden.shape[1])
        means = zeros.index_add(0, sequence, hidden) / lengths[:, None]
        # All other tokens keep their vectors.
        mixed = hidden.index_copy(0, layout.first, means)
        return mixed if query_rows is None else mixed.index_select(0, query_rows.index)


class MeanEncoder(Encoder):
    Block = Mean


class WordVectors(Bert):
    # The pooler is trained only in fine-tuning.

    Embeddings = Vectors
    Encoder = MeanEncoder


ARCHITECTURE = Architecture(config=WordVectorsConfig, encoder=WordVectors)
