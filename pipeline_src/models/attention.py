"""Self-attention over flat, unpadded sequences: one function, and the back ends it runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.dropout import dropout as drop
from pipeline_src.models.packed_layout import PackedLayout


class Window(NamedTuple):
    """What a query sees of its sequence (Beltagy et al. 2020, Longformer, section 3.1).

    Attributes:
        reach: tokens to each side.
        places: of the queries, each in its sequence, int64 [R].
    """

    reach: int
    places: Tensor


@dataclass(frozen=True)
class AttentionInputs:
    """What a back end computes attention of.

    Attributes:
        query: [R, heads, head size].
        key, value: [T, heads, head size].
        layout: where the sequences lie.
        queries: where the queries of each sequence lie; ``layout`` itself where every token is one.
        dropout: on the attention weights; above 0 in training alone.
        causal: whether a token sees those before it and itself alone; every token is a query then.
        window: what a query sees, where not the whole sequence; not with ``causal``.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    layout: PackedLayout
    queries: PackedLayout
    dropout: float = 0.0
    causal: bool = False
    window: Window | None = None


BackEnd = Callable[[AttentionInputs], Tensor]  # to [R, heads, head size]

WHERE = "machine.yaml, attention"
AMPERE = (8, 0)  # compute capability of the first GPUs that have the kernel, and bfloat16
MOST_WEIGHTS = 1 << 19  # attention weights at once in `runs`: 2 MB
BANDS = 4  # reaches of a window in a sequence beyond which it is cut
LEAST_WEIGHTS = 6000  # on average; with fewer, calls take longer than what they compute


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: PackedLayout,
    dropout: float = 0.0,
    causal: bool = False,
    back_end: str = "auto",
    queries: PackedLayout | None = None,
    window: Window | None = None,
) -> Tensor:
    """Scaled dot-product attention of each sequence with itself (Vaswani et al. 2017, section 3.2.1).

    Args:
        query: [R, heads, head size]; R is T unless ``queries`` says otherwise.
        key, value: [T, heads, head size].
        layout: where the sequences lie.
        dropout: on the attention weights; above 0 in training alone.
        causal: whether a token sees those before it and itself alone.
        back_end: a key of ``BACK_ENDS`` that runs on this device, see :func:`choose`; or ``auto``.
        queries: where the queries of each sequence lie, where not every token is one; not with ``causal``.
        window: what a query sees, where not the whole sequence; not with ``causal``.

    Returns:
        [R, heads, head size].
    """
    if back_end == "auto":
        back_end = choose(back_end, query.device, query.shape[-1])
    return BACK_ENDS[back_end](AttentionInputs(query, key, value, layout, queries or layout, dropout, causal, window))


def scores_of(query: Tensor, key: Tensor, layout: PackedLayout) -> Tensor:
    """Scores of every two tokens of a sequence before the softmax, over the root of the heads' width.

    Attention itself keeps none. Where no token is, they mean nothing.

    Args:
        query, key: [T, heads, head size].
        layout: where the sequences lie.

    Returns:
        [B, heads, L, L].
    """
    query, key = (layout.pad(flat).transpose(1, 2) for flat in (query, key))
    return query @ key.transpose(2, 3) / query.shape[-1] ** 0.5


def weights_of(scores: Tensor, layout: PackedLayout, causal: bool = False, reach: int | None = None) -> Tensor:
    """Attention weights [B, heads, L, L] of scores: the softmax over what each token sees, as in :func:`attention`."""
    places = torch.arange(layout.max_seqlen, device=scores.device)
    apart = places[:, None] - places
    seen = torch.ones_like(apart, dtype=torch.bool) if reach is None else apart.abs() <= reach
    seen = (seen & (apart >= 0) if causal else seen)[None]
    if layout.keep is not None:
        seen = seen & layout.keep[:, None, :]
    return scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)


def choose(wanted: str, device: torch.device, head_size: int) -> str:
    """The back end that runs: the one wanted, or with ``auto`` the fastest that can.

    Training asks before it begins, so that no step is taken where a later one would be refused.

    Raises:
        PipelineError: there is no such back end, or it does not run on this device or with heads of this size.
    """
    if wanted == "auto":
        if device.type == "cpu":
            return "runs"
        return "flash" if device.type == "cuda" and _has_flash(device) and _fits_flash(head_size) else "padded"
    if wanted not in BACK_ENDS:
        known = ", ".join(["auto", *BACK_ENDS])
        raise PipelineError("unknown attention", wanted, where=WHERE, remedy=f"give one of {known}")
    needed = RUNS_ON.get(wanted, device.type)
    if device.type != needed:
        raise PipelineError(
            f"this attention needs a {needed.replace('cuda', 'GPU').replace('cpu', 'CPU')}",
            f"{wanted}, on {device.type}",
            where=WHERE,
            remedy="set attention in machine.yaml to auto or padded",
        )
    if wanted == "flash" and not (_has_flash(device) and _fits_flash(head_size)):
        raise PipelineError(
            "this attention needs a GPU of the Ampere generation or later, and heads of a multiple of 8 up to 256",
            f"flash, with heads of {head_size} on {torch.cuda.get_device_name(device)}",
            where=WHERE,
            remedy="set attention in machine.yaml to auto or padded",
        )
    return wanted


