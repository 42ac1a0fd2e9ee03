"""ModernBERT (Warner et al. 2024): pre-norm without biases, gated feed-forward, rotary positions, local attention.

Every third block attends to the whole sequence, and all other blocks to a window. Masking rate, optimizer and schedule
are not part of the encoder. They are settings in params.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.base.names import shown
from pipeline_src.model.adapter import ACTIVATIONS, SAVED_ACTIVATIONS, StateDictAdapter, huggingface_classes
from pipeline_src.model.attention import (
    Dropout,
    PackedBatch,
    QueryRows,
    Window,
    attention,
    attention_logits,
    attention_probs_of,
)
from pipeline_src.model.bert import Architecture, Bert, BertConfig, Embeddings, Encoder, LayerNorm, TransformerBlock
from pipeline_src.model.flops import Workload, block_flops, head_flops
from pipeline_src.study.model import ModelParams


def rope_cache(positions: Tensor, size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary angles (Su et al. 2021, section 3.2.2), [T, size / 2] each."""
    frequencies = theta ** -(torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size)
    angles = positions[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(vectors: Tensor, cache: tuple[Tensor, ...]) -> Tensor:
    """Apply rotary positions to vectors [T, ..., size], given the result of ``rope_cache``.

    The pairs that are rotated consist of elements i and i + size / 2.
    """
    cosines, sines = (table.view(len(table), *(1,) * (vectors.ndim - 2), -1) for table in cache)
    first, second = vectors.float().chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1).to(vectors.dtype)


