"""A bidirectional LSTM language model in the manner of ELMo (Peters et al. 2018): two readers that never meet.

Half of every state has read the text from its start, half from its end. What differs from the original: the study's
own tokens in place of characters, and no cell is clipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import Bert, BertConfig, Encoder
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.flops import Workload, head_flops
from pipeline_src.models.lstm import read_by_lstm, read_from_the_start, turned_round
from pipeline_src.models.names import BERT, Names
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse

EVEN = "hidden"  # a half for each direction
REFUSED_OBJECTIVES = {
    "left_to_right": "one of its halves reads from the end; both_directions is learnt by each half",
    "layers": "it has no attention to imitate",
}

BILSTM = Names(
    model_type="bilstm",
    title="Bidirectional LSTM",
    paper="Peters et al. 2018, [Deep contextualized word representations](https://arxiv.org/abs/1802.05365)",
    classes={use: known for use, known in BERT.classes.items() if use != "left_to_right"},  # transformers has no BiLSTM
    output_layers=BERT.output_layers,
    loaded=((r"^bilstm\.", "bert."),),
    saved=((r"^bert\.", "bilstm."),),
)


@dataclass(frozen=True)
class BiLSTMConfig(BertConfig):
    """Each direction has half of the width; its LSTMs have ``intermediate_size`` units, projected to that half."""

    names: ClassVar[Names] = BILSTM

    @property
    def embedding_width(self) -> int:
        """Both directions read the same vectors."""
        return self.hidden_size // 2

    def encoder_flops(self, work: Workload) -> int:
        """Of the LSTMs: four gates of what is read and of what was said before, then the projection.

        No gradient is asked of what was said before a sequence's first token.
        """
        units, half = self.intermediate_size, self.hidden_size // 2
        each = 6 * (4 * units * 2 * half + units * half) * work.tokens - 2 * 4 * units * half * work.sequences
        return 2 * self.num_hidden_layers * each

    def training_flops(self, work: Workload) -> int:
        """Of the LSTMs, and of a head that predicts each token once."""
        return self.encoder_flops(work) + head_flops(self, work.predictions)


class TokenVectors(nn.Module):
    """The table, once for each direction."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_width)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, ids: Tensor, segments: Tensor, layout: PackedLayout) -> Tensor:
        """[T] ids -> [T, H]; ``segments`` are not read."""
        return self.dropout(self.word_embeddings(ids).repeat(1, 2))


class Layer(nn.Module):
    """One layer of both directions."""

    residual = True  # the first layer has none (allenai/bilm-tf, training.py)

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        half = config.hidden_size // 2
        self.onward = nn.LSTM(half, config.intermediate_size, proj_size=half)
        self.back = nn.LSTM(half, config.intermediate_size, proj_size=half)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        turned = turned_round(layout)
        onward, back = self.dropout(hidden).chunk(2, dim=-1)
        read = self._read(self.onward, onward, layout)
        read_back = self._read(self.back, back.index_select(0, turned), layout).index_select(0, turned)
        states = torch.cat([read, read_back], dim=-1)
        states = states + hidden if self.residual else states
        return states if rows is None else states.index_select(0, rows.index)

    @staticmethod
    def _read(lstm: nn.LSTM, hidden: Tensor, layout: PackedLayout) -> Tensor:
        if hidden.is_cuda:
            return read_from_the_start(lstm, hidden, layout)
        return read_by_lstm(lstm, hidden, layout, np.asarray(layout.lengths))


class BothDirections(Encoder):
    """The layers, of which all but the first add what they read."""

    Block = Layer

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.layer[0].residual = False


class BiLSTMEncoder(Bert):
    """The table, the layers, and the pooler over the first token, to which the reader from the end comes last."""

    Embeddings = TokenVectors
    Encoder = BothDirections


ARCHITECTURE = Architecture(config=BiLSTMConfig, encoder=BiLSTMEncoder)
