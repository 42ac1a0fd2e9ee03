"""DeBERTa (He et al. 2021): disentangled attention over relative positions, and the enhanced mask decoder.

Absolute positions are not added at the input. ``family/deberta_v2`` builds on the classes of this module.
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

from pipeline_src.base.names import shown
from pipeline_src.model.adapter import BERT, StateDictAdapter, huggingface_classes
from pipeline_src.model.attention import (
    MAX_GROUP_PROBS,
    Dropout,
    PackedBatch,
    QueryRows,
    apply_dropout,
    attention_probs_of,
    in_float32,
)
from pipeline_src.model.bert import Architecture, Bert, BertConfig, Block, Encoder, GeluPooler
from pipeline_src.model.flops import Workload, block_flops, head_flops
from pipeline_src.study.model import ModelParams

# The attention logit is the sum of three products: content to content, content to position, position to content.
KINDS = 3


def log_buckets(distances: Tensor, buckets: int, reach: int) -> Tensor:
    """Map signed distances to signed bucket numbers, as in DeBERTa's da_utils.py.

    Each sign has ``buckets`` buckets. Up to a distance of ``buckets`` / 2, each distance has its own bucket. Larger
    distances share buckets of logarithmic width, and the last bucket ends at the distance ``reach``.
    """
    middle = buckets // 2
    far = distances.abs().clamp(min=middle).float()
    # 0 at the distance `middle`, and 1 at the distance `reach` - 1.
    fraction = (far / middle).log() / torch.log(torch.tensor((reach - 1) / middle))
    steps = torch.ceil(fraction * (middle - 1)) + middle
    return torch.where(distances.abs() <= middle, distances, steps.long() * distances.sign())


@dataclass(frozen=True)
class RelativeTable:
    """Mapping from query-key distances to relative position embeddings.

    Attributes:
        half: half the number of embeddings.
        reach: distance at which the last bucket ends. None: each distance has its own embedding.
    """

    half: int
    reach: int | None = None

    def lookup(self, distances: Tensor) -> Tensor:
        # Maps distances, int64 of any shape, to indices of embeddings.
        index = distances if self.reach is None else log_buckets(distances, self.half, self.reach)
        return (index + self.half).clamp(0, 2 * self.half - 1)

    def in_use(self, length: int) -> slice:
        # Returns the slice of embeddings that sequences of up to `length` tokens use, and at most one more on each
        # side. It is computed on the host, without synchronising with a GPU.
        far = length - 1
        middle = self.half // 2
        if self.reach is not None and far > middle:
            # Add one bucket, since the rounding here may differ from that of log_buckets.
            fraction = math.log(far / middle) / math.log((self.reach - 1) / middle)
            far = middle + 1 + math.ceil(fraction * (middle - 1))

        # The embedding of the distance 0 is in the middle.
        first = max(0, self.half - far)
        stop = min(2 * self.half, self.half + far + 1)
        return slice(first, stop)


@lru_cache(maxsize=1024)
def distance_index(length: int, table: RelativeTable) -> Tensor:
    # Returns the index of the embedding for each distance from 1 - length to length - 1, int64 [2 length - 1].
    return table.lookup(torch.arange(1 - length, length))


@dataclass(frozen=True)
class DisentangledInputs:
    """Inputs of disentangled attention.

    Attributes:
        query: [R, heads, head size].
        key, value: [T, heads, head size].
        position_query, position_key: projections of the P relative position embeddings that the longest sequence uses
            (see ``RelativeTable.in_use``), [P, heads, head size].
        layout: layout of the keys and values.
        queries: layout of the queries. It is ``layout`` itself if every token is a query.
        positions: position of each query in its sequence, int64 [R].
    """

    query: Tensor
    key: Tensor
    value: Tensor
    position_query: Tensor
    position_key: Tensor
    layout: PackedBatch
    queries: PackedBatch
    positions: Tensor
    dropout: float = 0.0

    def scaled(self) -> DisentangledInputs:
        # Scales the queries, and transposes position_query to [heads, P, size] and position_key to [heads, size, P].
        scale = (KINDS * self.query.shape[2]) ** -0.5
        return replace(
            self,
            query=self.query * scale,
            position_query=(self.position_query * scale).transpose(0, 1),
            position_key=self.position_key.permute(1, 2, 0),
        )


def disentangled_attention(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Compute DeBERTa's disentangled attention.

    The logit of a query and a key is the sum of three products, divided by sqrt(3 x head size): content to content,
    content to position and position to content. Position means the embedding of the query-key distance. As in DeBERTa's
    code, both position terms use the same embedding. In equation 4 of the paper, position to content uses the embedding
    of the opposite distance.

    Returns:
        [R, heads, head size].
    """
    compute = disentangled_padded if inputs.query.is_cuda else disentangled_grouped
    return compute(inputs.scaled(), table)


