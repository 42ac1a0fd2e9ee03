"""The BERT encoder (Devlin et al. 2018, section 3) on flat, unpadded tokens.

T is the number of tokens of all sequences of a batch together, B the number of sequences, H the width. Parameters
bear Hugging Face's names, so a saved model loads there without translation.

Each part names the classes of the parts it is made of as class attributes (``Encoder.Block``), and each takes a config
and nothing else. Another encoder of the family is a file in ``architectures/`` that overrides those that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipeline_src.models.attention import attention, scores_of, weights_of
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.flops import Workload, training_flops
from pipeline_src.models.layer_norm import LayerNorm
from pipeline_src.models.names import BERT, Names
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.params.model import ModelParams

NEIGHBOUR_STRENGTH = 0.7  # of heads that begin at neighbours; between 0.5 and 1 BERT-Tiny learns alike
SINUSOID_AMPLITUDE, SINUSOID_BASE = 0.1, 100.0  # found on BERT-Tiny; the base is 10,000 in Vaswani et al. 2017
INITIAL_STD = 0.02  # truncated normal (google-research/bert, `initializer_range`)
LAYER_NORM_EPS = 1e-12  # google-research/bert
NOT_SAVED = ("attention", "recompute", "positions_start")  # fields of a config that belong to a run, not to the model


@dataclass(frozen=True)
class BertConfig:
    """One encoder, by Hugging Face's names; see :class:`pipeline_src.params.model.ModelParams`.

    Attributes:
        attention_probs_dropout_prob: on the attention weights; None means ``hidden_dropout_prob``.
        is_decoder: a causal mask: a token sees those before it and itself alone, and the pooler reads the last token.
        attention: back end, see :func:`pipeline_src.models.attention.attention`; not saved.
        recompute: compute activations again in the backward pass instead of keeping them; not saved.
        positions_start: see :class:`pipeline_src.params.model.ModelParams`; not saved.
        names: what the encoder and its parts are called elsewhere; the same for every config of an architecture.
        layer_norm_eps: likewise.
        initial_cut: deviations at which initial weights are cut; None cuts none. Likewise.
        head_bias: whether the head of masked words has biases below its decoder's. Likewise.
        judged_with_first: whether a discriminator adds the vector of a sequence's first token to each. Likewise.
    """

    names: ClassVar[Names] = BERT
    layer_norm_eps: ClassVar[float] = LAYER_NORM_EPS
    initial_cut: ClassVar[float | None] = 2.0  # google-research/bert
    head_bias: ClassVar[bool] = True
    judged_with_first: ClassVar[bool] = False
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
    is_decoder: bool = False
    attention: str = "auto"
    recompute: bool = False
    positions_start: str = "learned"

    @classmethod
    def from_params(cls, params: ModelParams, entries: int, causal: bool = False, **run: Any) -> Self:
        """The encoder of a study over a vocabulary of ``entries``; ``run`` are ``attention`` and ``recompute``.

        Heads = H / 64, feed-forward = 4 H, where the study does not say otherwise (paper, section 3).
        """
        return cls(
            vocab_size=entries,
            hidden_size=params.hidden,
            num_hidden_layers=params.layers,
            num_attention_heads=params.heads or max(1, params.hidden // 64),
            intermediate_size=params.feed_forward or 4 * params.hidden,
            max_position_embeddings=params.positions,
            hidden_dropout_prob=params.dropout,
            hidden_act=params.activation,
            attention_probs_dropout_prob=params.attention_dropout,
            is_decoder=causal,
            positions_start=params.positions_start,
            **run,
        )

    def training_flops(self, work: Workload) -> int:
        """Floating-point operations of training; see :func:`pipeline_src.models.flops.training_flops`."""
        return training_flops(self, work)

    @classmethod
    def understood(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """The values of a ``config.json``, by our names, with those spelt out that transformers says otherwise."""
        return raw

    @property
    def lost_elsewhere(self) -> str:
        """What transformers lacks of it, in a sentence for the model's card; empty where nothing is."""
        return ""

    @property
    def head_scale(self) -> float:
        """What the initial weights of the head of masked words are multiplied by."""
        return 1.0

    @property
    def embedding_width(self) -> int:
        """Width of a token's embedding, and of what the head of masked words multiplies by them."""
        return self.hidden_size

    @property
    def longest_input(self) -> int:
        """Tokens, marks included."""
        return self.max_position_embeddings

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def attention_dropout(self) -> float:
        """On the attention weights."""
        own = self.attention_probs_dropout_prob
        return self.hidden_dropout_prob if own is None else own

    @property
    def gelu(self) -> str:
        """How ``torch.nn.functional.gelu`` names this config's form of it."""
        return "tanh" if self.hidden_act == "gelu_tanh" else "none"

    def as_dict(self) -> dict[str, Any]:
        """What is saved: plain values, by Hugging Face's names."""
        values = {**asdict(self), "attention_probs_dropout_prob": self.attention_dropout}
        return {name: value for name, value in values.items() if name not in NOT_SAVED}


