"""ModernBERT (Warner et al. 2024): pre-norm without biases, gated feed-forward, rotary positions, local attention.

Every third block sees the whole sequence, the others a window. Its masks, its optimiser and its schedule are no part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import Bert, BertConfig, Block, Embeddings, Encoder
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.flops import Workload, block_flops, head_flops
from pipeline_src.models.layer_norm import LayerNorm
from pipeline_src.models.names import BERT, SAVED_ACTIVATIONS, Names
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.models.rotary import RotaryAttention, rotary_tables
from pipeline_src.params.model import ModelParams

EVEN = "head"  # rotary positions turn pairs of numbers
REFUSED_OBJECTIVES = {
    "left_to_right": "it reads both directions, and transformers has no class for one",
    "layers": "its queries and keys are one projection, turned by their places",
}
MATRICES = 3  # of the feed-forward layer: input, gate, output
TASKS = ("sequence", "choice", "span", "token")
HEAD = ((r"^bert\.pooler\.dense\.", "head.dense."), (r"^bert\.pooler\.LayerNorm\.", "head.norm."))
OUR_HEAD = ((r"^head\.dense\.", "bert.pooler.dense."), (r"^head\.norm\.", "bert.pooler.LayerNorm."))

MODERNBERT = Names(
    model_type="modernbert",
    title="ModernBERT",
    paper="Warner et al. 2024, [Smarter, Better, Faster, Longer](https://arxiv.org/abs/2412.13663)",
    classes={
        "pretraining": "ModernBertForMaskedLM",
        "masked_words": "ModernBertForMaskedLM",
        "next_sentence": "ModernBertModel",
        "encoder": "ModernBertModel",
        "sequence": "ModernBertForSequenceClassification",
        "choice": "ModernBertForMultipleChoice",
        "span": "ModernBertForQuestionAnswering",
        "token": "ModernBertForTokenClassification",
    },
    output_layers=dict.fromkeys(BERT.output_layers, "classifier"),
    keys=dict(
        hidden_act="hidden_activation",
        layer_norm_eps="norm_eps",
        hidden_dropout_prob="mlp_dropout",
        attention_probs_dropout_prob="attention_dropout",
    ),  # fmt: skip
    written={"bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None},
    fixed={
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), (False,)),
        **{"decoder_bias": (True,), "embedding_dropout": (0.0,), "classifier_pooling": ("cls",)},
    },
    loaded=(
        (r"^(embeddings|layers|final_norm)\.", r"model.\1."),
        (r"^model\.embeddings\.tok_embeddings\.", "bert.embeddings.word_embeddings."),
        (r"^model\.embeddings\.norm\.", "bert.embeddings.LayerNorm."),
        (r"^model\.final_norm\.", "bert.encoder.LayerNorm."),
        (r"^model\.layers\.(\d+)\.(attn|mlp)_norm\.", r"bert.encoder.layer.\1.\2_LayerNorm."),
        (r"^model\.layers\.(\d+)\.(attn|mlp)\.", r"bert.encoder.layer.\1.\2."),
        (r"^head\.dense\.", "cls.predictions.transform.dense."),
        (r"^head\.norm\.", "cls.predictions.transform.LayerNorm."),
        *((r"^decoder\.", "cls.predictions.decoder."), (r"^pooler\.", "bert.pooler.")),
    ),
    saved=(
        (r"^bert\.embeddings\.word_embeddings\.", "model.embeddings.tok_embeddings."),
        (r"^bert\.embeddings\.LayerNorm\.", "model.embeddings.norm."),
        (r"^bert\.encoder\.LayerNorm\.", "model.final_norm."),
        (r"^bert\.encoder\.layer\.(\d+)\.(attn|mlp)_LayerNorm\.", r"model.layers.\1.\2_norm."),
        (r"^bert\.encoder\.layer\.", "model.layers."),
        (r"^cls\.predictions\.transform\.dense\.", "head.dense."),
        (r"^cls\.predictions\.transform\.LayerNorm\.", "head.norm."),
        (r"^(cls\.predictions|bert)\.(decoder|pooler)\.", r"\2."),
    ),
    loaded_tasks=dict.fromkeys(TASKS, OUR_HEAD),
    saved_tasks=dict.fromkeys(TASKS, HEAD),
)


@dataclass(frozen=True)
class ModernBertConfig(BertConfig):
    """The window is ``local_attention`` tokens wide; rotary positions turn by each kind of block's own theta."""

    names: ClassVar[Names] = MODERNBERT
    layer_norm_eps: ClassVar[float] = 1e-5
    head_bias: ClassVar[bool] = False
    type_vocab_size: int = 0
    local_attention: int = 128
    global_attn_every_n_layers: int = 3
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0

    @classmethod
    def from_params(cls, params: ModelParams, entries: int, causal: bool = False, **run: Any) -> Self:
        """As :meth:`BertConfig.from_params`, but that a feed-forward layer has 1.5 H where nothing is said (base)."""
        inner = params.feed_forward or 3 * params.hidden // 2
        return super().from_params(params.model_copy(update={"feed_forward": inner}), entries, causal, **run)

    @classmethod
    def understood(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """As of transformers 5, whose ``config.json`` lists every block's kind, and theta by kind."""
        kinds, turns = raw.get("layer_types"), raw.get("rope_parameters")
        kinds, turns = kinds if isinstance(kinds, list) else [], turns if isinstance(turns, dict) else {}
        whole = [number for number, kind in enumerate(kinds) if kind == "full_attention"]
        listed = {"global_attn_every_n_layers": whole[1] if len(whole) > 1 else len(kinds)} if kinds else {}
        for key, kind in (("global_rope_theta", "full_attention"), ("local_rope_theta", "sliding_attention")):
            if isinstance(turns.get(kind), dict) and "rope_theta" in turns[kind]:
                listed[key] = turns[kind]["rope_theta"]
        return {**listed, **raw}

    def as_dict(self) -> dict[str, Any]:
        """As :meth:`BertConfig.as_dict`; transformers asks for the head's activation apart."""
        return {**super().as_dict(), "classifier_activation": SAVED_ACTIVATIONS[self.hidden_act]}

    @property
    def head_scale(self) -> float:
        """As of every layer that ends in the residual stream."""
        return (2 * self.num_hidden_layers) ** -0.5

    def is_global(self, number: int) -> bool:
        """Whether the block of this number, from 0, sees the whole sequence."""
        return number % self.global_attn_every_n_layers == 0

    def training_flops(self, work: Workload) -> int:
        """As :func:`pipeline_src.models.flops.training_flops`, with a gate, and pairs within the window alone."""
        whole, local = work.squares, self.local_pairs(work)
        seen = [whole if self.is_global(number) else local for number in range(self.num_hidden_layers)]
        blocks = sum(block_flops(self, work.tokens, pairs, MATRICES) for pairs in seen[:-1])
        last = block_flops(self, work.rows, work.row_pairs * seen[-1] // max(1, whole), MATRICES, asked_of=work.tokens)
        return blocks + last + head_flops(self, work.predictions)

    def local_pairs(self, work: Workload) -> int:
        """Pairs of tokens within the window; exact where sequences are all as long as half a window, or all shorter."""
        reach = self.local_attention // 2
        if work.tokens < reach * work.sequences:
            return work.squares
        return min(work.squares, (2 * reach + 1) * work.tokens - reach * (reach + 1) * work.sequences)


class ModernBertEmbeddings(Embeddings):
    """Tokens alone."""

    def __init__(self, config: BertConfig) -> None:
        super(Embeddings, self).__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
        self.positions_start = "learned"  # of which there are none

    def forward(self, ids: Tensor, segments: Tensor, layout: PackedLayout) -> Tensor:
        """[T] ids -> [T, H]; ``segments`` are not read."""
        return self.LayerNorm(self.word_embeddings(ids))


class GatedFeedForward(nn.Module):
    """GeGLU (Shazeer 2020, GLU Variants Improve Transformer)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.Wi = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.Wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.dropout, self.approximate = Dropout(config.hidden_dropout_prob), config.gelu

    def forward(self, hidden: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        inner, gate = self.Wi(hidden).chunk(2, dim=-1)
        return self.Wo(self.dropout(F.gelu(inner, approximate=self.approximate) * gate))


class ModernBertBlock(Block):
    """LayerNorm, attention, residual; LayerNorm, feed-forward, residual. The embeddings' LayerNorm serves the first."""

    def __init__(self, config: ModernBertConfig, number: int) -> None:
        super(Block, self).__init__()
        norms = [LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False) for _ in range(2)]
        self.attn_LayerNorm, self.mlp_LayerNorm = norms[0] if number else nn.Identity(), norms[1]
        whole = config.is_global(number)
        theta = config.global_rope_theta if whole else config.local_rope_theta
        self.attn = RotaryAttention(config, theta, None if whole else config.local_attention // 2)
        self.mlp = GatedFeedForward(config)
        self.scale = config.head_scale

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        kept = hidden if rows is None else hidden.index_select(0, rows.index)
        hidden = kept + self.attn(self.attn_LayerNorm(hidden), layout, rows)
        return hidden + self.mlp(self.mlp_LayerNorm(hidden))

    def adjust_initial_weights(self) -> None:
        """What ends in the residual stream starts smaller, the more blocks there are."""
        self.attn.Wo.weight.mul_(self.scale)
        self.mlp.Wo.weight.mul_(self.scale)


class ModernBertEncoder(Encoder):
    """The stack of blocks, and a LayerNorm at its end."""

    def __init__(self, config: ModernBertConfig) -> None:
        nn.Module.__init__(self)
        self.layer = nn.ModuleList(ModernBertBlock(config, number) for number in range(config.num_hidden_layers))
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
        self.recompute, self.head_size = config.recompute, config.head_size
        self.thetas = {config.global_rope_theta, config.local_rope_theta}

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows of which what the last block makes is read."""
        self._turn(layout)
        return self.LayerNorm(super().forward(hidden, layout, rows))

    def states(self, hidden: Tensor, layout: PackedLayout) -> list[Tensor]:
        """As :meth:`Encoder.states`, the last after the LayerNorm."""
        self._turn(layout)
        *states, last = super().states(hidden, layout)
        return [*states, self.LayerNorm(last)]

    def _turn(self, layout: PackedLayout) -> None:
        """Make the tables of rotary positions, once for all blocks."""
        for theta in self.thetas - layout.tables.keys():
            layout.tables[theta] = rotary_tables(layout.position, self.head_size, theta)


class PredictionHead(nn.Module):
    """What a task reads of a token; transformers has it below every output layer."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)

    def forward(self, token: Tensor) -> Tensor:
        """[B, H] -> [B, H]."""
        return self.LayerNorm(F.gelu(self.dense(token)))


class ModernBert(Bert):
    """ModernBERT's encoder."""

    Embeddings = ModernBertEmbeddings
    Encoder = ModernBertEncoder
    Pooler = PredictionHead

    def task_tokens(self, hidden: Tensor) -> Tensor:
        """As the pooler makes them."""
        return self.pooler(hidden)


ARCHITECTURE = Architecture(config=ModernBertConfig, encoder=ModernBert)