def disentangled_padded(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    # Computes attention in padded tensors, without synchronising with a GPU.
    layout = inputs.layout
    logits = _padded_logits(inputs, table)
    if layout.keep is not None:
        logits = logits.masked_fill(~layout.keep[:, None, None], -torch.inf)
    values = layout.pad(inputs.value).transpose(1, 2)
    context = _weighted_average(logits, values, inputs.dropout)
    return inputs.queries.unpad(context.transpose(1, 2))


def disentangled_probs(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Return the attention probabilities of ``disentangled_attention``, [B, heads, L, L]."""
    return attention_probs_of(_padded_logits(inputs.scaled(), table).float(), inputs.layout)


def _padded_logits(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    # Returns [B, heads, queries, L].
    layout = inputs.layout
    queries = inputs.queries
    # Compute each query's distance to each token, and the index of the distance's embedding, [B or 1, 1, queries, L].
    positions = torch.arange(layout.max_seqlen, device=inputs.positions.device)
    query_positions = positions[None] if queries is layout else queries.pad(inputs.positions)
    distances = query_positions[:, None, :, None] - positions
    first = table.in_use(layout.max_seqlen).start
    index = table.lookup(distances) - first
    # Queries are [B, heads, queries, head size], keys [B, heads, L, head size].
    q = queries.pad(inputs.query).transpose(1, 2)
    k = layout.pad(inputs.key).transpose(1, 2)
    index = index.expand(*q.shape[:3], layout.max_seqlen)
    return _logits(q, k, inputs.position_query, inputs.position_key, index)


@in_float32
def disentangled_grouped(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    # Computes sequences of equal length together, which is faster on a CPU.
    _, heads, size = inputs.query.shape
    groups = inputs.layout.groups(inputs.queries, MAX_GROUP_PROBS // heads)
    query_counts = [count * num_queries for count, num_queries, _ in groups]
    token_counts = [count * length for count, _, length in groups]
    queries = inputs.query.split(query_counts)
    keys = inputs.key.split(token_counts)
    values = inputs.value.split(token_counts)
    positions = inputs.positions.split(query_counts)

    # The inputs have the embeddings that the longest sequence uses. Shorter sequences use a slice from their middle.
    first = table.in_use(inputs.layout.max_seqlen).start
    contexts = []
    for number, (count, num_queries, length) in enumerate(groups):
        q = queries[number].view(count, -1, heads, size).transpose(1, 2)
        k = keys[number].view(count, -1, heads, size).transpose(1, 2)
        v = values[number].view(count, -1, heads, size).transpose(1, 2)

        in_use = table.in_use(length)
        window = slice(in_use.start - first, in_use.stop - first)
        position_query = inputs.position_query[:, window]
        position_key = inputs.position_key[:, :, window]
        # Look up the embedding of each (query, token) pair. If every token is a query, the index depends on the length
        # only, and is cached.
        if num_queries == length:
            index = _pair_index(length, table)[None, None]
        else:
            position = positions[number].view(count, 1, num_queries, 1)
            distances = position - torch.arange(length, device=position.device)
            index = distance_index(length, table)[distances + length - 1] - in_use.start
        index = index.expand(count, heads, num_queries, length)

        logits = _logits(q, k, position_query, position_key, index)
        context = _weighted_average(logits, v, inputs.dropout)
        contexts.append(context.transpose(1, 2).reshape(-1, heads, size))
    return torch.cat(contexts)


def _logits(q: Tensor, k: Tensor, position_query: Tensor, position_key: Tensor, index: Tensor) -> Tensor:
    # Returns [B, heads, queries, L].
    logits = q @ k.transpose(2, 3)
    logits = logits + (q @ position_key).gather(3, index)
    return logits + (position_query @ k.transpose(2, 3)).gather(2, index)


def _weighted_average(logits: Tensor, values: Tensor, dropout: float) -> Tensor:
    # Maps values [B, heads, L, size] and logits [B, heads, queries, L] to [B, heads, queries, size].
    return apply_dropout(F.softmax(logits.float(), -1).to(values.dtype), dropout) @ values


# 64 entries of length 512 would take 128 MB.
@lru_cache(maxsize=64)
def _pair_index(length: int, table: RelativeTable) -> Tensor:
    # Returns, for each (query, key) pair, the index of its embedding among those in use, int64 [length, length].
    positions = torch.arange(length)
    return distance_index(length, table)[positions[:, None] - positions + length - 1] - table.in_use(length).start


# Key of PackedBatch.cache for the relative position embeddings.
TABLE_KEY = "relative positions"
# The mask decoder applies the last block this many times (DeBERTa's masked_language_model.py).
DECODINGS = 2
# Number of dot products for each pair of tokens: three for the logit, one for the value.
PRODUCTS = 4


def deberta_names(names: StateDictAdapter) -> StateDictAdapter:
    # Adds the parameter names and config keys that all versions of DeBERTa share.
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
    return replace(names, from_hf=from_hf, to_hf=to_hf, absent=absent, fixed=fixed, written=written)


@dataclass(frozen=True)
class DebertaConfig(BertConfig):
    """Config of DeBERTa. Absolute positions are used only by the mask decoder, which transformers lacks."""

    names: ClassVar[StateDictAdapter] = deberta_names(
        StateDictAdapter(
            model_type="deberta",
            title="DeBERTa",
            paper="He et al. 2021, [DeBERTa](https://arxiv.org/abs/2006.03654)",
            # transformers has no class for multiple choice.
            classes=huggingface_classes("Deberta", choice="Model"),
        )
    )
    # DeBERTa's nnmodule.py does not truncate initial weights.
    initializer_cutoff_factor: ClassVar[float | None] = None
    layer_norm_eps: float = 1e-7
    type_vocab_size: int = 0
    mask_decoder: bool = False
    # True only in imported models.
    position_biased_input: bool = False
    # The maximum distance. A value below 1 means ``max_position_embeddings``.
    max_relative_positions: int = -1

    @classmethod
    def from_params(cls, params: ModelParams, vocab_size: int, causal: bool = False, **run: Any) -> Self:
        return replace(super().from_params(params, vocab_size, causal, **run), mask_decoder=True)

    @classmethod
    def from_hf_config(cls, raw: dict[str, Any]) -> dict[str, Any]:
        hidden = raw.get("hidden_size")
        for key in ("embedding_size", "pooler_hidden_size"):
            if raw.get(key, hidden) != hidden:
                raise ValueError(f"{key} is {shown(raw[key])}, not {shown(hidden)}, the hidden_size")
        # The value is "p2c|c2p", or a list of these two names.
        kinds = raw.get("pos_att_type")
        if isinstance(kinds, str):
            kinds = [kind.strip() for kind in kinds.lower().split("|")]
        if isinstance(kinds, list):
            kinds = sorted(map(str, kinds))
        return {**raw, "pos_att_type": kinds}

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
    def max_distance(self) -> int:
        # All distances from this one on share one embedding.
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings

    @property
    def relative_table(self) -> RelativeTable:
        return RelativeTable(self.max_distance)

    def training_flops(self, work: Workload) -> int:
        # Compared with BERT, each pair of tokens has two more products, and the mask decoder runs if tokens are
        # predicted. Relative positions are projected once per batch, which is not counted.
        blocks = (self.num_hidden_layers - 1) * block_flops(self, work.tokens, work.sum_len_squared, products=PRODUCTS)
        last = block_flops(self, work.num_outputs, work.attended_pairs, products=PRODUCTS, key_tokens=work.tokens)
        flops = blocks + last + head_flops(self, work.predictions)
        if self.mask_decoder and work.predictions:
            again = block_flops(self, work.num_outputs, work.attended_pairs, products=PRODUCTS, key_tokens=0)
            flops += (DECODINGS - 1) * again
        return flops


class DecoderQuery(NamedTuple):
    # The inputs of one pass of the mask decoder.

    # The input of the query projection, [R, H].
    vectors: Tensor
    # Keys and values, [T, heads, head size] each.
    keys_values: tuple[Tensor, Tensor]


class DisentangledAttention(nn.Module):
    """Base class of multi-head disentangled self-attention, without the output projection."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.table = config.relative_table
        self.rate = config.attention_dropout
        self.dropout = Dropout(config.hidden_dropout_prob)

    @abstractmethod
    def project_query(self, hidden: Tensor) -> Tensor:
        """Project hidden states to queries, [R, H] -> [R, H]."""

    @abstractmethod
    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Project hidden states to keys and values, [T, H] -> two tensors [T, heads, head size]."""

    @abstractmethod
    def project_positions(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Project relative position embeddings to queries and keys, [P, H] -> two tensors [P, H]."""

    def forward(
        self,
        hidden: Tensor,
        layout: PackedBatch,
        query_rows: QueryRows | None = None,
        decoder_query: DecoderQuery | None = None,
    ) -> Tensor:
        context = disentangled_attention(self._inputs(hidden, layout, query_rows, decoder_query), self.table)
        return context.reshape(len(context), -1)

    def attention_probs(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        return disentangled_probs(self._inputs(hidden, layout), self.table)

    def _inputs(
        self,
        hidden: Tensor,
        layout: PackedBatch,
        query_rows: QueryRows | None = None,
        decoder_query: DecoderQuery | None = None,
    ) -> DisentangledInputs:
        if query_rows is None:
            query_hidden = hidden
            positions = layout.position
            queries = layout
        else:
            query_hidden = hidden.index_select(0, query_rows.index)
            positions = layout.position.index_select(0, query_rows.index)
            queries = query_rows.layout
        if decoder_query is not None:
            query_hidden = decoder_query.vectors
        query = self.project_query(query_hidden).view(len(query_hidden), self.heads, -1)
        (table,) = layout.cache[TABLE_KEY]
        in_use = self.dropout(table[self.table.in_use(layout.max_seqlen)])
        position_query, position_key = self.project_positions(in_use)
        key, value = self.keys_and_values(hidden) if decoder_query is None else decoder_query.keys_values
        return DisentangledInputs(
            query=query,
            key=key,
            value=value,
            position_query=position_query.view(len(in_use), self.heads, -1),
            position_key=position_key.view(len(in_use), self.heads, -1),
            layout=layout,
            queries=queries,
            positions=positions,
            dropout=self.rate if self.training else 0.0,
        )


class PackedAttention(DisentangledAttention):
    # One matrix projects hidden states to queries, keys and values. Keys have no bias.

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.in_proj = nn.Linear(width, 3 * width, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(width))
        self.v_bias = nn.Parameter(torch.zeros(width))
        self.pos_proj = nn.Linear(width, width, bias=False)
        self.pos_q_proj = nn.Linear(width, width)

    def custom_init(self) -> None:
        self.q_bias.zero_()
        self.v_bias.zero_()

    def project_query(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self._weights[:, 0].reshape(len(self.q_bias), -1), self.q_bias)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        projected = F.linear(hidden, self._weights[:, 1:].flatten(0, 2))
        key, value = projected.view(len(hidden), self.heads, 2, -1).unbind(2)
        return key, value + self.v_bias.view(self.heads, -1)

    def project_positions(self, table: Tensor) -> tuple[Tensor, Tensor]:
        return self.pos_q_proj(table), self.pos_proj(table)

    @property
    def _weights(self) -> Tensor:
        # The weights of the query, key and value projections, [heads, 3, head size, H].
        return self.in_proj.weight.view(self.heads, 3, -1, self.in_proj.in_features)


class DebertaBlock(Block):
    # In the mask decoder, the input of the queries differs from that of the keys and values.

    Attention: type[nn.Module] = PackedAttention
    FORWARD_METHODS = ("keys_and_values",)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        keys_values: tuple[Tensor, Tensor] = self.attention["self"].keys_and_values(hidden)
        return keys_values

    def forward(
        self,
        hidden: Tensor,
        layout: PackedBatch,
        query_rows: QueryRows | None = None,
        decoder_query: DecoderQuery | None = None,
    ) -> Tensor:
        residual = hidden if query_rows is None else hidden.index_select(0, query_rows.index)
        if decoder_query is not None:
            residual = decoder_query.vectors
        context = self.attention["self"](hidden, layout, query_rows, decoder_query)
        attended = self.attention["output"](context, residual)
        inner = F.gelu(self.intermediate["dense"](attended), approximate=self.approximate)
        return self.output(inner, attended)


class DebertaEncoder(Encoder):
    Block: type[nn.Module] = DebertaBlock

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.rel_embeddings = nn.Embedding(2 * config.relative_table.half, config.hidden_size)

    def table(self) -> Tensor:
        # Returns the relative position embeddings, which all blocks share, [2 x relative_table.half, H].
        return self.rel_embeddings.weight

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        layout.cache[TABLE_KEY] = (self.table(),)
        return super().forward(hidden, layout, query_rows)

    def hidden_states(self, hidden: Tensor, layout: PackedBatch) -> list[Tensor]:
        layout.cache[TABLE_KEY] = (self.table(),)
        return super().hidden_states(hidden, layout)

    def decode(
        self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None, positions: nn.Embedding
    ) -> Tensor:
        """Run the enhanced mask decoder (He et al. 2021, section 3.2), which applies the last block twice.

        Before the first pass, absolute position embeddings are added to the queries. Both passes use the same keys and
        values.
        """
        layout.cache[TABLE_KEY] = (self.table(),)
        *before, last = self.blocks()
        hidden = self.run_blocks(before, hidden, layout)
        position = layout.position if query_rows is None else layout.position.index_select(0, query_rows.index)
        query = hidden if query_rows is None else hidden.index_select(0, query_rows.index)
        # The cast gives both passes the same dtype, so that they share one compiled graph.
        query = query + positions(position).to(hidden.dtype)
        keys_values = last.keys_and_values(hidden)
        for _ in range(DECODINGS):
            query = last(hidden, layout, query_rows, DecoderQuery(query, keys_values))
        return query


class Deberta(Bert):
    config: DebertaConfig
    Encoder: type[nn.Module] = DebertaEncoder
    Pooler = GeluPooler

    def decode(
        self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None
    ) -> Tensor:
        if not self.config.mask_decoder:
            return self.encode(ids, token_type_ids, layout, query_rows)
        hidden = self.embeddings(ids, token_type_ids, layout)
        return self.encoder.decode(hidden, layout, query_rows, self.embeddings.position_embeddings)


ARCHITECTURE = Architecture(config=DebertaConfig, encoder=Deberta)
