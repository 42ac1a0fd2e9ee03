"""Self-attention over packed, unpadded sequences, and the back ends that compute it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, wraps
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.base.errors import PipelineError

# On these devices, batches without padding get a mask too. Otherwise torch.compile would make a second graph for them.
ALWAYS_MASKED = {"cuda"}
# Dropout rates are rounded to a multiple of 1 / RATE_STEPS, for example 0.1 to 0.100006.
RATE_STEPS = 1 << 16


class Dropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, inner: Tensor) -> Tensor:
        return apply_dropout(inner, self.rate) if self.training else inner


def apply_dropout(inner: Tensor, rate: float) -> Tensor:
    """Zero elements with probability ``rate``, and scale the kept ones by 1 / (1 - rate).

    ``rate`` is in [0, 1). Random numbers come from torch's default generator. On a CPU, torch's own dropout samples one
    Bernoulli variable per element, which takes a tenth of a training step. This function splits each 64-bit random
    number among four elements.
    """
    if not rate:
        return inner
    if inner.device.type != "cpu":
        return F.dropout(inner, rate)
    # Each 64-bit random word is read as four int16, uniform in [-32768, 32767]. The lowest `dropped` of these 65,536
    # values zero their element.
    dropped = round(rate * RATE_STEPS)
    count = math.ceil(inner.numel() / 4)
    words = torch.randint(-(1 << 63), (1 << 63) - 1, (count,))
    numbers = words.view(torch.int16)[: inner.numel()].view(inner.shape)
    scale = torch.empty_like(inner, memory_format=torch.contiguous_format, requires_grad=False)
    torch.ge(numbers, dropped - RATE_STEPS // 2, out=scale)
    scale.mul_(RATE_STEPS / (RATE_STEPS - dropped))
    return inner * scale


@dataclass(frozen=True)
class PackedBatch:
    """Layout of B sequences concatenated into T tokens, without padding.

    It is built once per batch, and all layers share it. L is the length of the longest sequence.

    Attributes:
        cu_seqlens: start index of each sequence, with T at the end, int64 [B + 1].
        cu_seqlens_32: the same as int32.
        position: position of each token in its sequence, int64 [T].
        padded: index of each token in the flattened [B, L] rectangle, int64 [T].
        keep: True for tokens and False for padding, bool [B, L]. None on a CPU if all sequences are equally long.
        sequences: the number B.
        max_seqlen: the length L.
        cache: tensors that an encoder computes once per batch for all its layers, such as rotary embeddings.
    """

    cu_seqlens: Tensor
    cu_seqlens_32: Tensor
    position: Tensor
    padded: Tensor
    keep: Tensor | None
    sequences: int
    max_seqlen: int
    cache: dict[object, tuple[Tensor, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def first(self) -> Tensor:
        return self.cu_seqlens[:-1]

    @property
    def last(self) -> Tensor:
        return self.cu_seqlens[1:] - 1

    def groups(self, queries: PackedBatch, max_pairs: int) -> list[tuple[int, int, int]]:
        """Group consecutive sequences of equal length and equal number of queries.

        Args:
            queries: layout of the queries of these sequences. Pass this layout itself if every token is a query.
            max_pairs: maximum number of (query, token) pairs in a group of two or more sequences.

        Returns:
            For each group: (number of sequences, queries per sequence, tokens per sequence).
        """
        groups: list[tuple[int, int, int]] = []
        for num_queries, length in zip(queries.lengths, self.lengths, strict=True):
            count = 1
            # Join the previous sequence's group if both sizes are equal and the group is not full.
            if groups and groups[-1][1:] == (num_queries, length):
                count += groups[-1][0]
            if count > 1 and count * num_queries * length <= max_pairs:
                groups[-1] = (count, num_queries, length)
            else:
                groups.append((1, num_queries, length))
        return groups

    @cached_property
    def lengths(self) -> list[int]:
        # On a GPU, `tolist` synchronises with the host.
        return self.cu_seqlens.diff().tolist()

    @classmethod
    def of(cls, cu_seqlens: Tensor, tokens: int, max_seqlen: int | None = None) -> PackedBatch:
        """Build the layout from ``cu_seqlens`` and the total number of tokens.

        On a GPU, pass ``max_seqlen`` (the longest length) to avoid a synchronisation with the host.
        """
        device = cu_seqlens.device
        lengths = cu_seqlens.diff()
        sequences = len(lengths)
        if max_seqlen is None:
            max_seqlen = int(lengths.max())
        # The index of each token's sequence. Passing output_size avoids a synchronisation with the GPU.
        sequence = torch.repeat_interleave(torch.arange(sequences, device=device), lengths, output_size=tokens)
        position = torch.arange(tokens, device=device) - cu_seqlens.index_select(0, sequence)
        keep = None
        if tokens != sequences * max_seqlen or device.type in ALWAYS_MASKED:
            keep = torch.arange(max_seqlen, device=device) < lengths[:, None]
        return cls(
            cu_seqlens=cu_seqlens,
            cu_seqlens_32=cu_seqlens.int(),
            position=position,
            padded=sequence * max_seqlen + position,
            keep=keep,
            sequences=sequences,
            max_seqlen=max_seqlen,
        )

    def pad(self, flat: Tensor, fill: float = 0.0) -> Tensor:
        """Pad packed values [T, ...] with ``fill`` to [B, L, ...]."""
        if self.keep is None:
            return flat.view(self.sequences, self.max_seqlen, *flat.shape[1:])
        rectangle = flat.new_full((self.sequences * self.max_seqlen, *flat.shape[1:]), fill)
        return rectangle.index_copy(0, self.padded, flat).view(self.sequences, self.max_seqlen, *flat.shape[1:])

    def unpad(self, rectangle: Tensor) -> Tensor:
        """Remove the padding from [B, L, ...], and return packed values [T, ...]."""
        flat = rectangle.reshape(-1, *rectangle.shape[2:])
        return flat if self.keep is None else flat.index_select(0, self.padded)


@dataclass(frozen=True)
class QueryRows:
    """The R tokens for which the last block computes an output (its query rows).

    Attributes:
        index: indices of the query rows among all T tokens, ascending, int64 [R]. Each sequence has at least one.
        layout: layout of the R query rows: which of them belong to which sequence.
    """

    index: Tensor
    layout: PackedBatch

    @classmethod
    def of(cls, index: Tensor, starts: Tensor, max_rows: int | None = None) -> QueryRows:
        """Build the query rows from their token indices and the number per sequence.

        Args:
            index: see ``QueryRows``.
            starts: where each sequence's rows start in ``index``, with R at the end, int64 [B + 1].
            max_rows: the largest number of rows in a sequence. If None, it is read from ``starts``, which synchronises
                with a GPU.
        """
        return cls(index, PackedBatch.of(starts, len(index), max_rows))

    @classmethod
    def first(cls, layout: PackedBatch) -> QueryRows:
        starts = torch.arange(layout.sequences + 1, device=layout.cu_seqlens.device)
        return cls.of(layout.first, starts, 1)


class Window(NamedTuple):
    """Sliding attention window (Beltagy et al. 2020, Longformer, section 3.1).

    Attributes:
        reach: number of tokens visible on each side of the query.
        positions: position of each query in its sequence, int64 [R].
    """

    reach: int
    positions: Tensor


@dataclass(frozen=True)
class AttentionInputs:
    query: Tensor
    key: Tensor
    value: Tensor
    layout: PackedBatch
    queries: PackedBatch
    dropout: float = 0.0
    causal: bool = False
    window: Window | None = None


# A back end returns [R, heads, head size].
BackEnd = Callable[[AttentionInputs], Tensor]

WHERE = "machine.yaml, attention"
# Lowest CUDA compute capability that has the flash attention kernel and bfloat16.
AMPERE = (8, 0)
# `grouped` computes at most this many attention probabilities at once (2 MB), which fit a CPU's cache.
MAX_GROUP_PROBS = 1 << 19
# With fewer probabilities per group on average, the calls' overhead dominates, and `padded` is faster.
MIN_GROUP_PROBS = 6000
# Sequences longer than BANDS * Window.reach are computed in bands.
BANDS = 4


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: PackedBatch,
    dropout: float = 0.0,
    causal: bool = False,
    back_end: str = "auto",
    queries: PackedBatch | None = None,
    window: Window | None = None,
) -> Tensor:
    """Attend within each sequence (Vaswani et al. 2017, section 3.2.1).

    Args:
        query: [R, heads, head size]. R is T unless ``queries`` is given.
        key, value: [T, heads, head size].
        layout: layout of the keys and values.
        dropout: dropout rate of the attention probabilities.
        causal: whether each token sees only itself and earlier tokens.
        back_end: a key of ``BACK_ENDS`` that runs on this device, or "auto" (see ``choose``).
        queries: layout of the queries, or None if every token is a query. Not supported with ``causal``.
        window: sliding window, or None for the whole sequence. Not supported with ``causal``.

    Returns:
        [R, heads, head size].
    """
    if back_end == "auto":
        back_end = choose(back_end, query.device, query.shape[-1])
    return BACK_ENDS[back_end](AttentionInputs(query, key, value, layout, queries or layout, dropout, causal, window))


def attention_logits(query: Tensor, key: Tensor, layout: PackedBatch) -> Tensor:
    """Return query @ key / sqrt(head size) for all token pairs of each sequence.

    Returns:
        [B, heads, L, L]. Values at padding are undefined.
    """
    padded_query = layout.pad(query).transpose(1, 2)
    padded_key = layout.pad(key).transpose(1, 2)
    return padded_query @ padded_key.transpose(2, 3) / query.shape[-1] ** 0.5


def attention_probs_of(logits: Tensor, layout: PackedBatch, causal: bool = False, reach: int | None = None) -> Tensor:
    """Return the softmax of attention logits [B, heads, L, L] over the visible tokens.

    A query sees ``reach`` tokens on each side, or the whole sequence if ``reach`` is None. With ``causal`` it does not
    see later tokens.
    """
    positions = torch.arange(layout.max_seqlen, device=logits.device)
    distance = positions[:, None] - positions
    visible = torch.ones_like(distance, dtype=torch.bool)
    if reach is not None:
        visible &= distance.abs() <= reach
    if causal:
        visible &= distance >= 0
    visible = visible[None]
    if layout.keep is not None:
        visible = visible & layout.keep[:, None, :]
    return logits.masked_fill(~visible[:, None], -torch.inf).softmax(-1)


def choose(setting: str, device: torch.device, head_size: int) -> str:
    """Return the key of the attention back end to run.

    This is ``setting`` itself, or for "auto" the fastest back end that supports the device and head size.
    """
    if setting == "auto":
        if device.type == "cpu":
            return "length_grouped"
        return "flash_varlen" if device.type == "cuda" and can_flash(device, head_size) else "padded"
    if setting not in BACK_ENDS:
        known = ", ".join(["auto", *BACK_ENDS])
        raise PipelineError("unknown attention back end", setting, where=WHERE, hint=f"set it to one of {known}")
    needed = RUNS_ON.get(setting, device.type)
    if device.type != needed:
        raise PipelineError(
            f"this attention needs a {needed.replace('cuda', 'GPU').replace('cpu', 'CPU')}",
            f"{setting}, on {device.type}",
            where=WHERE,
            hint="set attention in machine.yaml to auto or padded",
        )
    if setting == "flash_varlen" and not can_flash(device, head_size):
        raise PipelineError(
            "flash attention needs an Ampere or newer GPU, and a head size that is a multiple of 8 and at most 256",
            f"head size {head_size} on {torch.cuda.get_device_name(device)}",
            where=WHERE,
            hint="set attention in machine.yaml to auto or padded",
        )
    return setting


def can_flash(device: torch.device, head_size: int) -> bool:
    has_kernel = (
        torch.cuda.get_device_capability(device) >= AMPERE and torch.backends.cuda.is_flash_attention_available()
    )
    return has_kernel and is_flash_size(head_size)


def is_flash_size(head_size: int) -> bool:
    return head_size % 8 == 0 and head_size <= 256


def padded(inputs: AttentionInputs) -> Tensor:
    # Runs on any device, on tensors padded to [B, heads, L, head size].
    layout = inputs.layout
    queries = inputs.queries
    window = inputs.window
    # Padding is at the end, so a causal mask already hides it.
    mask = None
    if layout.keep is not None and not inputs.causal:
        mask = layout.keep[:, None, None, :]
    if window is not None and layout.max_seqlen > window.reach + 1:
        near = _near(queries.pad(window.positions), layout.max_seqlen, window.reach)[:, None]
        mask = near if mask is None else near & mask
    query = queries.pad(inputs.query).transpose(1, 2)
    key = layout.pad(inputs.key).transpose(1, 2)
    value = layout.pad(inputs.value).transpose(1, 2)
    context = F.scaled_dot_product_attention(query, key, value, mask, inputs.dropout, is_causal=inputs.causal)
    return queries.unpad(context.transpose(1, 2))


def in_float32(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorator: compute attention in float32 even under CPU autocast.

    The result is cast back to the query's dtype.
    """
    # oneDNN compiles a kernel for every shape of a bfloat16 matmul. Groups of sequences have hundreds of shapes per
    # step, and compiling the kernels takes longer than running them.

    @wraps(compute)
    def run(inputs: Any, *more: Any) -> Tensor:
        wide = {}
        for name, part in vars(inputs).items():
            if isinstance(part, Tensor) and part.is_floating_point():
                wide[name] = part.to(torch.promote_types(part.dtype, torch.float32))
        with torch.autocast("cpu", enabled=False):
            return compute(replace(inputs, **wide), *more).to(inputs.query.dtype)

    return run


