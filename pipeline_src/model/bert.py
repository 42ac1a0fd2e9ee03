"""The BERT encoder (Devlin et al. 2018, section 3) on flat, unpadded tokens.

Shapes: T is the total number of tokens in a batch, B the number of sequences, L the longest length, H the hidden size,
and R the number of query rows (see ``QueryRows``). Parameter names match Hugging Face's.

A module names the classes of its submodules in class attributes (``Encoder.Block``). Every submodule can be built from
a config alone. Each further architecture is a folder in ``family/`` that overrides the classes that differ from BERT's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.registry import load_member
from pipeline_src.model.adapter import BERT, StateDictAdapter
from pipeline_src.model.attention import (
    Dropout,
    PackedBatch,
    QueryRows,
    attention,
    attention_logits,
    attention_probs_of,
)
from pipeline_src.model.flops import Workload, training_flops
from pipeline_src.model.losses import LazyLogits, aligned_logits, linear_cross_entropy, sampled_cross_entropy
from pipeline_src.study.model import ModelParams


class LayerNorm(nn.LayerNorm):
    """LayerNorm that returns autocast's dtype, and computes means and variances in float32.

    Under autocast, torch's LayerNorm on a GPU casts its input to float32 and returns float32. These casts, and the
    wider results, are memory traffic, which takes most of a block's time on a GPU. The kernel for bfloat16 reads and
    writes half as much, and sums in float32 too. Without autocast, the class equals torch's LayerNorm.
    """

    def forward(self, inner: Tensor) -> Tensor:
        device = inner.device.type
        if not torch.is_autocast_enabled(device):
            return super().forward(inner)
        dtype = torch.get_autocast_dtype(device)
        if inner.dtype != dtype:
            return super().forward(inner).to(dtype)
        with torch.autocast(device, enabled=False):
            # The GPU's kernel needs weights of the input's dtype.
            bias = None if self.bias is None else self.bias.to(dtype)
            return F.layer_norm(inner, self.normalized_shape, self.weight.to(dtype), bias, self.eps)


# Initial weight of each (sine, cosine) pair in a neighbor head. BERT-Tiny learns equally well with 0.5 to 1.
NEIGHBOR_STRENGTH = 0.7
# Both values are tuned on BERT-Tiny. Vaswani et al. 2017 use the base 10,000.
SINUSOID_AMPLITUDE = 0.1
SINUSOID_BASE = 100.0
# Weights start from a truncated normal distribution with this standard deviation (`initializer_range` in
# google-research/bert).
INITIAL_STD = 0.02
# The value of google-research/bert.
LAYER_NORM_EPS = 1e-12
# Config fields that belong to a run and not to the model, so config.json does not have them.
NOT_SAVED = ("attention", "activation_checkpointing", "position_init")


@dataclass(frozen=True)
class BertConfig:
    """Configuration of an encoder, with Hugging Face's names (see ``ModelParams``).

    Class variables are constants of an architecture. The fields in ``NOT_SAVED`` are not written to config.json.

    Attributes:
        names: parameter names and config keys in Hugging Face's checkpoints.
        initializer_cutoff_factor: number of standard deviations at which initial weights are truncated. None: initial
            weights are not truncated.
        head_bias: whether the MLM head's dense layer and LayerNorm have biases.
        pooler_is_mlm_head: whether task heads begin with the dense layer and LayerNorm of the MLM head.
        dropout_before_pooler: whether sequence classification has another dropout before the pooler.
        reads_texts_apart: whether fine-tuning encodes the two texts of a pair as separate sequences.
        rtd_adds_cls: whether a discriminator adds the hidden state of [CLS] to that of every token.
        attention_probs_dropout_prob: dropout rate of the attention probabilities. None: ``hidden_dropout_prob``.
        is_decoder: use a causal mask. The pooler then reads the last token.
        activation_checkpointing: recompute activations in the backward pass.
        position_init: see ``ModelParams``.
    """

    names: ClassVar[StateDictAdapter] = BERT
    layer_norm_bias: ClassVar[bool] = True
    # As in google-research/bert, whose normal distribution is truncated at two standard deviations.
    initializer_cutoff_factor: ClassVar[float | None] = 2.0
    head_bias: ClassVar[bool] = True
    pooler_is_mlm_head: ClassVar[bool] = False
    dropout_before_pooler: ClassVar[bool] = False
    reads_texts_apart: ClassVar[bool] = False
    rtd_adds_cls: ClassVar[bool] = False
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    hidden_act: str = "gelu"
    attention_probs_dropout_prob: float | None = None
    layer_norm_eps: float = LAYER_NORM_EPS
    is_decoder: bool = False
    attention: str = "auto"
    activation_checkpointing: bool = False
    position_init: str = "random"

    @classmethod
    def from_params(cls, params: ModelParams, vocab_size: int, causal: bool = False, **run: Any) -> Self:
        """Build the config from the entry ``model`` of params.yaml.

        The defaults are heads of size 64 and an intermediate size of 4 H.

        Args:
            causal: the value of ``is_decoder``.
            run: values of ``attention`` and ``activation_checkpointing``.
        """
        return cls(
            vocab_size=vocab_size,
            hidden_size=params.hidden_size,
            num_hidden_layers=params.num_hidden_layers,
            num_attention_heads=params.num_attention_heads or max(1, params.hidden_size // 64),
            intermediate_size=params.intermediate_size or 4 * params.hidden_size,
            max_position_embeddings=params.max_position_embeddings,
            hidden_dropout_prob=params.hidden_dropout_prob,
            hidden_act=params.hidden_act,
            attention_probs_dropout_prob=params.attention_probs_dropout_prob,
            is_decoder=causal,
            position_init=params.position_init,
            **run,
        )

    def with_pad_id(self, pad_id: int) -> Self:
        return self

    def training_flops(self, work: Workload) -> int:
        return training_flops(self, work)

    @classmethod
    def from_hf_config(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Translate values of ``config.json`` that transformers stores differently.

        The keys of ``raw`` have already been renamed to this project's.

        Raises:
            ValueError: the values describe an unsupported model.
        """
        return raw

    @property
    def export_caveat(self) -> str:
        """Sentence for the model card on what an export to transformers loses, or an empty string."""
        return ""

    @property
    def head_init_scale(self) -> float:
        # The initial weights of the MLM head's dense layer are multiplied by this.
        return 1.0

    @property
    def embedding_width(self) -> int:
        # The width of the token embeddings, and of the MLM head's input to the decoder.
        return self.hidden_size

    @property
    def has_position_embeddings(self) -> bool:
        return True

    @property
    def adds_positions(self) -> bool:
        return self.has_position_embeddings

    @property
    def first_position(self) -> int:
        # The row of the position embedding matrix that a sequence's first token uses.
        return 0

    @property
    def has_mask_decoder(self) -> bool:
        # True for DeBERTa, whose absolute positions enter only at its enhanced mask decoder.
        return False

    @property
    def longest_input(self) -> int:
        # The maximum number of tokens of a sequence, with its special tokens.
        return self.max_position_embeddings - self.first_position

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def attention_dropout(self) -> float:
        probability = self.attention_probs_dropout_prob
        return self.hidden_dropout_prob if probability is None else probability

    def head_dropout(self, head: str) -> float:
        # run_squad.py of google-research/bert has no dropout before the span layer.
        return 0.0 if head == "span" else self.hidden_dropout_prob

    @property
    def gelu(self) -> str:
        # The value of the argument ``approximate`` of ``torch.nn.functional.gelu``.
        return "tanh" if self.hidden_act == "gelu_tanh" else "none"

    @property
    def head_gelu(self) -> str:
        return self.gelu

    def as_dict(self) -> dict[str, Any]:
        values = {**asdict(self), "attention_probs_dropout_prob": self.attention_dropout}
        return {name: value for name, value in values.items() if name not in NOT_SAVED}