class RotaryAttention(nn.Module):
    """Self-attention with rotary positions and output projection, without biases.

    The encoder must put the result of ``rope_cache`` into ``layout.cache[theta]``.

    Args:
        theta: base of the rotary frequencies.
        reach: number of tokens visible on each side. None: the whole sequence is visible.
    """

    def __init__(self, config: BertConfig, theta: float, reach: int | None) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.rate = config.attention_dropout
        self.back_end = config.attention
        self.theta = theta
        self.reach = reach
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.Wo = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        width = hidden.shape[1]
        cache = layout.cache[self.theta]
        if query_rows is None:
            # Queries and keys are rotated together.
            projected = self.Wqkv(hidden).view(len(hidden), 3, self.heads, -1)
            query_key, value = projected.split([2, 1], dim=1)
            query, key = rotate(query_key, cache).unbind(1)
            positions = layout.position
            queries = None
        else:
            rows = query_rows.index
            query = F.linear(hidden.index_select(0, rows), self.Wqkv.weight[:width])
            projected = F.linear(hidden, self.Wqkv.weight[width:])
            key, value = projected.view(len(hidden), 2, self.heads, -1).unbind(1)
            query_cache = tuple(table.index_select(0, rows) for table in cache)
            query = rotate(query.view(len(query), self.heads, -1), query_cache)
            key = rotate(key, cache)
            positions = layout.position.index_select(0, rows)
            queries = query_rows.layout

        value = value.reshape(key.shape)
        dropout = self.rate if self.training else 0.0
        # A global layer has no window.
        window = None if self.reach is None else Window(self.reach, positions)
        context = attention(query, key, value, layout, dropout, False, self.back_end, queries, window)
        return self.dropout(self.Wo(context.reshape(-1, width)))

    def attention_probs(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        query_key = F.linear(hidden, self.Wqkv.weight[: 2 * hidden.shape[1]]).view(len(hidden), 2, self.heads, -1)
        query, key = rotate(query_key, layout.cache[self.theta]).unbind(1)
        return attention_probs_of(attention_logits(query, key, layout), layout, reach=self.reach)


# Number of matrices in the feed-forward layer: input, gate and output.
MATRICES = 3
# transformers' names of the two kinds of layer.
GLOBAL, LOCAL = "full_attention", "sliding_attention"
TASKS = ("sequence", "choice", "span", "token")
HEAD = ((r"^bert\.pooler\.dense\.", "head.dense."), (r"^bert\.pooler\.LayerNorm\.", "head.norm."))
OUR_HEAD = ((r"^head\.dense\.", "bert.pooler.dense."), (r"^head\.norm\.", "bert.pooler.LayerNorm."))

MODERNBERT = StateDictAdapter(
    model_type="modernbert",
    title="ModernBERT",
    paper="Warner et al. 2024, [Smarter, Better, Faster, Longer](https://arxiv.org/abs/2412.13663)",
    classes=huggingface_classes("ModernBert"),
    output_layers=dict.fromkeys(TASKS, "classifier"),
    keys=dict(
        hidden_act="hidden_activation",
        layer_norm_eps="norm_eps",
        hidden_dropout_prob="mlp_dropout",
        attention_probs_dropout_prob="attention_dropout",
    ),
    absent={"max_position_embeddings": 8192, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    written={"bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None},
    fixed={
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), (False,)),
        **{"decoder_bias": (True,), "embedding_dropout": (0.0,), "classifier_pooling": ("cls",)},
        **{"rope_scaling": (None,), "is_decoder": (False,), "type_vocab_size": (0,)},
    },
    from_hf=(
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
    to_hf=(
        (r"^bert\.embeddings\.word_embeddings\.", "model.embeddings.tok_embeddings."),
        (r"^bert\.embeddings\.LayerNorm\.", "model.embeddings.norm."),
        (r"^bert\.encoder\.LayerNorm\.", "model.final_norm."),
        (r"^bert\.encoder\.layer\.(\d+)\.(attn|mlp)_LayerNorm\.", r"model.layers.\1.\2_norm."),
        (r"^bert\.encoder\.layer\.", "model.layers."),
        (r"^cls\.predictions\.transform\.dense\.", "head.dense."),
        (r"^cls\.predictions\.transform\.LayerNorm\.", "head.norm."),
        (r"^(cls\.predictions|bert)\.(decoder|pooler)\.", r"\2."),
    ),
    from_hf_tasks=dict.fromkeys(TASKS, OUR_HEAD),
    to_hf_tasks=dict.fromkeys(TASKS, HEAD),
)


def global_layer_interval(kinds: Any, num_layers: object) -> int:
    """Return n if the first and every n-th layer after it is global, and all other layers are local.

    Args:
        kinds: value of ``layer_types`` in config.json.
        num_layers: number of layers that it must have.

    Raises:
        ValueError: the layers follow no such rule, or their number is wrong.
    """
    # For example, in global, local, local, global, local, the second global layer has the index 3, which is n.
    layers = kinds if isinstance(kinds, list) else []
    interval = max(1, len(layers))
    if GLOBAL in layers[1:]:
        interval = layers.index(GLOBAL, 1)
    regular = [LOCAL if number % interval else GLOBAL for number in range(len(layers))]
    if kinds != regular or len(layers) != num_layers:
        raise ValueError(f"layer_types is {shown(kinds)}, not {GLOBAL} every n layers and else {LOCAL}")
    return interval


@dataclass(frozen=True)
class ModernBertConfig(BertConfig):
    """Config of ModernBERT, with the size of the attention window and a rotary theta for each kind of block."""

    names: ClassVar[StateDictAdapter] = MODERNBERT
    layer_norm_bias: ClassVar[bool] = False
    head_bias: ClassVar[bool] = False
    pooler_is_mlm_head: ClassVar[bool] = True
    layer_norm_eps: float = 1e-5
    type_vocab_size: int = 0
    local_attention: int = 128
    global_attn_every_n_layers: int = 3
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        if self.head_size % 2:
            raise ValueError(f"the head size is {self.head_size}, and rotary positions need an even one")

    @classmethod
    def from_params(cls, params: ModelParams, vocab_size: int, causal: bool = False, **run: Any) -> Self:
        # The default intermediate size is 1.5 H, as in ModernBERT-base.
        inner = params.intermediate_size or 3 * params.hidden_size // 2
        return super().from_params(params.model_copy(update={"intermediate_size": inner}), vocab_size, causal, **run)

    @classmethod
    def from_hf_config(cls, raw: dict[str, Any]) -> dict[str, Any]:
        # transformers 5 writes layer_types and rope_parameters instead of the older keys, which this config has.
        inner = str(raw.get("hidden_act", "gelu"))
        head = str(raw.get("classifier_activation", "gelu"))
        if ACTIVATIONS.get(inner) != ACTIVATIONS.get(head):
            raise ValueError(f"classifier_activation is {head}, not {inner}, the hidden_activation")
        heads = raw.get("num_attention_heads")
        size = raw.get("head_dim")
        if size is not None and not (type(size) is type(heads) is int and size * heads == raw.get("hidden_size")):
            raise ValueError(f"head_dim is {shown(size)}, not hidden_size / num_attention_heads")
        result = dict(raw)
        kinds = raw.get("layer_types")
        if kinds is not None:
            result["global_attn_every_n_layers"] = global_layer_interval(kinds, raw.get("num_hidden_layers"))

        # rope_parameters is {"full_attention": {"rope_type": "default", "rope_theta": 160000.0}, ...}, or one inner
        # dictionary for all layers.
        ropes = raw.get("rope_parameters")
        for key, kind in (("global_rope_theta", GLOBAL), ("local_rope_theta", LOCAL)):
            rope = ropes.get(kind) if isinstance(ropes, dict) else ropes
            if rope is None:
                continue
            if not isinstance(rope, dict) or {**rope, "rope_theta": 0} != {"rope_type": "default", "rope_theta": 0}:
                raise ValueError(f"rope_parameters of {kind} are {shown(rope)}, not of rope_type default")
            if "rope_theta" in rope:
                result[key] = rope["rope_theta"]
        # The key classifier_pooling is only used by classifiers, and this model is none.
        if raw.get("architectures") in ([MODERNBERT.classes["masked_lm"]], [MODERNBERT.classes["encoder"]]):
            result["classifier_pooling"] = "cls"
        return result

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "classifier_activation": SAVED_ACTIVATIONS[self.hidden_act]}

    @property
    def has_position_embeddings(self) -> bool:
        return False

    @property
    def head_init_scale(self) -> float:
        # Scales the initial weights of the MLM head and of the layers that write to the residual stream.
        return (2 * self.num_hidden_layers) ** -0.5

    def is_global(self, number: int) -> bool:
        return number % self.global_attn_every_n_layers == 0

    def training_flops(self, work: Workload) -> int:
        # Feed-forward layers have three matrices, and local blocks compute only pairs within the window.
        all_pairs = work.sum_len_squared
        local_pairs = self.local_pairs(work)
        visible = [all_pairs if self.is_global(number) else local_pairs for number in range(self.num_hidden_layers)]
        blocks = sum(block_flops(self, work.tokens, pairs, MATRICES) for pairs in visible[:-1])
        last = block_flops(
            self,
            work.num_outputs,
            work.attended_pairs * visible[-1] // max(1, all_pairs),
            MATRICES,
            key_tokens=work.tokens,
        )
        return blocks + last + head_flops(self, work.predictions)

    def local_pairs(self, work: Workload) -> int:
        # The number of pairs within the window. It is exact if all sequences are shorter than half a window, or none.
        reach = self.local_attention // 2
        if work.tokens < reach * work.sequences:
            return work.sum_len_squared
        return min(work.sum_len_squared, (2 * reach + 1) * work.tokens - reach * (reach + 1) * work.sequences)


class ModernBertEmbeddings(Embeddings):
    def forward(self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch) -> Tensor:
        return self.LayerNorm(self.word_embeddings(ids))


class GatedFeedForward(nn.Module):
    """Feed-forward layer with GeGLU (Shazeer 2020, "GLU Variants Improve Transformer")."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.Wi = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.Wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.approximate = config.gelu

    def forward(self, hidden: Tensor) -> Tensor:
        inner, gate = self.Wi(hidden).chunk(2, dim=-1)
        return self.Wo(self.dropout(F.gelu(inner, approximate=self.approximate) * gate))


class ModernBertBlock(TransformerBlock):
    # Block 0 has no LayerNorm before attention, since the embeddings end with a LayerNorm.

    def __init__(self, config: ModernBertConfig, number: int) -> None:
        super().__init__()
        self.attn_LayerNorm: nn.Module = nn.Identity()
        if number:
            self.attn_LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
        self.mlp_LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
        if config.is_global(number):
            self.attn = RotaryAttention(config, config.global_rope_theta, reach=None)
        else:
            self.attn = RotaryAttention(config, config.local_rope_theta, reach=config.local_attention // 2)
        self.mlp = GatedFeedForward(config)
        self.scale = config.head_init_scale

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        residual = hidden if query_rows is None else hidden.index_select(0, query_rows.index)
        hidden = residual + self.attn(self.attn_LayerNorm(hidden), layout, query_rows)
        return hidden + self.mlp(self.mlp_LayerNorm(hidden))

    def custom_init(self) -> None:
        self.attn.Wo.weight.mul_(self.scale)
        self.mlp.Wo.weight.mul_(self.scale)


class ModernBertEncoder(Encoder):
    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__(config)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
        self.head_size = config.head_size
        self.thetas = {config.global_rope_theta, config.local_rope_theta}

    def make_block(self, config: BertConfig, number: int) -> nn.Module:
        assert isinstance(config, ModernBertConfig)
        return ModernBertBlock(config, number)

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        self._fill_rope_cache(layout)
        return self.LayerNorm(super().forward(hidden, layout, query_rows))

    def hidden_states(self, hidden: Tensor, layout: PackedBatch) -> list[Tensor]:
        self._fill_rope_cache(layout)
        *states, last = super().hidden_states(hidden, layout)
        return [*states, self.LayerNorm(last)]

    def _fill_rope_cache(self, layout: PackedBatch) -> None:
        for theta in self.thetas - layout.cache.keys():
            layout.cache[theta] = rope_cache(layout.position, self.head_size, theta)


class PredictionHead(nn.Module):
    """Dense layer, GELU and LayerNorm, which transformers has before the output layer of every task."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
        self.approximate = config.head_gelu

    def forward(self, token: Tensor) -> Tensor:
        return self.LayerNorm(F.gelu(self.dense(token), approximate=self.approximate))


class ModernBert(Bert):
    Embeddings = ModernBertEmbeddings
    Encoder = ModernBertEncoder
    Pooler = PredictionHead

    def task_tokens(self, hidden: Tensor) -> Tensor:
        return self.pooler(hidden)


ARCHITECTURE = Architecture(config=ModernBertConfig, encoder=ModernBert)
