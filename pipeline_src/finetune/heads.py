"""The encoder with the output layer of a task (BERT paper, figure 4), and the losses of the tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.finetune.feature_based import LSTM_WIDTH, BiLSTM, FrozenLayers
from pipeline_src.finetune.task_data import TaskBatch
from pipeline_src.model.attention import Dropout, PackedBatch, QueryRows
from pipeline_src.model.bert import Bert, BertConfig, make_encoder
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.schema import NO_TEACHER
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.classification import MODEL_RANGE

# Heads that read one pooled vector per sequence.
POOLED = ("sequence", "choice")

# Heads whose labels are classes. In a regression, the labels of "sequence" are numbers instead.
CLASS_HEADS = ("sequence", "token")

# Factor of the cosines in the ranking loss, as in sentence-transformers' MultipleNegativesRankingLoss.
SCALE = 20.0

# Width of the hidden layer over two text vectors in GLUE's baselines (Wang et al. 2019).
MLP_WIDTH = 512


@dataclass(frozen=True)
class BiEncoder:
    """Compares two separately encoded texts by their vectors u and v (Reimers and Gurevych 2019, section 3).

    Attributes:
        range: (lowest, highest) value of a regression that predicts from the cosine of u and v. Cosine 0 gives the
            lowest value, cosine 1 the highest. None if an output layer reads [u, v, |u - v|].
        product: whether the output layer also reads u * v, through a hidden layer, as in GLUE's baselines.
    """

    range: tuple[float, float] | None = None
    product: bool = False

    def join(self, u: Tensor, v: Tensor) -> Tensor:
        # u and v are [B, H]. Returns [B, 3 H], or [B, 4 H] if `product` is true.
        parts = [u, v, (u - v).abs()]
        if self.product:
            parts.append(u * v)
        return torch.cat(parts, dim=1)


def choose_bi_encoder(
    spec: TaskSpec, params: FinetuneParams, config: BertConfig, frozen: str | None
) -> BiEncoder | None:
    # Returns None if the texts of a pair are encoded as one sequence. A model of word vectors encodes them separately,
    # unless an LSTM reads the tokens or there is a teacher. `frozen`: the hyperparameter `feature_layers`.
    if not spec.is_pair:
        return None
    if params.pair_head == "bi_encoder":
        return BiEncoder(range=spec.range)
    means = config.reads_texts_apart and not params.bilstm and frozen is None and params.teacher == NO_TEACHER
    return BiEncoder(product=True) if means else None


class BertForTask(nn.Module):
    """The encoder with the output layer of a task.

    Args:
        head: what the output layer reads. ``sequence`` and ``choice`` (one logit per sequence) read the pooled vector;
            ``span`` and ``token`` read every token. ``embedding`` has no output layer: the model returns the mean of
            the last layer over all tokens of a sequence.
        outputs: number of outputs of the output layer.
        bilstm: whether to put a bidirectional LSTM between encoder and output layer. With it, tokens of a left-to-right
            model also see later tokens (BERT paper, section 5.1).
        frozen: name in ``feature_based.LAYER_MIXES``. The encoder is then frozen, and an LSTM is trained over its
            layers (BERT paper, section 5.3). Instead of the pooled vector, the output layer reads the LSTM's output at
            the pooled token.
        bert: the encoder; by default a new one.
        bi_encoder: compares two separately encoded sequences. The head must be ``sequence``.
        pooling: as ``TaskHyperparameters.pooling``, for the heads ``sequence`` and ``choice``.
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
        self.head = head
        self.bi_encoder = bi_encoder
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
            # The number of parts that BiEncoder.join concatenates.
            width *= 4 if bi_encoder.product else 3
            self.mlp = nn.Identity()
            if bi_encoder.product:
                self.mlp = nn.Sequential(nn.Linear(width, MLP_WIDTH), nn.Tanh())
                width = MLP_WIDTH
        self.output_layer = config.names.output_layers.get(head, "")
        if head != "embedding" and (bi_encoder is None or bi_encoder.range is None):
            self.add_module(self.output_layer, nn.Linear(width, outputs))

    def drop_unread_pooler(self) -> None:
        # Removes the pooler if the head reads tokens. transformers' classes for these tasks have no pooler either.
        if self.head not in (*POOLED, "embedding") and not self.bert.config.pooler_is_mlm_head:
            self.bert.pooler = nn.Identity()

    def train(self, mode: bool = True) -> BertForTask:
        super().train(mode)
        if self.frozen is not None:
            self.bert.eval()
        return self

    def item_outputs(self, batch: TaskBatch) -> Tensor:
        """Return the outputs for a batch, in which an item's windows have one row, the mean of their outputs."""
        outputs: Tensor = self(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths)
        if batch.windows is None:
            return outputs
        return torch.segment_reduce(outputs.float(), "mean", offsets=batch.windows)

    def forward(self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, lengths: np.ndarray | None = None) -> Tensor:
        """Return logits, or the vectors of the head ``embedding``.

        Args:
            lengths: number of tokens in each sequence, [B]. If it is None, it is computed, which waits for the GPU.

        Returns:
            Logits [B, outputs], or [T, outputs] for the heads ``span`` and ``token``, or vectors [B, H].
        """
        if lengths is None:
            lengths = cu_seqlens.diff().cpu().numpy()
        layout = PackedBatch.of(cu_seqlens, len(ids), int(lengths.max()))

        if self.head == "embedding":
            return self._means(ids, segments, layout)
        if self.bi_encoder is not None:
            return self._compare(self.bi_encoder, ids, segments, layout)
        hidden = self._output_layer_input(ids, segments, layout, lengths)
        return self.get_submodule(self.output_layer)(self.dropout(hidden))

    def _compare(self, bi_encoder: BiEncoder, ids: Tensor, segments: Tensor, layout: PackedBatch) -> Tensor:
        # Returns [B / 2, outputs]. The two texts of a pair are consecutive sequences.
        encode = self._means if self.bert.config.reads_texts_apart else self._first_last_means
        means = encode(ids, segments, layout)
        # u and v are [B / 2, H].
        u, v = means.view(len(means) // 2, 2, -1).unbind(1)
        if bi_encoder.range is not None:
            # Cosine 0 gives the lowest value of the range, cosine 1 the highest.
            low, high = MODEL_RANGE
            cosines = F.cosine_similarity(u, v)[:, None]
            return low + (high - low) * cosines

        hidden = self.mlp(self.dropout(bi_encoder.join(u, v)))
        return self.get_submodule(self.output_layer)(self.dropout(hidden))

    def _means(self, ids: Tensor, segments: Tensor, layout: PackedBatch) -> Tensor:
        # Returns the mean of the last layer over all tokens of each sequence, [B, H].
        if self.bert.config.reads_texts_apart:
            return self.bert.encode(ids, segments, layout, QueryRows.first(layout)).float()
        hidden = self.bert.encode(ids, segments, layout).float()
        return torch.segment_reduce(hidden, "mean", offsets=layout.cu_seqlens)

    def _first_last_means(self, ids: Tensor, segments: Tensor, layout: PackedBatch) -> Tensor:
        # Returns the mean of (embeddings + last layer) over the tokens of each sequence, [B, H]. The first and last
        # token are left out.
        embedded, *_, hidden = self.bert.hidden_states(ids, segments, layout)
        # They are special tokens, which would make the vectors of all texts similar.
        special = torch.cat([layout.first, layout.last])
        tokens = (embedded + hidden).float().index_fill(0, special, 0.0)
        lengths = (layout.cu_seqlens.diff() - 2).clamp(min=1)
        sums = torch.segment_reduce(tokens, "sum", offsets=layout.cu_seqlens)
        return sums / lengths[:, None]

    def _output_layer_input(self, ids: Tensor, segments: Tensor, layout: PackedBatch, lengths: np.ndarray) -> Tensor:
        # Returns [B, width] for pooled heads, [T, width] for the others.
        is_pooled = self.head in POOLED
        if self.frozen is not None:
            hidden = self.frozen(self.bert, ids, segments, layout, lengths)
            if not is_pooled:
                return hidden
            return hidden.index_select(0, self.bert.pooled(layout))
        if self.first_last:
            return self._first_last_means(ids, segments, layout)

        if is_pooled and self.bilstm is None and not self.bert.config.is_decoder:
            # The pooler reads only the first token of each sequence, so the last layer is computed only there.
            rows = QueryRows.first(layout)
            hidden = self.bert.encode(ids, segments, layout, rows)
            return self.bert.pool(self.dropout_before_pooler(hidden), rows.layout)

        hidden = self.bert.encode(ids, segments, layout)
        if self.bilstm is not None:
            hidden = self.bilstm(hidden, layout, lengths)
        if is_pooled:
            return self.bert.pool(self.dropout_before_pooler(hidden), layout)
        return self.bert.task_tokens(hidden)


# Function from a model's outputs and the batch to the loss, a float32 scalar.
Loss = Callable[[Tensor, TaskBatch], Tensor]


def sequence_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    # `outputs`: logits [B, classes], the values of a regression [B, 1], or for sets of labels, logits [B, labels].
    if batch.labels.ndim == 2:
        # The mean over examples and labels. All examples have equally many, so the mean over examples, by which
        # microbatches are weighted, is the same.
        return F.binary_cross_entropy_with_logits(outputs.float(), batch.labels)
    if batch.labels.is_floating_point():
        return F.mse_loss(outputs.squeeze(-1).float(), batch.labels)
    return _class_loss(outputs, batch)


def _class_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    # Returns the mean cross-entropy over the labels, weighted by class if the batch has class weights.
    if batch.class_weights is None:
        return F.cross_entropy(outputs.float(), batch.labels)
    # The sum is divided by the number of labels, since the weights have mean 1 over the whole batch. With torch's
    # weighted mean, every microbatch would count the same, whatever its weights.
    total = F.cross_entropy(outputs.float(), batch.labels, batch.class_weights, reduction="sum")
    return total / batch.losses


def choice_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    # `outputs`: logits [items x choices, 1]. Labels are int64 [items].
    return F.cross_entropy(outputs.float().view(len(batch.labels), -1), batch.labels)


def span_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    # Returns the mean of two cross-entropies over the positions of a sequence: of the span's first token and of its
    # last token. `outputs`: start and end logits [T, 2]. Labels are the two positions in the sequence, int64 [B, 2].
    layout = batch.layout
    # [B, 2, L]
    logits = layout.pad(outputs.float(), -torch.inf).transpose(1, 2)
    return F.cross_entropy(logits.reshape(-1, layout.max_seqlen), batch.labels.reshape(-1))


def token_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    # `outputs`: logits [T, tags]. Labels are int64 [T], of which -100 is ignored.
    return _class_loss(outputs, batch)


def ranking_loss(outputs: Tensor, batch: TaskBatch) -> Tensor:
    """Return the cross-entropy of each query's passage among all passages and hard negatives of the batch.

    Logits are scaled cosines, as in sentence-transformers' MultipleNegativesRankingLoss (Henderson et al. 2017, section
    4.4). If several items have the same query, their passages do not count as each other's negatives.

    Args:
        outputs: vectors, [items x texts, H].
        batch: its labels are ``RankingFeatures.labels``.
    """
    labels = batch.labels
    vectors = F.normalize(outputs.float(), dim=1).view(*labels.shape, -1)
    queries = vectors[:, 0]
    # Logits are [B, B x (texts - 1)]. Column c < B is the passage of item c. The next B columns are the first hard
    # negative of each item, and so on.
    candidates = vectors[:, 1:].transpose(0, 1).flatten(0, 1)
    logits = SCALE * queries @ candidates.T

    query = labels[:, 0]
    passage = labels[:, 1]
    candidate = labels[:, 1:].T.flatten()
    # True where another item with the same query has this passage.
    same_query = (query[:, None] == query).float()
    is_passage = (passage[:, None] == candidate).float()
    others = (same_query @ is_passage).bool().fill_diagonal_(False)
    logits = logits.masked_fill(others, -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(query), device=query.device))


LOSSES: dict[str, Loss] = {
    "sequence": sequence_loss,
    "choice": choice_loss,
    "span": span_loss,
    "token": token_loss,
    "embedding": ranking_loss,
}