class Embeddings(nn.Module):
    """Sum of token, position and token type embeddings (Devlin et al. 2018, figure 2).

    Some architectures have no position embeddings or no token type embeddings.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.has_position_embeddings:
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        if config.type_vocab_size:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.layer_norm_bias)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.adds_positions = config.adds_positions
        self.first_position = config.first_position
        self.token_types = config.type_vocab_size
        self.position_init = config.position_init if config.has_position_embeddings else "random"

    def forward(self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch) -> Tensor:
        # Both inputs are [T], the output is [T, H].
        total = self.word_embeddings(ids)
        if self.adds_positions:
            first = self.first_position
            total = total + self.position_embeddings(layout.position + first if first else layout.position)
        if self.token_types:
            # A model with one token type adds its row to every token, whatever token_type_ids are.
            token_types = self.token_type_embeddings
            total = total + (token_types.weight if self.token_types == 1 else token_types(token_type_ids))
        return self.dropout(self.LayerNorm(total))

    def custom_init(self) -> None:
        if self.position_init != "random":
            self.position_embeddings.weight.copy_(sinusoids(*self.position_embeddings.weight.shape))


class SelfAttention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.dropout = config.attention_dropout
        self.causal = config.is_decoder
        self.back_end = config.attention
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        # [T, H] -> [T, H], or [R, H] for the query rows.
        if query_rows is None:
            query, key, value = self._project(hidden, self.query, self.key, self.value)
            queries = None
        else:
            query_hidden = hidden.index_select(0, query_rows.index)
            (query,) = self._project(query_hidden, self.query)
            key, value = self._project(hidden, self.key, self.value)
            queries = query_rows.layout
        dropout = self.dropout if self.training else 0.0
        context = attention(query, key, value, layout, dropout, self.causal, self.back_end, queries)
        return context.reshape(len(context), -1)

    def _project(self, hidden: Tensor, *projections: nn.Linear) -> Sequence[Tensor]:
        # Each projection maps [T, H] to [T, heads, head size].
        if hidden.is_cuda and len(projections) > 1:
            fused = fused_linear(hidden, projections)
            return fused.view(len(hidden), len(projections), self.heads, -1).unbind(1)
        return [projection(hidden).view(len(hidden), self.heads, -1) for projection in projections]

    def init_neighbor_heads(self, offsets: Sequence[int], waves: int) -> None:
        """Initialise the first heads to attend to neighboring tokens.

        Head n attends to the token at the relative position ``offsets[n]``. Trained encoders have such heads (Clark et
        al. 2019, section 3.1) but learn them late. Initial weights that imitate trained weights are called mimetic
        (Trockman and Kolter 2023).

        A rotation of each (sine, cosine) pair turns the encoding of a position into that of its neighbor (Vaswani et
        al. 2017, section 3.5). The query copies the pairs of the shortest wavelengths, and the key rotates them back,
        so their dot product is largest at the offset.

        Args:
            offsets: relative position that each head attends to.
            waves: width of the sinusoidal position embeddings, which are the first columns of the input.
        """
        size = self.query.out_features // self.heads
        # As many (sine, cosine) pairs as fit into a head. Sines are columns 0, 2, 4, ..., cosines 1, 3, 5, ...
        sines = torch.arange(0, min(size, waves) - 1, 2)
        cosines = sines + 1
        for head, offset in enumerate(offsets[: self.heads]):
            rows = slice(head * size, (head + 1) * size)
            query = self.query.weight[rows]
            key = self.key.weight[rows]
            # The angle by which each (sine, cosine) pair rotates between a position and its neighbor.
            rotation = offset * SINUSOID_BASE ** (-sines / waves)
            # The query copies each (sine, cosine) pair.
            query[sines, sines] += NEIGHBOR_STRENGTH
            query[cosines, cosines] += NEIGHBOR_STRENGTH
            # The key rotates each pair back by the angle.
            key[sines, sines] += NEIGHBOR_STRENGTH * rotation.cos()
            key[sines, cosines] -= NEIGHBOR_STRENGTH * rotation.sin()
            key[cosines, sines] += NEIGHBOR_STRENGTH * rotation.sin()
            key[cosines, cosines] += NEIGHBOR_STRENGTH * rotation.cos()

    def attention_logits(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        # [T, H] -> [B, heads, L, L].
        query, key = (part(hidden).view(len(hidden), self.heads, -1) for part in (self.query, self.key))
        return attention_logits(query, key, layout)

    def attention_probs(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        return attention_probs_of(self.attention_logits(hidden, layout), layout, self.causal)


def fused_linear(hidden: Tensor, projections: Sequence[nn.Linear]) -> Tensor:
    # One wide matmul is faster on a GPU than several narrow ones. On a CPU it is no faster and rounds differently.
    weight = torch.cat([projection.weight for projection in projections])
    return F.linear(hidden, weight, torch.cat([projection.bias for projection in projections]))


class AddAndNorm(nn.Module):
    """Projection, dropout, residual connection and LayerNorm, which end both halves of a block."""

    def __init__(self, config: BertConfig, inner: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, inner: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(inner)) + residual)


class TransformerBlock(nn.Module):
    """Base class of Transformer blocks. torch.compile makes one graph per subclass.

    Attributes:
        FORWARD_METHODS: methods besides ``forward`` that compute with the weights. If the block is sharded, its weights
            are gathered before these methods run.
    """

    FORWARD_METHODS: ClassVar[Sequence[str]] = ()


class Block(TransformerBlock):
    Attention: type[nn.Module] = SelfAttention
    Output: type[nn.Module] = AddAndNorm
    FORWARD_METHODS = ("attention_logits",)

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": self.Attention(config), "output": self.Output(config, config.hidden_size)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.intermediate_size)})
        self.output = self.Output(config, config.intermediate_size)
        self.approximate = config.gelu

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        # [T, H] -> [T, H], or [R, H] for the query rows. All other rows serve only as keys and values.
        residual = hidden if query_rows is None else hidden.index_select(0, query_rows.index)
        hidden = self.attention["output"](self.attention["self"](hidden, layout, query_rows), residual)
        inner = F.gelu(self.intermediate["dense"](hidden), approximate=self.approximate)
        return self.output(inner, hidden)

    def attention_logits(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        logits: Tensor = self.attention["self"].attention_logits(hidden, layout)
        return logits


class Encoder(nn.Module):
    Block: type[nn.Module] = Block

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(self.make_block(config, number) for number in range(config.num_hidden_layers))
        self.activation_checkpointing = config.activation_checkpointing

    def make_block(self, config: BertConfig, number: int) -> nn.Module:
        return self.Block(config)

    def forward(self, hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None) -> Tensor:
        # [T, H] -> [T, H], or [R, H] for the query rows of the last block.
        return self.run_blocks(self.blocks(), hidden, layout, query_rows)

    def run_blocks(
        self, blocks: Sequence[nn.Module], hidden: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None
    ) -> Tensor:
        for number, block in enumerate(blocks, 1):
            read = query_rows if number == len(blocks) else None
            if self.activation_checkpointing and torch.is_grad_enabled():
                # `checkpoint` restores the random generator, so the recomputation draws the same dropout masks.
                hidden = checkpoint(block, hidden, layout, read, use_reentrant=False)
            else:
                hidden = block(hidden, layout, read)
        return hidden

    def hidden_states(self, hidden: Tensor, layout: PackedBatch) -> list[Tensor]:
        # Returns the input and the output of every block, each [T, H], without activation checkpointing.
        states = [hidden]
        for block in self.blocks():
            states.append(block(states[-1], layout))
        return states

    def blocks(self) -> Sequence[nn.Module]:
        return list(self.layer)

    def init_neighbor_heads(self, offsets: Sequence[int], waves: int) -> None:
        for part in self.layer[:1].modules():
            if isinstance(part, SelfAttention):
                part.init_neighbor_heads(offsets, waves)


class Pooler(nn.Module):
    """Dense layer with tanh on one token per sequence (``pooled_output`` in google-research/bert)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, token: Tensor) -> Tensor:
        return torch.tanh(self.dense(token))


