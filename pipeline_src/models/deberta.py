"""What DeBERTa's versions share: no positions at the input, relative ones in every block, and the mask decoder."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.bert import Bert, BertConfig, Block, Embeddings, Encoder, Pooler
from pipeline_src.models.disentangled import (
    DisentangledInputs,
    RelativeTable,
    disentangled_attention,
    disentangled_weights,
)
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.flops import Workload, block_flops, head_flops
from pipeline_src.models.layer_norm import LayerNorm
from pipeline_src.models.names import BERT, Names
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.params.model import ModelParams

TABLE = "relative positions"  # among a layout's tables
DECODINGS = 2  # the last block is applied twice (DeBERTa's masked_language_model.py)
PRODUCTS = 4  # of vectors for a pair of tokens: three scores and the value


def deberta_names(names: Names, **changes: Any) -> Names:
    """``names`` with what all versions are called in a folder."""
    loaded = (
        (r"^deberta\.", "bert."),
        (r"^lm_predictions\.lm_head\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
        (r"^lm_predictions\.lm_head\.bias$", "cls.predictions.decoder.bias"),
        *BERT.loaded,
        *names.loaded,
    )
    saved = (
        *names.saved,
        (r"^cls\.predictions\.transform\.", "lm_predictions.lm_head."),
        (r"^cls\.predictions\.decoder\.bias$", "lm_predictions.lm_head.bias"),
        (r"^bert\.pooler\.", "pooler."),
        (r"^bert\.", "deberta."),
    )
    written = {
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": ["p2c", "c2p"],
        "max_relative_positions": -1,
        "legacy": False,
        **names.written,
    }
    return replace(names, output_layers=BERT.output_layers, loaded=loaded, saved=saved, written=written, **changes)


@dataclass(frozen=True)
class DebertaConfig(BertConfig):
    """Absolute positions come in at the mask decoder alone; folders of transformers have none."""

    layer_norm_eps: ClassVar[float] = 1e-7
    initial_cut: ClassVar[float | None] = None  # DeBERTa's nnmodule.py
    type_vocab_size: int = 0
    mask_decoder: bool = False

    @classmethod
    def from_params(cls, params: ModelParams, entries: int, causal: bool = False, **run: Any) -> Self:
        """As :meth:`BertConfig.from_params`, with the mask decoder."""
        return replace(super().from_params(params, entries, causal, **run), mask_decoder=True)

    @property
    def lost_elsewhere(self) -> str:
        """The mask decoder; its encoder is the same there."""
        lost = "transformers has no mask decoder: what it predicts at [MASK] is worse than what this project does."
        return lost if self.mask_decoder else ""

    @property
    def half_table(self) -> int:
        """Half of the rows of relative positions."""
        return self.max_position_embeddings

    @property
    def bucket_reach(self) -> int | None:
        """The distance at which the last bucket ends; None where each distance has a row."""
        return None

    def training_flops(self, work: Workload) -> int:
        """As :func:`pipeline_src.models.flops.training_flops`, with two more products for a pair, and the decoder's.

        What positions are projected once a batch is left out. Where no word is predicted, the decoder does not run.
        """
        blocks = (self.num_hidden_layers - 1) * block_flops(self, work.tokens, work.squares, products=PRODUCTS)
        last = block_flops(self, work.rows, work.row_pairs, products=PRODUCTS, asked_of=work.tokens)
        again = block_flops(self, work.rows, work.row_pairs, products=PRODUCTS, asked_of=0)
        decoding = (DECODINGS - 1) * again if self.mask_decoder and work.predictions else 0
        return blocks + last + decoding + head_flops(self, work.predictions)


class Asked(NamedTuple):
    """What the mask decoder asks a block with.

    Attributes:
        vectors: queries are made of, instead of those that the block reads, [R, H].
        known: keys and values of what it reads, [T, heads, head size] each.
    """

    vectors: Tensor
    known: tuple[Tensor, Tensor]


class DebertaEmbeddings(Embeddings):
    """Tokens alone; it keeps the absolute positions that the mask decoder adds."""

    def __init__(self, config: DebertaConfig) -> None:
        super(Embeddings, self).__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.mask_decoder:
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.positions_start = config.positions_start if config.mask_decoder else "learned"

    def forward(self, ids: Tensor, segments: Tensor, layout: PackedLayout) -> Tensor:
        """[T] ids -> [T, H]; ``segments`` are not read."""
        return self.dropout(self.LayerNorm(self.word_embeddings(ids)))


class DisentangledAttention(nn.Module):
    """Multi-head disentangled self-attention before its output projection; a version says what projects."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.heads, self.table = config.num_attention_heads, RelativeTable(config.half_table, config.bucket_reach)
        self.rate, self.dropout = config.attention_dropout, Dropout(config.hidden_dropout_prob)

    @abstractmethod
    def ask(self, hidden: Tensor) -> Tensor:
        """[R, H] -> queries [R, H]."""

    @abstractmethod
    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[T, H] -> keys and values, [T, heads, head size] each."""

    @abstractmethod
    def project(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of relative positions [rows, H] -> as queries and as keys, [rows, H] each."""

    def forward(
        self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None, asked: Asked | None = None
    ) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        context = disentangled_attention(self._inputs(hidden, layout, rows, asked), self.table)
        return context.reshape(len(context), -1)

    def weights(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """[T, H] -> what each head gives each token; see :class:`pipeline_src.models.bert.GivesWeights`."""
        return disentangled_weights(self._inputs(hidden, layout), self.table)

    def _inputs(
        self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None, asked: Asked | None = None
    ) -> DisentangledInputs:
        kept = hidden if rows is None else hidden.index_select(0, rows.index)
        query = self.ask(kept if asked is None else asked.vectors).view(len(kept), self.heads, -1)
        query_rows, key_rows = (part.view(len(part), self.heads, -1) for part in self.project(self._used(layout)))
        key, value = self.keys_and_values(hidden) if asked is None else asked.known
        places = layout.position if rows is None else layout.position.index_select(0, rows.index)
        queries = layout if rows is None else rows.layout
        dropout = self.rate if self.training else 0.0
        return DisentangledInputs(query, key, value, query_rows, key_rows, layout, queries, places, dropout)

    def _used(self, layout: PackedLayout) -> Tensor:
        """The table's rows that the batch reads, [rows, H]."""
        (table,) = layout.tables[TABLE]
        return self.dropout(table[self.table.in_use(layout.max_seqlen)])


class DebertaBlock(Block):
    """BERT's, that can be asked with other vectors than those it reads."""

    Attention = DisentangledAttention
    CALLED = ("keys_and_values",)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`DisentangledAttention.keys_and_values`, of this block's attention."""
        known: tuple[Tensor, Tensor] = self.attention["self"].keys_and_values(hidden)
        return known

    def forward(
        self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None, asked: Asked | None = None
    ) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        kept = hidden if rows is None else hidden.index_select(0, rows.index)
        kept = kept if asked is None else asked.vectors
        inner = self.attention["output"](self.attention["self"](hidden, layout, rows, asked), kept)
        return self.output(F.gelu(self.intermediate["dense"](inner), approximate=self.approximate), inner)


class DebertaEncoder(Encoder):
    """The stack of blocks, and the table of relative positions that all of them read."""

    Block = DebertaBlock

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.rel_embeddings = nn.Embedding(2 * config.half_table, config.hidden_size)

    def table(self) -> Tensor:
        """Relative positions as the blocks read them, [rows, H]."""
        return self.rel_embeddings.weight

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows of which what the last block makes is read."""
        layout.tables[TABLE] = (self.table(),)
        return super().forward(hidden, layout, rows)

    def states(self, hidden: Tensor, layout: PackedLayout) -> list[Tensor]:
        """As :meth:`Encoder.states`."""
        layout.tables[TABLE] = (self.table(),)
        return super().states(hidden, layout)

    def decode(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None, positions: nn.Embedding) -> Tensor:
        """Enhanced mask decoder (section 3.2): the last block, twice, asked with the absolute positions added.

        Keys and values are those of the block before, both times.
        """
        layout.tables[TABLE] = (self.table(),)
        *before, last = self.blocks()
        hidden = self.through(before, hidden, layout)
        places = layout.position if rows is None else layout.position.index_select(0, rows.index)
        asking = hidden if rows is None else hidden.index_select(0, rows.index)
        asking = asking + positions(places).to(hidden.dtype)  # one type of both times, and so one graph
        known = last.keys_and_values(hidden)
        for _ in range(DECODINGS):
            asking = last(hidden, layout, rows, Asked(asking, known))
        return asking


class ContextPooler(Pooler):
    """Tasks have it; nothing in pretraining trains it."""

    def forward(self, token: Tensor) -> Tensor:
        """[B, H] -> [B, H]."""
        return F.gelu(self.dense(token))


class DebertaModel(Bert):
    """DeBERTa's encoder; a version gives its attention."""

    config: DebertaConfig
    Embeddings = DebertaEmbeddings
    Encoder = DebertaEncoder
    Pooler = ContextPooler

    def decode(self, ids: Tensor, segments: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """What the head of masked words reads: what the mask decoder makes, where there is one."""
        if not self.config.mask_decoder:
            return self.encode(ids, segments, layout, rows)
        hidden = self.embeddings(ids, segments, layout)
        return self.encoder.decode(hidden, layout, rows, self.embeddings.position_embeddings)
