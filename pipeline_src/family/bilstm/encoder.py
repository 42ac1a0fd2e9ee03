"""Bidirectional LSTM language model after ELMo (Peters et al. 2018): a forward and a backward LSTM, never combined.

The first half of a hidden state comes from the forward LSTM, the second half from the backward LSTM. Unlike ELMo, the
model reads the study's tokens instead of characters, and does not clip cell states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_src.model.adapter import BERT, StateDictAdapter
from pipeline_src.model.attention import Dropout, PackedBatch, QueryRows
from pipeline_src.model.bert import Architecture, Bert, BertConfig, Encoder
from pipeline_src.model.flops import Workload, head_flops
from pipeline_src.model.lstm import run_lstm, run_padded_lstm


def reversed_positions(layout: PackedBatch) -> Tensor:
    # Returns indices that reverse each sequence in place, int64 [T]. Sequences of 2 and 3 tokens give 1 0 4 3 2.
    lengths = layout.cu_seqlens.diff()
    ends = torch.repeat_interleave(layout.last, lengths, output_size=len(layout.position))
    return ends - layout.position


BILSTM = StateDictAdapter(
    model_type="bilstm",
    title="Bidirectional LSTM",
    paper="Peters et al. 2018, [Deep contextualized word representations](https://arxiv.org/abs/1802.05365)",
    # transformers has no BiLSTM, so the class names of BERT are used.
    in_transformers=False,
    classes={use: known for use, known in BERT.classes.items() if use != "causal_lm"},
    # The LSTM of a fine-tuned head is named bilstm too.
    from_hf=((r"^bilstm\.(embeddings|encoder|pooler)\.", r"bert.\1."),),
    to_hf=((r"^bert\.", "bilstm."),),
)


@dataclass(frozen=True)
class BiLSTMConfig(BertConfig):
    """Config of the BiLSTM. Each direction has ``intermediate_size`` units, projected to ``hidden_size`` / 2."""

    names: ClassVar[StateDictAdapter] = BILSTM

    @property
    def embedding_width(self) -> int:
        return self.hidden_size // 2

    def encoder_flops(self, work: Workload) -> int:
        # An LSTM has four gates, which read the input and the previous output, and a projection. At the first token of
        # a sequence, the previous output is constant and needs no gradient.
        units = self.intermediate_size
        half = self.hidden_size // 2
        layer_flops = 6 * (4 * units * 2 * half + units * half) * work.tokens - 2 * 4 * units * half * work.sequences
        return 2 * self.num_hidden_layers * layer_flops

    def training_flops(self, work: Workload) -> int:
        return self.encoder_flops(work) + head_flops(self, work.predictions)


class TokenVectors(nn.Module):
    # Looks up token embeddings, and repeats them for both directions, [T] -> [T, H].

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_width)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch) -> Tensor:
        return self.dropout(self.word_embeddings(ids).repeat(1, 2))


class Layer(nn.Module):
    # Whether the layer has a residual connection. The first layer has none (allenai/bilm-tf, training.py).
    residual = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        half = config.hidden_size // 2
        self.onward = nn.LSTM(half, config.intermediate_size, proj_size=half)
        self.back = nn.LSTM(half, config.intermediate_size, proj_size=half)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        onward, back = self.dropout(hidden).chunk(2, dim=-1)
        onward_states = self._read(self.onward, onward, layout)
        # The backward LSTM reads each sequence from its end.
        turned = reversed_positions(layout)
        turned_states = self._read(self.back, back.index_select(0, turned), layout)
        back_states = turned_states.index_select(0, turned)
        states = torch.cat([onward_states, back_states], dim=-1)
        if self.residual:
            states = states + hidden
        return states if query_rows is None else states.index_select(0, query_rows.index)

    @staticmethod
    def _read(lstm: nn.LSTM, hidden: Tensor, layout: PackedBatch) -> Tensor:
        if hidden.is_cuda:
            return run_padded_lstm(lstm, hidden, layout)
        return run_lstm(lstm, hidden, layout, np.asarray(layout.lengths))


class BothDirections(Encoder):
    Block = Layer

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.layer[0].residual = False


class BiLSTMEncoder(Bert):
    """BiLSTM encoder with a pooler over the first token, which the backward LSTM reads last."""

    Embeddings = TokenVectors
    Encoder = BothDirections


ARCHITECTURE = Architecture(config=BiLSTMConfig, encoder=BiLSTMEncoder)