class GeluPooler(Pooler):
    """Dense layer with GELU, with which transformers' DeBERTa and ELECTRA task heads begin.

    Pretraining does not train its weights.
    """

    def forward(self, token: Tensor) -> Tensor:
        return F.gelu(self.dense(token))


class Bert(nn.Module):
    """Embeddings, encoder and pooler.

    The pooler reads [CLS]. With a causal mask, [CLS] attends only to itself, so the pooler reads the last token, [SEP].
    transformers' pooler reads [CLS] even with a causal mask.
    """

    Embeddings: type[nn.Module] = Embeddings
    Encoder: type[nn.Module] = Encoder
    Pooler: type[nn.Module] = Pooler

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = self.Embeddings(config)
        self.encoder = self.Encoder(config)
        self.pooler = self.Pooler(config)

    def custom_init(self) -> None:
        if self.config.position_init == "neighbor_heads":
            offsets = (-1,) if self.config.is_decoder else (-1, 1)
            self.encoder.init_neighbor_heads(offsets, self.config.embedding_width)

    def forward(
        self,
        ids: Tensor,
        token_type_ids: Tensor,
        cu_seqlens: Tensor,
        max_seqlen: int | None = None,
        query_rows: QueryRows | None = None,
        decoded: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Encode a batch of packed sequences.

        Args:
            ids, token_type_ids: int64 [T].
            cu_seqlens: start index of each sequence, with T at the end, int64 [B + 1].
            max_seqlen: length of the longest sequence, if known (see ``PackedBatch.of``).
            query_rows: tokens for which the last layer is computed, or None for all T. Must include the first token of
                each sequence. Not supported with a causal mask.
            decoded: return the MLM head's input (see ``decode``) instead of the last layer's hidden states.

        Returns:
            Hidden states, [T, H] or [R, H], and pooled vectors, [B, H].
        """
        layout = PackedBatch.of(cu_seqlens, len(ids), max_seqlen)
        hidden = (self.decode if decoded else self.encode)(ids, token_type_ids, layout, query_rows)
        return hidden, self.pool(hidden, layout if query_rows is None else query_rows.layout)

    def encode(
        self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None
    ) -> Tensor:
        return self.encoder(self.embeddings(ids, token_type_ids, layout), layout, query_rows)

    def decode(
        self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch, query_rows: QueryRows | None = None
    ) -> Tensor:
        # Returns the MLM head's input, [T, H] or [R, H]. In BERT, it is the last layer's hidden states.
        return self.encode(ids, token_type_ids, layout, query_rows)

    def hidden_states(self, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch) -> list[Tensor]:
        return self.encoder.hidden_states(self.embeddings(ids, token_type_ids, layout), layout)

    def pool(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        # [T, H] -> [B, H].
        return self.pooler(hidden.index_select(0, self.pooled(layout)))

    def task_tokens(self, hidden: Tensor) -> Tensor:
        """Turn the last layer's hidden states [T, H] into the input [T, H] of a token classifier."""
        return hidden

    def pooled(self, layout: PackedBatch) -> Tensor:
        return layout.last if self.config.is_decoder else layout.first


@runtime_checkable
class HasAttentionProbs(Protocol):
    """Attention module that can return its attention probabilities, [B, heads, L, L]."""

    def attention_probs(self, hidden: Tensor, layout: PackedBatch) -> Tensor: ...


def sinusoids(positions: int, width: int) -> Tensor:
    """Return sinusoidal position encodings (Vaswani et al. 2017, section 3.5).

    With them, nearby positions have similar encodings from the first step on. Random encodings would have to be trained
    position by position.

    Returns:
        [positions, width], with sines in the even columns and cosines in the odd columns.
    """
    pairs = torch.arange(-(-width // 2))
    angles = torch.arange(positions)[:, None] * SINUSOID_BASE ** (-2 * pairs / width)
    return SINUSOID_AMPLITUDE * torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Initialise all parameters as google-research/bert does.

    Weights are drawn from a normal distribution with standard deviation ``INITIAL_STD``, truncated at
    ``initializer_cutoff_factor``. Biases become 0, and LayerNorm weights 1. LSTMs are initialised as in torch. At the
    end, the method ``custom_init`` of each module that has one is called.
    """
    cutoff = next(
        (part.config.initializer_cutoff_factor for part in module.modules() if isinstance(part, Bert)),
        BertConfig.initializer_cutoff_factor,
    )
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding | nn.Conv1d):
            if cutoff is None:
                nn.init.normal_(part.weight, std=INITIAL_STD, generator=generator)
            else:
                limit = cutoff * INITIAL_STD
                nn.init.trunc_normal_(part.weight, std=INITIAL_STD, a=-limit, b=limit, generator=generator)
        if isinstance(part, nn.Linear | nn.Conv1d) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            part.reset_parameters()
        if isinstance(part, nn.LSTM):
            # The same range as in torch.nn.LSTM.reset_parameters.
            limit = part.hidden_size**-0.5
            for weight in part.parameters():
                nn.init.uniform_(weight, -limit, limit, generator=generator)
    with torch.no_grad():
        for part in module.modules():
            if hasattr(part, "custom_init"):
                part.custom_init()


# The functions with which torch's modules initialise their weights.
SAMPLERS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)


class _SkipInit(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if function in SAMPLERS:
            return args[0] if args else named["tensor"]
        return function(*args, **named)


@contextmanager
def uninitialised() -> Iterator[None]:
    # Under this context manager, modules have shapes but no values. Skipping torch's random initialisation also avoids
    # the import of torch's compiler, which takes a second.
    with torch.device("meta"), _SkipInit():
        yield


@dataclass(frozen=True)
class Architecture:
    config: type[BertConfig]
    encoder: type[Bert]

    @property
    def names(self) -> StateDictAdapter:
        return self.config.names

    def parameters(self, config: BertConfig) -> int:
        with uninitialised():
            return sum(parameter.numel() for parameter in self.encoder(config).parameters())


def load_architecture(name: str) -> Architecture:
    architecture: Architecture = load_member("models", name)
    return architecture


def architecture_name(model_type: str) -> str:
    return model_type.replace("-", "_")


def check_architecture(config: BertConfig, expected: str, folder: Path, key: str = "finetune.model") -> None:
    # A stage tracks only the code of the study's architecture, so it must not load an encoder of another one.
    architecture = architecture_name(config.names.model_type)
    if architecture != expected:
        raise PipelineError(
            "the encoder is of another architecture than the study's",
            f"{architecture}, not {expected}",
            where=folder,
            hint=f"set model.architecture to {architecture}, or set {key} to another folder",
        )


def make_encoder(config: BertConfig, has_pooler: bool = True) -> Bert:
    encoder = load_architecture(architecture_name(config.names.model_type)).encoder(config)
    if not has_pooler:
        encoder.pooler = nn.Identity()
    return encoder


class MaskedLMHead(nn.Module):
    """MLM head whose decoder weight is tied to the token embedding matrix.

    The dense layer projects hidden states to the width of the embeddings.
    """

    def __init__(self, config: BertConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.transform = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.embedding_width, bias=config.head_bias),
                "LayerNorm": nn.LayerNorm(config.embedding_width, eps=config.layer_norm_eps, bias=config.head_bias),
            }
        )
        self.decoder = nn.Linear(config.embedding_width, config.vocab_size)
        self.tie(embedding)
        self.approximate = config.head_gelu
        self.scale = config.head_init_scale

    def custom_init(self) -> None:
        self.transform["dense"].weight.mul_(self.scale)

    def tie(self, embedding: nn.Embedding) -> None:
        self.decoder.weight = embedding.weight

    def forward(self, hidden: Tensor) -> Tensor:
        # Maps the hidden states [P, H] of predicted tokens to logits [P, vocab_size].
        inner = self._transformed(hidden)
        if not hidden.is_cuda:
            return self.decoder(inner)
        return aligned_logits(inner, self.decoder.weight, self.decoder.bias)[:, : self.decoder.out_features]

    def loss(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy and the number of correct predictions.

        ``hidden`` is [P, H], and ``labels`` are int64 [P].
        """
        return linear_cross_entropy(self._transformed(hidden), self.decoder.weight, self.decoder.bias, labels)

    def sample(self, hidden: Tensor, labels: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decoder = self.decoder
        return sampled_cross_entropy(self._transformed(hidden), decoder.weight, decoder.bias, labels, uniform)

    def lazy_logits(self, hidden: Tensor) -> LazyLogits:
        return LazyLogits(self._transformed(hidden), self.decoder.weight, self.decoder.bias)

    def _transformed(self, hidden: Tensor) -> Tensor:
        inner = F.gelu(self.transform["dense"](hidden), approximate=self.approximate)
        return self.transform["LayerNorm"](inner)


class BertForMaskedLM(nn.Module):
    has_pair_head: ClassVar[bool] = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = make_encoder(config, has_pooler=self.has_pair_head)
        self.cls = nn.ModuleDict({"predictions": MaskedLMHead(config, self.bert.embeddings.word_embeddings)})
        if self.has_pair_head:
            self.cls["seq_relationship"] = nn.Linear(config.hidden_size, 2)

    def tie(self) -> None:
        # Moving the module to another device unties the decoder from the embedding, so they are tied again.
        self.cls["predictions"].tie(self.bert.embeddings.word_embeddings)

    def forward(
        self, ids: Tensor, token_type_ids: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int | None = None
    ) -> tuple[Tensor, Any]:
        """Return MLM logits [P, vocab_size] at the tokens ``predicted``, and pair logits [B, 2].

        The pair logits are None if the model has no pair head (next sentence or sentence order).
        """
        hidden, pooled = self.bert(ids, token_type_ids, cu_seqlens, max_seqlen, decoded=True)
        pair_logits = self.cls["seq_relationship"](pooled) if self.has_pair_head else None
        return self.cls["predictions"](hidden.index_select(0, predicted)), pair_logits


class BertForPretraining(BertForMaskedLM):
    has_pair_head = True


# torch stops compiling a function that has this many graphs, and runs it uncompiled. Its default, 8, is too low for
# ModernBERT, which has four kinds of blocks with one graph for training and one for validation each.
MAX_GRAPHS = 32


def compile_parts(module: nn.Module, fixed_shapes: bool = False) -> None:
    """Make embeddings, blocks and MLM losses compile at their first call.

    Each block is compiled separately, so DDP can reduce gradients while the backward pass runs. All blocks have the
    same code and reuse one compiled graph, so the compile time does not grow with the number of layers. The pooler and
    the pair head stay uncompiled: they read only one token per sequence.

    Args:
        fixed_shapes: whether all training batches have the same shapes. Graphs are then compiled for these shapes.
            Only when other shapes come, such as those of a validation batch, torch compiles graphs for any shape.
    """
    # The import takes a second, so it is not at the top of the file.
    from torch._dynamo import config

    config.recompile_limit = max(MAX_GRAPHS, config.recompile_limit)
    dynamic = None if fixed_shapes else True
    for part in module.modules():
        if isinstance(part, TransformerBlock | Embeddings):
            part.compile(dynamic=dynamic)
        elif isinstance(part, MaskedLMHead):
            part.loss = torch.compile(part.loss, dynamic=dynamic)  # type: ignore[method-assign]


ARCHITECTURE = Architecture(config=BertConfig, encoder=Bert)