def _has_flash(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= AMPERE and torch.backends.cuda.is_flash_attention_available()


def _fits_flash(head_size: int) -> bool:
    return head_size % 8 == 0 and head_size <= 256  # aten/src/ATen/native/transformers/cuda/flash_attn


def padded(inputs: AttentionInputs) -> Tensor:
    """Through [B, heads, L, head size] rectangles, on any device."""
    layout, queries, window = inputs.layout, inputs.queries, inputs.window
    # With padding at the end, a causal mask alone already hides it from every token.
    mask = None if layout.keep is None or inputs.causal else layout.keep[:, None, None, :]
    if window is not None and layout.max_seqlen > window.reach + 1:
        near = _near(queries.pad(window.places), layout.max_seqlen, window.reach)[:, None]
        mask = near if mask is None else near & mask
    query = queries.pad(inputs.query).transpose(1, 2)
    key, value = (layout.pad(flat).transpose(1, 2) for flat in (inputs.key, inputs.value))
    context = F.scaled_dot_product_attention(query, key, value, mask, inputs.dropout, is_causal=inputs.causal)
    return queries.unpad(context.transpose(1, 2))


def runs(inputs: AttentionInputs) -> Tensor:
    """Runs of sequences of equal length, one run after another, so that what is computed stays in the CPU's cache.

    Nothing is padded, except where the runs are so short that the calls would take longer than what they compute.
    """
    return in_float32(_of_runs, inputs)


def in_float32(compute: Callable[[Any], Tensor], inputs: Any) -> Tensor:
    """``compute(inputs)`` in float32 under autocast too, on a CPU; of the type of ``inputs.query``.

    oneDNN makes a kernel for every shape of a product of bfloat16. Runs of sequences have hundreds of shapes a step,
    and making their kernels takes longer than they run.

    Args:
        compute: attention of runs.
        inputs: a dataclass, of which tensors of a narrower type are widened.
    """
    parts = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    wide = {
        name: part.to(torch.promote_types(part.dtype, torch.float32))
        for name, part in parts.items()
        if isinstance(part, Tensor) and part.is_floating_point()
    }
    with torch.autocast("cpu", enabled=False):
        return compute(replace(inputs, **wide)).to(inputs.query.dtype)


def _of_runs(inputs: AttentionInputs) -> Tensor:
    layout, queries, window, dropout = inputs.layout, inputs.queries, inputs.window, inputs.dropout
    _, heads, size = inputs.query.shape
    equal = layout.runs(queries, MOST_WEIGHTS // heads)
    if heads * sum(count * asked * length for count, asked, length in equal) < LEAST_WEIGHTS * len(equal):
        return padded(inputs)
    asked_of, tokens_of = ([run[0] * run[part] for run in equal] for part in (1, 2))
    split = (inputs.query.split(asked_of), inputs.key.split(tokens_of), inputs.value.split(tokens_of))
    places = None if window is None or queries is layout else window.places.split(asked_of)
    contexts = []
    for number, ((count, asked, length), *flat) in enumerate(zip(equal, *split, strict=True)):
        q, k, v = (part.view(count, -1, heads, size).transpose(1, 2) for part in flat)
        mask = None
        if window is not None and length > window.reach + 1:
            if places is not None:
                mask = _near(places[number].view(count, asked), length, window.reach)[:, None]
            elif length > BANDS * window.reach and not dropout:
                contexts.append(_banded(q, k, v, window.reach).transpose(1, 2).reshape(-1, heads, size))
                continue
            else:
                mask = _band(length, window.reach)
        if dropout:  # torch's own goes this way too, with more passes over the weights and slower dropout
            scores = (q * size**-0.5) @ k.transpose(2, 3)
            if inputs.causal:
                scores = scores + torch.full((length, length), -torch.inf, device=scores.device).triu(1)
            if mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf)
            context = drop(scores.softmax(-1), dropout) @ v
        else:
            context = F.scaled_dot_product_attention(q, k, v, mask, is_causal=inputs.causal)
        contexts.append(context.transpose(1, 2).reshape(-1, heads, size))
    return torch.cat(contexts)


def _near(places: Tensor, length: int, reach: int) -> Tensor:
    """Places of queries [B, R] -> whether each sees each of ``length`` tokens, bool [B, R, length]."""
    return (places[..., None] - torch.arange(length, device=places.device)).abs() <= reach


@lru_cache(maxsize=256)
def _band(length: int, reach: int) -> Tensor:
    """As :func:`_near`, of all tokens of a sequence: bool [length, length]."""
    return _near(torch.arange(length), length, reach)


def _banded(query: Tensor, key: Tensor, value: Tensor, reach: int) -> Tensor:
    """Local attention of long sequences, [B, heads, L, size], without most of the pairs that see nothing."""
    length, contexts = query.shape[2], []
    for start in range(0, length, 2 * reach):
        end, first = min(length, start + 2 * reach), max(0, start - reach)
        seen = slice(first, min(length, end + reach))
        mask = _band(length, reach)[start:end, seen]
        context = F.scaled_dot_product_attention(query[:, :, start:end], key[:, :, seen], value[:, :, seen], mask)
        contexts.append(context)
    return torch.cat(contexts, 2)


def flash(inputs: AttentionInputs) -> Tensor:
    """Through the flash kernel for sequences laid end to end (Dao 2023), which draws dropout as it goes.

    It takes half precision: float32, as outside autocast, becomes bfloat16 on the way. The operator is called as it
    is, since what torch offers above it either has no dropout (``varlen_attn``) or goes through nested tensors, which
    take the host four times as long and which the compiler cannot cut into the parts that several processes share.
    """
    query, layout, queries, window = inputs.query, inputs.layout, inputs.queries, inputs.window
    if window is not None and queries is not layout:  # the kernel takes queries for the last of their sequence
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
        False,  # no mask for debugging
        **reach,
    )[0]
    return context.to(query.dtype)


BACK_ENDS: dict[str, BackEnd] = {"padded": padded, "runs": runs, "flash": flash}
RUNS_ON = {"runs": "cpu", "flash": "cuda"}  # `padded` runs anywhere