@in_float32
def grouped(inputs: AttentionInputs) -> Tensor:
    # Computes sequences of equal length together: no padding is needed, and a group fits the CPU's cache.
    layout = inputs.layout
    window = inputs.window
    _, heads, size = inputs.query.shape
    groups = layout.groups(inputs.queries, MAX_GROUP_PROBS // heads)
    num_probs = heads * sum(count * num_queries * length for count, num_queries, length in groups)
    if num_probs < MIN_GROUP_PROBS * len(groups):
        return padded(inputs)

    query_counts = [count * num_queries for count, num_queries, _ in groups]
    token_counts = [count * length for count, _, length in groups]
    queries = inputs.query.split(query_counts)
    keys = inputs.key.split(token_counts)
    values = inputs.value.split(token_counts)
    positions = None
    if window is not None and inputs.queries is not layout:
        positions = window.positions.split(query_counts)
    contexts = []
    for number, (count, num_queries, length) in enumerate(groups):
        q = queries[number].view(count, -1, heads, size).transpose(1, 2)
        k = keys[number].view(count, -1, heads, size).transpose(1, 2)
        v = values[number].view(count, -1, heads, size).transpose(1, 2)
        mask = None
        is_banded = False
        # In a shorter sequence, the window covers all tokens and needs no mask.
        if window is not None and length > window.reach + 1:
            if positions is not None:
                mask = _near(positions[number].view(count, num_queries), length, window.reach)[:, None]
            elif length > BANDS * window.reach and not inputs.dropout:
                is_banded = True
            else:
                mask = _band(length, window.reach)
        if window is not None and is_banded:
            context = _banded(q, k, v, window.reach)
        elif inputs.dropout:
            context = _attend_with_dropout(q, k, v, mask, inputs.causal, inputs.dropout)
        else:
            context = F.scaled_dot_product_attention(q, k, v, mask, is_causal=inputs.causal)
        contexts.append(context.transpose(1, 2).reshape(-1, heads, size))
    return torch.cat(contexts)


def _attend_with_dropout(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, rate: float) -> Tensor:
    # torch's scaled_dot_product_attention is slower with dropout: it reads the probabilities more often, and it samples
    # one random number per element.
    length, size = k.shape[2:]
    logits = (q * size**-0.5) @ k.transpose(2, 3)
    if causal:
        after_query = torch.full((length, length), -torch.inf, device=logits.device).triu(1)
        logits = logits + after_query
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf)
    probs = apply_dropout(logits.softmax(-1), rate)
    return probs @ v


