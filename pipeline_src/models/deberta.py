"""DeBERTa (He et al. 2021): disentangled attention over relative positions, and the enhanced mask decoder.

Absolute positions are not added at the input. Version 2 builds on the classes here.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.common.names import shown
from pipeline_src.common.registry import ArchitectureSpec
from pipeline_src.config.model import ModelParams
from pipeline_src.models.adapter import BERT, StateDictAdapter
from pipeline_src.models.attention import (
    MOST_WEIGHTS,
    Dropout,
    PackedBatch,
    QueryRows,
    apply_dropout,
    attention_probs_of,
    in_float32,
)
from pipeline_src.models.bert import Architecture, Bert, BertConfig, Block, Encoder, Pooler
from pipeline_src.models.flops import Workload, block_flops, head_flops

SPEC = ArchitectureSpec(
    pads_sequences=True,
    refused_objectives={
        "clm": "it reads both directions, and transformers has no class for one",
        "tinybert": "its attention logits include relative positions, and a student's do not",
    },
    refused_pairs="its mask decoder reads another last layer than the label of a pair would",
)


KINDS = 3  # of logits: content to content, content to position, position to content


def log_buckets(distances: Tensor, buckets: int, reach: int) -> Tensor:
    """Map signed distances to buckets: exact up to ``buckets`` / 2, logarithmic beyond (DeBERTa's da_utils.py).

    Args:
        distances: int64, of any shape.
        buckets: number of buckets on each side.
        reach: distance at which the last bucket ends.
    """
    middle = buckets // 2
    far = distances.abs().clamp(min=middle).float()
    steps = torch.ceil((far / middle).log() / torch.log(torch.tensor((reach - 1) / middle)) * (middle - 1)) + middle
    return torch.where(distances.abs() <= middle, distances, steps.long() * distances.sign())


@dataclass(frozen=True)
class RelativeTable:
    """Mapping from query-key distances to rows of the relative position embeddings.

    Attributes:
        half: half the number of rows.
        reach: see :func:`log_buckets`; None if each distance has its own row.
    """

    half: int
    reach: int | None = None

    def rows_of(self, distances: Tensor) -> Tensor:
        """Return the row of each distance, int64 of any shape."""
        rows = distances if self.reach is None else log_buckets(distances, self.half, self.reach)
        return (rows + self.half).clamp(0, 2 * self.half - 1)

    def in_use(self, length: int) -> slice:
        """Return the rows that sequences up to ``length`` use, with at most one more on each side.

        Computed on the host, without synchronising with a GPU.
        """
        far, middle = length - 1, self.half // 2
        if self.reach is not None and far > middle:
            # one more than log_buckets, which rounds differently
            steps = math.ceil(math.log(far / middle) / math.log((self.reach - 1) / middle) * (middle - 1))
            far = middle + 1 + steps
        return slice(max(0, self.half - far), min(2 * self.half, self.half + far + 1))


@lru_cache(maxsize=1024)
def relative_rows(length: int, table: RelativeTable) -> Tensor:
    """Return the rows of the distances from 1 - length to length - 1."""
    return table.rows_of(torch.arange(1 - length, length))


@dataclass(frozen=True)
class DisentangledInputs:
    """Inputs of disentangled attention.

    Attributes:
        query: [R, heads, head size].
        key, value: [T, heads, head size].
        query_rows, key_rows: query and key projections of the relative position embeddings in use
            (:meth:`RelativeTable.in_use` of the longest sequence), [rows, heads, head size].
        layout: layout of the tokens.
        queries: layout of the queries; ``layout`` itself if every token is a query.
        positions: position of each query in its sequence, int64 [R].
        dropout: rate on the attention probabilities; 0 in evaluation.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    query_rows: Tensor
    key_rows: Tensor
    layout: PackedBatch
    queries: PackedBatch
    positions: Tensor
    dropout: float = 0.0

    def scaled(self) -> DisentangledInputs:
        """Scale query and query_rows, and transpose: query_rows [heads, rows, size], key_rows [heads, size, rows]."""
        scale = (KINDS * self.query.shape[2]) ** -0.5
        return replace(
            self,
            query=self.query * scale,
            query_rows=(self.query_rows * scale).transpose(0, 1),
            key_rows=self.key_rows.permute(1, 2, 0),
        )


def disentangled_attention(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Attention whose logit is the sum of three products, over sqrt(3 x head size).

    The products are content to content, content to position and position to content, where position is the embedding
    of the query-key distance. The last product reads the same row as the second, along the other axis, as DeBERTa's
    code does and equation 4 of the paper does not.

    Returns:
        [R, heads, head size].
    """
    compute = disentangled_padded if inputs.query.is_cuda else disentangled_grouped
    return compute(inputs.scaled(), table)


def disentangled_padded(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Compute disentangled attention in padded [B, heads, L, L] tensors, with few kernels and no synchronisation.

    ``inputs`` come from :meth:`DisentangledInputs.scaled`.
    """
    layout, queries, positions = inputs.layout, inputs.queries, inputs.positions
    longest = layout.max_seqlen
    query = torch.arange(longest, device=positions.device)[None] if queries is layout else queries.pad(positions)
    distances = query[:, None, :, None] - torch.arange(longest, device=positions.device)
    rows = table.rows_of(distances) - table.in_use(longest).start
    q, k, v = (
        where.pad(flat).transpose(1, 2)
        for where, flat in ((queries, inputs.query), (layout, inputs.key), (layout, inputs.value))
    )
    logits = _logits(q, k, inputs.query_rows, inputs.key_rows, rows.expand(*q.shape[:3], longest))
    if layout.keep is not None:
        logits = logits.masked_fill(~layout.keep[:, None, None], -torch.inf)
    return queries.unpad(_weighted_average(logits, v, inputs.dropout).transpose(1, 2))


@in_float32
def disentangled_grouped(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Compute disentangled attention in groups of sequences of equal length, which is faster on a CPU.

    ``inputs`` come from :meth:`DisentangledInputs.scaled`.
    """
    _, heads, size = inputs.query.shape
    first = table.in_use(inputs.layout.max_seqlen).start
    groups = inputs.layout.groups(inputs.queries, MOST_WEIGHTS // heads)
    query_counts, token_counts = ([group[0] * group[part] for group in groups] for part in (1, 2))
    split = (
        inputs.query.split(query_counts),
        inputs.key.split(token_counts),
        inputs.value.split(token_counts),
        inputs.positions.split(query_counts),
    )
    contexts = []
    for (count, num_queries, length), q, k, v, place in zip(groups, *split, strict=True):
        q, k, v = (part.view(count, -1, heads, size).transpose(1, 2) for part in (q, k, v))
        used = table.in_use(length)
        own = slice(used.start - first, used.stop - first)
        if num_queries == length:
            rows = _all_rows(length, table)[None, None]
        else:
            distances = place.view(count, 1, num_queries, 1) - torch.arange(length, device=place.device)
            rows = relative_rows(length, table)[distances + length - 1] - used.start
        rows = rows.expand(count, heads, num_queries, length)
        logits = _logits(q, k, inputs.query_rows[:, own], inputs.key_rows[:, :, own], rows)
        contexts.append(_weighted_average(logits, v, inputs.dropout).transpose(1, 2).reshape(-1, heads, size))
    return torch.cat(contexts)


def disentangled_weights(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Return the attention probabilities of :func:`disentangled_attention`, [B, heads, L, L]."""
    layout, scaled = inputs.layout, inputs.scaled()
    q, k = (layout.pad(flat).transpose(1, 2) for flat in (scaled.query, scaled.key))
    rows = _all_rows(layout.max_seqlen, table).to(q.device).expand(*q.shape[:2], -1, -1)
    return attention_probs_of(_logits(q, k, scaled.query_rows, scaled.key_rows, rows).float(), layout)


def _logits(q: Tensor, k: Tensor, query_rows: Tensor, key_rows: Tensor, rows: Tensor) -> Tensor:
    """Sum of the three products, [B, heads, queries, L]."""
    logits = q @ k.transpose(2, 3)
    logits = logits + (q @ key_rows).gather(3, rows)
    return logits + (query_rows @ k.transpose(2, 3)).gather(2, rows)


def _weighted_average(logits: Tensor, values: Tensor, dropout: float) -> Tensor:
    """Average of values [B, heads, L, size] by the softmax of logits [B, heads, queries, L]."""
    weights = F.softmax(logits.float(), -1).to(values.dtype)
    return (apply_dropout(weights, dropout) if dropout else weights) @ values


@lru_cache(maxsize=64)  # 128 MB if all lengths were 512
def _all_rows(length: int, table: RelativeTable) -> Tensor:
    """Row of each query-key pair, relative to the first row in use, int64 [length, length]."""
    rows, positions = relative_rows(length, table), torch.arange(length)
    return rows[positions[:, None] - positions + length - 1] - table.in_use(length).start


TABLE_KEY = "relative positions"  # in PackedBatch.cache
DECODINGS = 2  # times the last block is applied (DeBERTa's masked_language_model.py)
PRODUCTS = 4  # per pair of tokens: three logits and the value


def deberta_names(names: StateDictAdapter) -> StateDictAdapter:
    """Add the names that all versions of DeBERTa share to ``names``."""
    from_hf = (
        (r"^deberta\.", "bert."),
        (r"^lm_predictions\.lm_head\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
        (r"^lm_predictions\.lm_head\.bias$", "cls.predictions.decoder.bias"),
        *BERT.from_hf,
        *names.from_hf,
    )
    to_hf = (
        *names.to_hf,
        (r"^cls\.predictions\.transform\.", "lm_predictions.lm_head."),
        (r"^cls\.predictions\.decoder\.bias$", "lm_predictions.lm_head.bias"),
        (r"^bert\.pooler\.", "pooler."),
        (r"^bert\.", "deberta."),
    )
    written = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "legacy": False, **names.written}
    absent = {"relative_attention": False, "position_biased_input": True, "pos_att_type": None, **names.absent}
    fixed = {
        **{"relative_attention": (True,), "pos_att_type": (["c2p", "p2c"],), "talking_head": (False,)},
        **{"pooler_hidden_act": ("gelu",), "is_decoder": (False,)},
        **names.fixed,
    }
    layers = BERT.output_layers
    return replace(
        names, output_layers=layers, from_hf=from_hf, to_hf=to_hf, absent=absent, fixed=fixed, written=written
    )


@dataclass(frozen=True)
class DebertaConfig(BertConfig):
    """Config of DeBERTa, with absolute positions only in the mask decoder, which transformers lacks."""

    initializer_cutoff_factor: ClassVar[float | None] = None  # DeBERTa's nnmodule.py
    layer_norm_eps: float = 1e-7
    type_vocab_size: int = 0
    mask_decoder: bool = False
    position_biased_input: bool = False  # true only in imported models
    max_relative_positions: int = -1  # below 1: ``max_position_embeddings``

    @classmethod
    def from_params(cls, params: ModelParams, vocab_size: int, causal: bool = False, **run: Any) -> Self:
        return replace(super().from_params(params, vocab_size, causal, **run), mask_decoder=True)

    @classmethod
    def from_hf_config(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Translate ``pos_att_type``, which may be text, and check sizes that must be equal here."""
        hidden, kinds = raw.get("hidden_size"), raw.get("pos_att_type")
        for key in ("embedding_size", "pooler_hidden_size"):
            if raw.get(key, hidden) != hidden:
                raise ValueError(f"{key} is {shown(raw[key])}, not {shown(hidden)}, the hidden_size")
        kinds = [kind.strip() for kind in kinds.lower().split("|")] if isinstance(kinds, str) else kinds
        return {**raw, "pos_att_type": sorted(map(str, kinds)) if isinstance(kinds, list) else kinds}

    @property
    def export_caveat(self) -> str:
        lost = "transformers has no mask decoder: what it predicts at [MASK] is worse than what this project does."
        return lost if self.mask_decoder else ""

    @property
    def has_position_embeddings(self) -> bool:
        return self.mask_decoder or self.position_biased_input

    @property
    def adds_positions(self) -> bool:
        return self.position_biased_input

    @property
    def has_mask_decoder(self) -> bool:
        return self.mask_decoder

    @property
    def half_table(self) -> int:
        """Half the number of relative position embeddings."""
        return self.reach

    @property
    def reach(self) -> int:
        """Distance from which all are embedded alike."""
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings

    @property
    def bucket_reach(self) -> int | None:
        """Distance at which the last bucket ends; None if each distance has its own embedding."""
        return None

    def training_flops(self, work: Workload) -> int:
        """Count two more products per pair than BERT, and the mask decoder, which runs only if tokens are predicted.

        The projection of the relative positions, once per batch, is not counted.
        """
        blocks = (self.num_hidden_layers - 1) * block_flops(self, work.tokens, work.sum_len_squared, products=PRODUCTS)
        last = block_flops(self, work.num_outputs, work.attended_pairs, products=PRODUCTS, key_tokens=work.tokens)
        again = block_flops(self, work.num_outputs, work.attended_pairs, products=PRODUCTS, key_tokens=0)
        decoding = (DECODINGS - 1) * again if self.mask_decoder and work.predictions else 0
        return blocks + last + decoding + head_flops(self, work.predictions)


class DecoderQuery(NamedTuple):
    """Query input of the mask decoder, and the keys and values that both of its passes share.

    Attributes:
        vectors: input of the query projection, [R, H].
        keys_values: keys and values, [T, heads, head size] each.
    """

    vectors: Tensor
    keys_values: tuple[Tensor, Tensor]


class DisentangledAttention(nn.Module):
    """Multi-head disentangled self-attention before its output projection; subclasses define the projections."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.heads, self.table = config.num_attention_heads, RelativeTable(config.half_table, config.bucket_reach)
        self.rate, self.dropout = config.attention_dropout, Dropout(config.hidden_dropout_prob)

    @abstractmethod
    def project_query(self, hidden: Tensor) -> Tensor:
        """[R, H] -> queries [R, H]."""

    @abstractmethod
    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[T, H] -> keys and values, [T, heads, head size] each."""

    @abstractmethod
    def project_positions(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of relative positions [rows, H] -> as queries and as keys, [rows, H] each."""

    def forward(
        self,
        hidden: Tensor,
        layout: PackedBatch,
        rows: QueryRows | None = None,
        decoder_query: DecoderQuery | None = None,
    ) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        context = disentangled_attention(self._inputs(hidden, layout, rows, decoder_query), self.table)
        return context.reshape(len(context), -1)

    def attention_probs(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        """Return the attention probabilities; see :class:`pipeline_src.models.bert.HasAttentionProbs`."""
        return disentangled_weights(self._inputs(hidden, layout), self.table)

    def _inputs(
        self,
        hidden: Tensor,
        layout: PackedBatch,
        rows: QueryRows | None = None,
        decoder_query: DecoderQuery | None = None,
    ) -> DisentangledInputs:
        kept = hidden if rows is None else hidden.index_select(0, rows.index)
        query = self.project_query(kept if decoder_query is None else decoder_query.vectors).view(
            len(kept), self.heads, -1
        )
        query_rows, key_rows = (
            part.view(len(part), self.heads, -1) for part in self.project_positions(self._used(layout))
        )
        key, value = self.keys_and_values(hidden) if decoder_query is None else decoder_query.keys_values
        positions = layout.position if rows is None else layout.position.index_select(0, rows.index)
        queries = layout if rows is None else rows.layout
        dropout = self.rate if self.training else 0.0
        return DisentangledInputs(query, key, value, query_rows, key_rows, layout, queries, positions, dropout)

    def _used(self, layout: PackedBatch) -> Tensor:
        """Relative position embeddings that the batch uses, [rows, H]."""
        (table,) = layout.cache[TABLE_KEY]
        return self.dropout(table[self.table.in_use(layout.max_seqlen)])


class DebertaBlock(Block):
    """BERT's block, whose queries may come from another input than its keys and values."""

    Attention = DisentangledAttention
    FORWARD_METHODS = ("keys_and_values",)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of this block's attention."""
        keys_values: tuple[Tensor, Tensor] = self.attention["self"].keys_and_values(hidden)
        return keys_values

    def forward(
        self,
        hidden: Tensor,
        layout: PackedBatch,
        rows: QueryRows | None = None,
        decoder_query: DecoderQuery | None = None,
    ) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        kept = hidden if rows is None else hidden.index_select(0, rows.index)
        kept = kept if decoder_query is None else decoder_query.vectors
        inner = self.attention["output"](self.attention["self"](hidden, layout, rows, decoder_query), kept)
        return self.output(F.gelu(self.intermediate["dense"](inner), approximate=self.approximate), inner)


class DebertaEncoder(Encoder):
    """Stack of blocks, and the relative position embeddings that they share."""

    Block = DebertaBlock

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.rel_embeddings = nn.Embedding(2 * config.half_table, config.hidden_size)

    def table(self) -> Tensor:
        """Return the relative position embeddings, [rows, H]."""
        return self.rel_embeddings.weight

    def forward(self, hidden: Tensor, layout: PackedBatch, rows: QueryRows | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the query rows of the last block."""
        layout.cache[TABLE_KEY] = (self.table(),)
        return super().forward(hidden, layout, rows)

    def hidden_states(self, hidden: Tensor, layout: PackedBatch) -> list[Tensor]:
        layout.cache[TABLE_KEY] = (self.table(),)
        return super().hidden_states(hidden, layout)

    def decode(self, hidden: Tensor, layout: PackedBatch, rows: QueryRows | None, positions: nn.Embedding) -> Tensor:
        """Run the enhanced mask decoder (section 3.2), which applies the last block twice.

        The queries of the first pass have the absolute positions added; both passes use the same keys and values.
        """
        layout.cache[TABLE_KEY] = (self.table(),)
        *before, last = self.blocks()
        hidden = self.run_blocks(before, hidden, layout)
        position = layout.position if rows is None else layout.position.index_select(0, rows.index)
        query = hidden if rows is None else hidden.index_select(0, rows.index)
        query = query + positions(position).to(hidden.dtype)  # one dtype, and so one compiled graph, for both passes
        keys_values = last.keys_and_values(hidden)
        for _ in range(DECODINGS):
            query = last(hidden, layout, rows, DecoderQuery(query, keys_values))
        return query


class ContextPooler(Pooler):
    """Dense layer with GELU below task heads; pretraining does not train it."""

    def forward(self, token: Tensor) -> Tensor:
        return F.gelu(self.dense(token))


class DebertaModel(Bert):
    """Base class of DeBERTa's encoders; subclasses define the attention."""

    config: DebertaConfig
    Encoder: type[nn.Module] = DebertaEncoder
    Pooler = ContextPooler

    def decode(self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch, rows: QueryRows | None = None) -> Tensor:
        """Return the output of the mask decoder, or of the encoder if there is none."""
        if not self.config.mask_decoder:
            return self.encode(ids, token_type_ids, layout, rows)
        hidden = self.embeddings(ids, token_type_ids, layout)
        return self.encoder.decode(hidden, layout, rows, self.embeddings.position_embeddings)


@dataclass(frozen=True)
class DebertaV1Config(DebertaConfig):
    """Config of DeBERTa version 1."""

    names: ClassVar[StateDictAdapter] = deberta_names(
        StateDictAdapter(
            model_type="deberta",
            title="DeBERTa",
            paper="He et al. 2021, [DeBERTa](https://arxiv.org/abs/2006.03654)",
            classes={
                "pretraining": "DebertaForMaskedLM",
                "masked_lm": "DebertaForMaskedLM",
                "next_sentence": "DebertaModel",
                "encoder": "DebertaModel",
                "sequence": "DebertaForSequenceClassification",
                "choice": "DebertaModel",  # transformers has none for choices
                "span": "DebertaForQuestionAnswering",
                "token": "DebertaForTokenClassification",
            },
            output_layers={},
        )
    )


class PackedAttention(DisentangledAttention):
    """Disentangled attention with one matrix for the query, key and value of each head; keys have no bias."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.in_proj = nn.Linear(width, 3 * width, bias=False)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.pos_proj = nn.Linear(width, width, bias=False)
        self.pos_q_proj = nn.Linear(width, width)

    def custom_init(self) -> None:
        self.q_bias.zero_()
        self.v_bias.zero_()

    def project_query(self, hidden: Tensor) -> Tensor:
        """[R, H] -> queries [R, H]."""
        return F.linear(hidden, self._weights[:, 0].reshape(len(self.q_bias), -1), self.q_bias)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[T, H] -> keys and values, [T, heads, head size] each."""
        key, value = F.linear(hidden, self._weights[:, 1:].flatten(0, 2)).view(
            len(hidden), self.heads, 2, -1
        ).unbind(2)  # fmt: skip
        return key, value + self.v_bias.view(self.heads, -1)

    def project_positions(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of relative positions [rows, H] -> as queries and as keys, [rows, H] each."""
        return self.pos_q_proj(table), self.pos_proj(table)

    @property
    def _weights(self) -> Tensor:
        """Weights of query, key and value, [heads, 3, head size, H]."""
        return self.in_proj.weight.view(self.heads, 3, -1, self.in_proj.in_features)


class DebertaV1Block(DebertaBlock):
    """Block of DeBERTa version 1."""

    Attention = PackedAttention


class DebertaV1Encoder(DebertaEncoder):
    """Stack of blocks of DeBERTa version 1."""

    Block = DebertaV1Block


class Deberta(DebertaModel):
    """DeBERTa version 1's encoder."""

    Encoder = DebertaV1Encoder


ARCHITECTURE = Architecture(config=DebertaV1Config, encoder=Deberta)