class Embeddings(nn.Module):
    """Sum of token, segment and learned position embeddings (paper, figure 2)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.positions_start = config.positions_start

    def forward(self, ids: Tensor, segments: Tensor, layout: PackedLayout) -> Tensor:
        """[T] ids and segments -> [T, H]."""
        total = (
            self.word_embeddings(ids) + self.position_embeddings(layout.position) + self.token_type_embeddings(segments)
        )
        return self.dropout(self.LayerNorm(total))

    def adjust_initial_weights(self) -> None:
        """After weights are drawn: positions as sinusoids, where they start so."""
        if self.positions_start != "learned":
            self.position_embeddings.weight.copy_(sinusoids(*self.position_embeddings.weight.shape))


class SelfAttention(nn.Module):
    """Multi-head self-attention before its output projection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.dropout, self.causal, self.back_end = config.attention_dropout, config.is_decoder, config.attention
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use."""
        asking = hidden if rows is None else hidden.index_select(0, rows.index)
        if hidden.is_cuda and rows is None:
            projections = (self.query, self.key, self.value)
            query, key, value = one_product(hidden, projections).view(len(hidden), 3, self.heads, -1).unbind(1)
        elif hidden.is_cuda:
            query = self.query(asking).view(len(asking), self.heads, -1)
            key, value = one_product(hidden, (self.key, self.value)).view(len(hidden), 2, self.heads, -1).unbind(1)
        else:
            query = self.query(asking).view(len(asking), self.heads, -1)
            key, value = (projection(hidden).view(len(hidden), self.heads, -1) for projection in (self.key, self.value))
        dropout, queries = self.dropout if self.training else 0.0, None if rows is None else rows.layout
        context = attention(query, key, value, layout, dropout, self.causal, self.back_end, queries)
        return context.reshape(len(asking), -1)

    def look_beside(self, offsets: Sequence[int], waves: int) -> None:
        """Let the first heads begin by looking at neighbours: head n at the token ``offsets[n]`` places further on.

        ``waves`` is the width of the vectors that positions begin as, whose columns are the first of those read here.
        Among vectors as :func:`sinusoids` gives, that of a place further on is the same with each pair of columns
        turned (Vaswani et al. 2017, section 3.5). The query keeps the pairs of the shortest waves and the key turns
        them back, so that their product is largest there. Trained encoders have such heads (Clark et al. 2019, section
        3.1), which random weights find late; to begin from what training would find is mimetic initialisation
        (Trockman and Kolter 2023).
        """
        size = self.query.out_features // self.heads
        sines = torch.arange(0, min(size, waves) - 1, 2)
        cosines = sines + 1
        for head, offset in enumerate(offsets[: self.heads]):
            query, key = (part.weight[head * size : (head + 1) * size] for part in (self.query, self.key))
            turned = offset * SINUSOID_BASE ** (-sines / waves)
            query[sines, sines] += NEIGHBOUR_STRENGTH
            query[cosines, cosines] += NEIGHBOUR_STRENGTH
            key[sines, sines] += NEIGHBOUR_STRENGTH * turned.cos()
            key[sines, cosines] -= NEIGHBOUR_STRENGTH * turned.sin()
            key[cosines, sines] += NEIGHBOUR_STRENGTH * turned.sin()
            key[cosines, cosines] += NEIGHBOUR_STRENGTH * turned.cos()

    def scores(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """[T, H] -> scores of each head before the softmax, [B, heads, L, L]."""
        query, key = (part(hidden).view(len(hidden), self.heads, -1) for part in (self.query, self.key))
        return scores_of(query, key, layout)

    def weights(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """[T, H] -> what each head gives each token, [B, heads, L, L]; see :class:`GivesWeights`."""
        return weights_of(self.scores(hidden, layout), layout, self.causal)


def one_product(hidden: Tensor, projections: Sequence[nn.Linear]) -> Tensor:
    """[T, H] -> what each of the projections, all of one width, makes of it, side by side: [T, projections x width].

    A GPU takes less time for one wide product than for several narrow ones. A CPU does not, and would round otherwise.
    """
    weight = torch.cat([projection.weight for projection in projections])
    return F.linear(hidden, weight, torch.cat([projection.bias for projection in projections]))


class AddAndNorm(nn.Module):
    """Projection, dropout, residual, LayerNorm: how both halves of a block end (post-LayerNorm)."""

    def __init__(self, config: BertConfig, inner: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, inner: Tensor, residual: Tensor) -> Tensor:
        """[T, inner] and [T, H] -> [T, H]."""
        return self.LayerNorm(self.dropout(self.dense(inner)) + residual)


class Block(nn.Module):
    """One Transformer block: attention, then feed-forward."""

    Attention: type[nn.Module] = SelfAttention
    Output: type[nn.Module] = AddAndNorm
    CALLED: ClassVar[Sequence[str]] = ("scores",)  # methods that gather a sharded block's weights, as ``forward`` does

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": self.Attention(config), "output": self.Output(config, config.hidden_size)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.intermediate_size)})
        self.output = self.Output(config, config.intermediate_size)
        self.approximate = config.gelu

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows in use: keys and values alone need the others."""
        kept = hidden if rows is None else hidden.index_select(0, rows.index)
        hidden = self.attention["output"](self.attention["self"](hidden, layout, rows), kept)
        inner = F.gelu(self.intermediate["dense"](hidden), approximate=self.approximate)
        return self.output(inner, hidden)

    def scores(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """As :meth:`SelfAttention.scores`, of this block's attention."""
        scores: Tensor = self.attention["self"].scores(hidden, layout)
        return scores


class Encoder(nn.Module):
    """The stack of blocks."""

    Block: type[nn.Module] = Block

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(self.Block(config) for _ in range(config.num_hidden_layers))
        self.recompute = config.recompute

    def forward(self, hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T, H] -> [T, H], or [R, H] for the R rows of which what the last block makes is read."""
        return self.through(self.blocks(), hidden, layout, rows)

    def through(
        self, blocks: Sequence[nn.Module], hidden: Tensor, layout: PackedLayout, rows: RowsInUse | None = None
    ) -> Tensor:
        """As :meth:`forward`, by these blocks alone."""
        for number, block in enumerate(blocks, 1):
            read = rows if number == len(blocks) else None
            if self.recompute and torch.is_grad_enabled():
                hidden = checkpoint(block, hidden, layout, read, use_reentrant=False)  # dropout is drawn the same again
            else:
                hidden = block(hidden, layout, read)
        return hidden

    def states(self, hidden: Tensor, layout: PackedLayout) -> list[Tensor]:
        """[T, H] -> itself and what each block makes of it, as many [T, H] as blocks and one; nothing is recomputed."""
        states = [hidden]
        for block in self.blocks():
            states.append(block(states[-1], layout))
        return states

    def blocks(self) -> Sequence[nn.Module]:
        """In the order in which they run."""
        return list(self.layer)

    def look_beside(self, offsets: Sequence[int], waves: int) -> None:
        """See :meth:`SelfAttention.look_beside`: of the first block, where it has such an attention."""
        for part in self.layer[:1].modules():
            if isinstance(part, SelfAttention):
                part.look_beside(offsets, waves)


class Pooler(nn.Module):
    """One vector for a sequence, made of that of one token (google-research/bert, ``pooled_output``)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, token: Tensor) -> Tensor:
        """[B, H] -> [B, H]."""
        return torch.tanh(self.dense(token))


