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

# Cosines and sines of rotary angles, [T, 1, size / 2] each.
Cache = tuple[Tensor, Tensor]


def rope_cache(positions: Tensor, size: int, theta: float, dtype: torch.dtype) -> Cache:
    """Return cosines and sines of the rotary angles (Su et al. 2021, section 3.2.2)."""
    frequencies = theta ** -(torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size)
    angles = positions[:, None, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(vectors: Tensor, cache: Cache, out: Tensor | None = None) -> Tensor:
    """Apply rotary positions to vectors [T, heads, size], given the result of ``rope_cache``.

    The pairs that are rotated consist of elements i and i + size / 2. With negated sines, they are rotated back.
    """
    cosines, sines = cache
    if torch.compiler.is_compiling():
        # The compiler fuses this formula. It does not support ``out``.
        pairs = vectors.unflatten(-1, (2, -1))
        signed = torch.stack([-sines, sines], dim=-2)
        straight = pairs * cosines.unsqueeze(-2)
        crossed = pairs.flip(-2) * signed
        return (straight + crossed).flatten(-2)
    rotated = out
    if rotated is None:
        rotated = torch.empty_like(vectors, memory_format=torch.contiguous_format)
    first, second = vectors.chunk(2, dim=-1)
    first_rotated, second_rotated = rotated.chunk(2, dim=-1)
    torch.mul(first, cosines, out=first_rotated)
    first_rotated.addcmul_(second, sines, value=-1)
    torch.mul(second, cosines, out=second_rotated)
    second_rotated.addcmul_(first, sines)
    return rotated


class RotatedParts(torch.autograd.Function):
    """Split ``projected`` [T, parts, heads, size] into its parts, and rotate the first ``count`` of them.

    Autograd would copy the gradients of slices, products and sums one by one. Here, the gradient is written once.
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, count: int, cosines: Tensor, sines: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cosines, -sines)
        ctx.count = count
        parts = list(projected.unbind(1))
        for number in range(count):
            parts[number] = rotate(parts[number], (cosines, sines))
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        back = ctx.saved_tensors
        if torch.compiler.is_compiling():
            rotated = [rotate(gradient, back) for gradient in gradients[: ctx.count]]
            others = gradients[ctx.count :]
            result = torch.stack([*rotated, *others], dim=1)
            return result, None, None, None
        tokens, heads, size = gradients[0].shape
        result = gradients[0].new_empty(tokens, len(gradients), heads, size)
        for number, gradient in enumerate(gradients):
            if number < ctx.count:
                rotate(gradient, back, out=result[:, number])
            else:
                result[:, number] = gradient
        return result, None, None, None


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
        self.head_size = config.head_size
        self.rate = config.attention_dropout
        self.back_end = config.attention
        self.theta = theta
        self.reach = reach
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.Wo = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        query, key, value = self._project(hidden, layout.cache[self.theta], query_rows)
        positions = layout.position
        queries = None
        if query_rows is not None:
            positions = positions.index_select(0, query_rows.index)
            queries = query_rows.layout
        dropout = self.rate if self.training else 0.0
        # A global layer has no window.
        window = None if self.reach is None else Window(self.reach, positions)
        context = attention(query, key, value, layout, dropout, False, self.back_end, queries, window)
        return self.dropout(self.Wo(context.reshape(-1, hidden.shape[1])))

    def _project(self, hidden: Tensor, cache: Cache, query_rows: QueryRows | None) -> tuple[Tensor, ...]:
        # Returns queries, keys and values, [T, heads, size] each. With query rows, there are R queries.
        weight = self.Wqkv.weight
        if query_rows is None:
            return self._rotated(hidden, weight, 2, cache)
        width = hidden.shape[1]
        rows = query_rows.index
        cosines, sines = cache
        query_cache = (cosines.index_select(0, rows), sines.index_select(0, rows))
        (query,) = self._rotated(hidden.index_select(0, rows), weight[:width], 1, query_cache)
        key, value = self._rotated(hidden, weight[width:], 1, cache)
        return query, key, value

    def _rotated(self, hidden: Tensor, weight: Tensor, count: int, cache: Cache) -> tuple[Tensor, ...]:
        projected = F.linear(hidden, weight)
        parts = projected.view(len(hidden), -1, self.heads, self.head_size)
        return RotatedParts.apply(parts, count, *cache)

    def attention_probs(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        query, key, _ = self._project(hidden, layout.cache[self.theta], None)
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


class GatedGelu(torch.autograd.Function):
    """GELU of the first half of ``projected`` [T, 2 * inner], times the second half.

    Autograd would copy the gradients of both halves together. Here, they are written where they belong.
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, approximate: str) -> Tensor:
        inner, gate = projected.chunk(2, dim=-1)
        activated = F.gelu(inner, approximate=approximate)
        ctx.save_for_backward(projected, activated)
        ctx.approximate = approximate
        return activated * gate

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        projected, activated = ctx.saved_tensors
        inner, gate = projected.chunk(2, dim=-1)
        result = torch.empty_like(projected)
        inner_gradient, gate_gradient = result.chunk(2, dim=-1)
        torch.mul(gradient, activated, out=gate_gradient)
        torch.ops.aten.gelu_backward.grad_input(
            gradient * gate, inner, approximate=ctx.approximate, grad_input=inner_gradient
        )
        return result, None


class GatedFeedForward(nn.Module):
    """Feed-forward layer with GeGLU (Shazeer 2020, "GLU Variants Improve Transformer")."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.Wi = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.Wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.approximate = config.gelu

    def forward(self, hidden: Tensor) -> Tensor:
        projected = self.Wi(hidden)
        if torch.compiler.is_compiling():
            inner, gate = projected.chunk(2, dim=-1)
            gated = F.gelu(inner, approximate=self.approximate) * gate
        else:
            gated = GatedGelu.apply(projected, self.approximate)
        return self.Wo(self.dropout(gated))


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
        self._fill_rope_cache(layout, hidden.dtype)
        return self.LayerNorm(super().forward(hidden, layout, query_rows))

    def hidden_states(self, hidden: Tensor, layout: PackedBatch) -> list[Tensor]:
        self._fill_rope_cache(layout, hidden.dtype)
        *states, last = super().hidden_states(hidden, layout)
        return [*states, self.LayerNorm(last)]

    def _fill_rope_cache(self, layout: PackedBatch, dtype: torch.dtype) -> None:
        for theta in self.thetas - layout.cache.keys():
            layout.cache[theta] = rope_cache(layout.position, self.head_size, theta, dtype)


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
