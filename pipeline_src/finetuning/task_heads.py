"""The encoder with the output layer of one kind of task (paper, figure 4).

Apart from the pretraining heads, so that a change here makes no pretraining stale.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from pipeline_src.finetuning.bilstm import BiLSTM
from pipeline_src.finetuning.frozen_layers import LSTM_WIDTH, FrozenLayers
from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import Bert, BertConfig
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse

POOLED = ("sequence", "choice")  # heads that read one vector per sequence


class BertForTask(nn.Module):
    """The encoder with the output layer of one task (paper, figure 4).

    ``sequence`` and ``choice`` read the pooled vector (``choice`` one score per sequence), ``span`` and ``token`` read
    every token. With ``bilstm``, both read the encoder through a new LSTM, which lets the tokens of a left-to-right
    model see what follows them (paper, section 5.1).

    With ``frozen``, a name in ``frozen_layers.MIXTURES``, the encoder is not trained: it runs without gradient and
    dropout, and a new LSTM reads its layers (paper, section 5.3). Its pooler is not used then; the output layer reads
    the LSTM at the token that the pooler would read.

    ``bert`` is the encoder, where there is one already; a new one is made otherwise.
    """

    def __init__(
        self,
        config: BertConfig,
        head: str,
        outputs: int,
        bilstm: bool = False,
        frozen: str | None = None,
        bert: Bert | None = None,
    ) -> None:
        super().__init__()
        self.bert = make_encoder(config) if bert is None else bert
        self.head = head
        self.frozen = None if frozen is None else FrozenLayers(frozen, config.num_hidden_layers, config.hidden_size)
        self.bilstm = BiLSTM(config.hidden_size, config.hidden_size) if bilstm and frozen is None else None
        self.bert.requires_grad_(frozen is None)
        self.dropout = Dropout(config.hidden_dropout_prob)
        width = config.hidden_size if frozen is None else LSTM_WIDTH
        self.output_layer = config.names.output_layers[head]
        self.add_module(self.output_layer, nn.Linear(width, outputs))

    def train(self, mode: bool = True) -> BertForTask:
        """Switch dropout; a frozen encoder has none."""
        super().train(mode)
        if self.frozen is not None:
            self.bert.eval()
        return self

    def forward(self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, lengths: np.ndarray | None = None) -> Tensor:
        """[B, outputs], or [T, outputs] for spans and tokens.

        ``lengths``, tokens of each sequence, spares a GPU the wait for them; the rest is as in :class:`Bert`.
        """
        lengths = cu_seqlens.diff().cpu().numpy() if lengths is None else lengths
        layout = PackedLayout.of(cu_seqlens, len(ids), int(lengths.max()))
        read = self._read(ids, segments, layout, lengths)
        layer = self.get_submodule(self.output_layer)
        # No dropout before span scores (google-research/bert, run_squad.py).
        return layer(read) if self.head == "span" else layer(self.dropout(read))

    def _read(self, ids: Tensor, segments: Tensor, layout: PackedLayout, lengths: np.ndarray) -> Tensor:
        """What the output layer reads, [B, width] or [T, width]."""
        if self.frozen is not None:
            hidden = self.frozen(self.bert, ids, segments, layout, lengths)
            return hidden.index_select(0, self.bert.pooled(layout)) if self.head in POOLED else hidden
        if self.head in POOLED and self.bilstm is None and not self.bert.config.is_decoder:
            rows = RowsInUse.first(layout)  # all that the pooler reads
            return self.bert.pool(self.bert.encode(ids, segments, layout, rows), rows.layout)
        hidden = self.bert.encode(ids, segments, layout)
        if self.bilstm is not None:
            hidden = self.bilstm(hidden, layout, lengths)
        return self.bert.pool(hidden, layout) if self.head in POOLED else self.bert.task_tokens(hidden)
