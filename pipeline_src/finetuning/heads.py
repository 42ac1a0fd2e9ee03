"""The encoder with the output layer of a task (paper, figure 4), and the losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.config.finetune import FinetuneParams
from pipeline_src.config.schema import NO_TEACHER
from pipeline_src.finetuning.feature_based import LSTM_WIDTH, BiLSTM, FrozenLayers
from pipeline_src.finetuning.task_data import TaskBatch
from pipeline_src.models.attention import Dropout, PackedBatch, QueryRows
from pipeline_src.models.bert import Bert, BertConfig, make_encoder
from pipeline_src.tasks.spec import TaskSpec

POOLED = ("sequence", "choice")  # heads that read one vector per sequence
MLP_WIDTH = 512  # of the classifier over two texts in GLUE's baselines (Wang et al. 2019)


@dataclass(frozen=True)
class BiEncoder:
    """Comparison of the vectors u and v of two texts that were encoded separately.

    Attributes:
        range: of a regression whose prediction is their cosine, from the lowest value at 0 to the highest at 1; None
            for an output layer over [u, v, |u - v|] (both Reimers and Gurevych 2019, Sentence-BERT, section 3).
        product: add u * v and a hidden layer, as GLUE's baselines do.
    """

    range: tuple[float, float] | None = None
    product: bool = False

    def join(self, u: Tensor, v: Tensor) -> Tensor:
        """[B, H] and [B, H] -> [B, 3 H], or [B, 4 H] with the product."""
        return torch.cat([u, v, (u - v).abs(), *([u * v] if self.product else [])], dim=1)


def choose_bi_encoder(
    spec: TaskSpec, params: FinetuneParams, config: BertConfig, frozen: str | None
) -> BiEncoder | None:
    """Return how the two texts of a task are compared; None if they are one sequence.

    Word vectors encode them separately unless an LSTM reads their tokens, or a teacher is imitated.
    """
    if not spec.is_pair:
        return None
    if params.pair_head == "bi_encoder":
        return BiEncoder(range=spec.range)
    means = config.reads_texts_apart and not params.bilstm and frozen is None and params.teacher == NO_TEACHER
    return BiEncoder(product=True) if means else None


class BertForTask(nn.Module):
    """The encoder with the output layer of a task.

    The output layer is applied to the pooled vector for ``sequence`` and ``choice`` (one logit per sequence), and to
    every token for ``span`` and ``token``.

    Args:
        bilstm: add a bidirectional LSTM between them, which lets the tokens of a left-to-right model see the tokens
            that follow (paper, section 5.1).
        frozen: a name in ``feature_based.LAYER_MIXES``: do not train the encoder, but an LSTM over its layers (paper,
            section 5.3). The output layer is then applied to the LSTM's output at the token that is otherwise pooled.
        bert: an encoder; by default a new one.
        bi_encoder: compare two sequences, each encoded separately; the head is ``sequence``.
        pooling: of the heads ``sequence`` and ``choice``, as ``TaskHyperparameters.pooling``.
    """

    def __init__(
        self,
        config: BertConfig,
        head: str,
        outputs: int,
        bilstm: bool = False,
        frozen: str | None = None,
        bert: Bert | None = None,
        bi_encoder: BiEncoder | None = None,
        pooling: str = "cls",
    ) -> None:
        super().__init__()
        self.bert = make_encoder(config) if bert is None else bert
        self.head, self.bi_encoder = head, bi_encoder
        plain = head in POOLED and bi_encoder is None and not bilstm and frozen is None and not config.reads_texts_apart
        self.first_last = pooling == "first_last" and plain
        self.frozen = None if frozen is None else FrozenLayers(frozen, config.num_hidden_layers, config.hidden_size)
        self.bilstm = BiLSTM(config.hidden_size, config.hidden_size) if bilstm and frozen is None else None
        self.bert.requires_grad_(frozen is None)
        self.dropout = Dropout(config.head_dropout(head))
        before_pooler = head == "sequence" and config.dropout_before_pooler
        self.dropout_before_pooler = Dropout(config.hidden_dropout_prob if before_pooler else 0.0)
        width = config.hidden_size if frozen is None else LSTM_WIDTH
        if bi_encoder is not None:
            width *= 4 if bi_encoder.product else 3
            self.mlp = nn.Sequential(nn.Linear(width, MLP_WIDTH), nn.Tanh()) if bi_encoder.product else nn.Identity()
            width = MLP_WIDTH if bi_encoder.product else width
        self.output_layer = config.names.output_layers[head]
        if bi_encoder is None or bi_encoder.range is None:
            self.add_module(self.output_layer, nn.Linear(width, outputs))

    def drop_unread_pooler(self) -> None:
        """Remove the pooler if the head reads tokens without it, as transformers' classes for these tasks have none."""
        if self.head not in POOLED and not self.bert.config.pooler_is_mlm_head:
            self.bert.pooler = nn.Identity()

    def train(self, mode: bool = True) -> BertForTask:
        super().train(mode)
        if self.frozen is not None:
            self.bert.eval()
        return self

    def forward(self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, lengths: np.ndarray | None = None) -> Tensor:
        """Return the logits, [B, outputs], or [T, outputs] for spans and tokens.

        ``lengths``, the tokens of each sequence on the host, avoids a synchronisation with the GPU.
        """
        lengths = cu_seqlens.diff().cpu().numpy() if lengths is None else lengths
        layout = PackedBatch.of(cu_seqlens, len(ids), int(lengths.max()))
        if self.bi_encoder is not None:
            return self._compare(self.bi_encoder, ids, segments, layout)
        hidden = self._output_layer_input(ids, segments, layout, lengths)
        return self.get_submodule(self.output_layer)(self.dropout(hidden))

    def _compare(self, bi_encoder: BiEncoder, ids: Tensor, segments: Tensor, layout: PackedBatch) -> Tensor:
        """[B / 2, outputs]; the texts of a pair are consecutive sequences."""
        if self.bert.config.reads_texts_apart:
            means = self.bert.encode(ids, segments, layout, QueryRows.first(layout)).float()
        else:
            means = self._first_last_means(ids, segments, layout)
        u, v = means.view(len(means) // 2, 2, -1).unbind(1)
        if bi_encoder.range is not None:
            low, high = bi_encoder.range
            return low + (high - low) * F.cosine_similarity(u, v)[:, None]
        return self.get_submodule(self.output_layer)(self.dropout(self.mlp(self.dropout(bi_encoder.join(u, v)))))

    def _first_last_means(self, ids: Tensor, segments: Tensor, layout: PackedBatch) -> Tensor:
        """Mean of each sequence's tokens, of embeddings plus last layer, [B, H]."""
        embedded, *_, hidden = self.bert.hidden_states(ids, segments, layout)
        special = torch.cat([layout.first, layout.last])  # they make all texts alike
        tokens = (embedded + hidden).float().index_fill(0, special, 0.0)
        lengths = (layout.cu_seqlens.diff() - 2).clamp(min=1)
        return torch.segment_reduce(tokens, "sum", offsets=layout.cu_seqlens) / lengths[:, None]

    def _output_layer_input(self, ids: Tensor, segments: Tensor, layout: PackedBatch, lengths: np.ndarray) -> Tensor:
        """[B, width] or [T, width]."""
        if self.frozen is not None:
            hidden = self.frozen(self.bert, ids, segments, layout, lengths)
            return hidden.index_select(0, self.bert.pooled(layout)) if self.head in POOLED else hidden
        if self.first_last:
            return self._first_last_means(ids, segments, layout)
        if self.head in POOLED and self.bilstm is None and not self.bert.config.is_decoder:
            rows = QueryRows.first(layout)  # the pooler's only input
            hidden = self.bert.encode(ids, segments, layout, rows)
            return self.bert.pool(self.dropout_before_pooler(hidden), rows.layout)
        hidden = self.bert.encode(ids, segments, layout)
        if self.bilstm is not None:
            hidden = self.bilstm(hidden, layout, lengths)
        if self.head in POOLED:
            return self.bert.pool(self.dropout_before_pooler(hidden), layout)
        return self.bert.task_tokens(hidden)


Loss = Callable[[Tensor, TaskBatch], Tensor]  # from a model's outputs to a scalar in float32


def sequence_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Return the cross-entropy of outputs [B, classes], or the mean squared error of a regression, [B, 1]."""
    if batch.labels.is_floating_point():
        return F.mse_loss(outputs.squeeze(-1).float(), batch.labels)
    return F.cross_entropy(outputs.float(), batch.labels)


def choice_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Return the cross-entropy over the choices of each item: outputs [items x choices, 1], labels int64 [items]."""
    return F.cross_entropy(outputs.float().view(len(batch.labels), -1), batch.labels)


def span_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Return the mean cross-entropy of the first and the last token, each over the tokens of its sequence.

    Outputs are start and end logits, [T, 2]; labels the two positions in their sequence, int64 [B, 2].
    """
    layout = batch.layout
    logits = layout.pad(outputs.float(), -torch.inf).transpose(1, 2)  # [B, 2, L]
    return F.cross_entropy(logits.reshape(-1, layout.max_seqlen), batch.labels.reshape(-1))


def token_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Return the cross-entropy of outputs [T, tags], averaged over the tokens whose label, int64 [T], is not -100."""
    return F.cross_entropy(outputs.float(), batch.labels)


LOSSES: dict[str, Loss] = {"sequence": sequence_loss, "choice": choice_loss, "span": span_loss, "token": token_loss}