class Bert(nn.Module):
    """Embeddings, encoder and the tanh pooler over [CLS].

    With a causal mask [CLS] sees nothing but itself, so the pooler reads the last token of each sequence, its last
    [SEP], which sees all of it; this is the project's choice, transformers' pooler reads [CLS] there too.
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

    def adjust_initial_weights(self) -> None:
        """After weights are drawn: heads that look at the tokens before and after, where positions start so."""
        if self.config.positions_start == "neighbours":
            offsets = (-1,) if self.config.is_decoder else (-1, 1)
            self.encoder.look_beside(offsets, self.config.embedding_width)

    def forward(
        self,
        ids: Tensor,
        segments: Tensor,
        cu_seqlens: Tensor,
        max_seqlen: int | None = None,
        rows: RowsInUse | None = None,
        decoded: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Encode a batch.

        Args:
            ids: int64 [T].
            segments: int64 [T].
            cu_seqlens: start of each sequence and T, int64 [B + 1].
            max_seqlen: tokens of the longest sequence, where known; see :meth:`PackedLayout.of`.
            rows: of which the last layer's states are read, the first of each sequence among them; None for all. The
                others' are not computed. Not with a causal mask, whose pooler reads the last.
            decoded: give what the head of masked words reads, see :meth:`decode`.

        Returns:
            Hidden states of the last layer [T, H], or [R, H] of the rows in use, and pooled vectors [B, H].
        """
        layout = PackedLayout.of(cu_seqlens, len(ids), max_seqlen)
        hidden = (self.decode if decoded else self.encode)(ids, segments, layout, rows)
        return hidden, self.pool(hidden, layout if rows is None else rows.layout)

    def encode(self, ids: Tensor, segments: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """[T] ids and segments -> hidden states of the last layer [T, H], or [R, H] of the rows in use."""
        return self.encoder(self.embeddings(ids, segments, layout), layout, rows)

    def decode(self, ids: Tensor, segments: Tensor, layout: PackedLayout, rows: RowsInUse | None = None) -> Tensor:
        """What the head of masked words reads, [T, H] or [R, H]; BERT's is what :meth:`encode` gives."""
        return self.encode(ids, segments, layout, rows)

    def states(self, ids: Tensor, segments: Tensor, layout: PackedLayout) -> list[Tensor]:
        """[T] ids and segments -> embeddings and hidden states of each layer, [T, H] each."""
        return self.encoder.states(self.embeddings(ids, segments, layout), layout)

    def pool(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """Hidden states [T, H] -> one vector per sequence [B, H]."""
        return self.pooler(hidden.index_select(0, self.pooled(layout)))

    def task_tokens(self, hidden: Tensor) -> Tensor:
        """Hidden states [T, H] -> what the output layer of a task reads of each token [T, H]."""
        return hidden

    def pooled(self, layout: PackedLayout) -> Tensor:
        """The token that stands for each sequence, int64 [B]."""
        return layout.last if self.config.is_decoder else layout.first


@runtime_checkable
class GivesWeights(Protocol):
    """An attention that says what it gives to each token, made again of what it read, since it keeps none.

    The weights lie in rectangles [B, heads, L, L], from row to column, and rows of tokens sum to 1.
    """

    def weights(self, hidden: Tensor, layout: PackedLayout) -> Tensor: ...  # noqa: D102


@runtime_checkable
class StartsOtherwise(Protocol):
    """A part whose initial weights are not all as :func:`initialise` draws them."""

    def adjust_initial_weights(self) -> None: ...  # noqa: D102


def sinusoids(positions: int, width: int) -> Tensor:
    """Sines and cosines of each position at wavelengths that grow with the column (Vaswani et al. 2017, section 3.5).

    Neighbours have similar vectors from the start, which attention would else have to learn one position at a time.

    Returns:
        [positions, width]: sines in the even columns, cosines in the odd ones.
    """
    pairs = torch.arange(-(-width // 2))
    angles = torch.arange(positions)[:, None] * SINUSOID_BASE ** (-2 * pairs / width)
    return SINUSOID_AMPLITUDE * torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Weights from a normal distribution, cut at two deviations in BERT, biases 0, LayerNorm 1 (google-research/bert).

    Those of an LSTM, which google-research/bert has none of, from a uniform one. A part with a method
    ``adjust_initial_weights`` changes its own at the end.
    """
    cut = next((part.config.initial_cut for part in module.modules() if isinstance(part, Bert)), BertConfig.initial_cut)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding | nn.Conv1d):
            if cut is None:
                nn.init.normal_(part.weight, std=INITIAL_STD, generator=generator)
            else:
                most = cut * INITIAL_STD
                nn.init.trunc_normal_(part.weight, std=INITIAL_STD, a=-most, b=most, generator=generator)
        if isinstance(part, nn.Linear | nn.Conv1d) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            part.reset_parameters()
        if isinstance(part, nn.LSTM):
            for weight in part.parameters():  # as torch does it
                nn.init.uniform_(weight, -(part.hidden_size**-0.5), part.hidden_size**-0.5, generator=generator)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, StartsOtherwise):
                part.adjust_initial_weights()