def _near(positions: Tensor, length: int, reach: int) -> Tensor:
    return (positions[..., None] - torch.arange(length, device=positions.device)).abs() <= reach


@lru_cache(maxsize=256)
def _band(length: int, reach: int) -> Tensor:
    return _near(torch.arange(length), length, reach)


def _banded(query: Tensor, key: Tensor, value: Tensor, reach: int) -> Tensor:
    # Computing attention for one band of queries at a time skips most masked pairs.
    length = query.shape[2]
    contexts = []
    for start in range(0, length, 2 * reach):
        # With a reach of 64, queries 128 .. 255 see keys 64 .. 319 at most.
        band = slice(start, min(length, start + 2 * reach))
        visible = slice(max(0, start - reach), min(length, band.stop + reach))
        mask = _band(length, reach)[band, visible]
        queries = query[:, :, band]
        keys = key[:, :, visible]
        values = value[:, :, visible]
        contexts.append(F.scaled_dot_product_attention(queries, keys, values, mask))
    return torch.cat(contexts, 2)


def flash(inputs: AttentionInputs) -> Tensor:
    """Compute attention with the variable-length flash attention kernel (Dao 2023).

    The kernel takes half precision, so float32 inputs are converted to bfloat16. The operator is called directly,
    because torch's ``varlen_attn`` has no dropout. Nested tensors take four times the host time and break
    ``torch.compile``.
    """
    query = inputs.query
    layout = inputs.layout
    queries = inputs.queries
    window = inputs.window
    # With a window, the kernel assumes that the queries are the last tokens of their sequence. ELECTRA's generator and
    # teachers may have heads that the kernel does not support.
    if (window is not None and queries is not layout) or not is_flash_size(query.shape[-1]):
        return padded(inputs)
    reach = {} if window is None else {"window_size_left": window.reach, "window_size_right": window.reach}
    half = query.dtype if query.dtype in (torch.bfloat16, torch.float16) else torch.bfloat16
    context = torch.ops.aten._flash_attention_forward(
        query.to(half),
        inputs.key.to(half),
        inputs.value.to(half),
        queries.cu_seqlens_32,
        layout.cu_seqlens_32,
        queries.max_seqlen,
        layout.max_seqlen,
        inputs.dropout,
        inputs.causal,
        False,  # return_debug_mask
        **reach,
    )[0]
    return context.to(query.dtype)


BACK_ENDS: dict[str, BackEnd] = {"padded": padded, "length_grouped": grouped, "flash_varlen": flash}
# `padded` runs on any device.
RUNS_ON = {"length_grouped": "cpu", "flash_varlen": "cuda"}
