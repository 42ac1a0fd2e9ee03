"""Self-attention over flat, unpadded sequences: one function, and the back ends it runs on."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.dropout import dropout as drop
from pipeline_src.models.packed_layout import PackedLayout

BackEnd = Callable[[Tensor, Tensor, Tensor, PackedLayout, float, bool], Tensor]

MOST_WEIGHTS = 1 << 19  # attention weights at once in `runs`: 2 MB
LEAST_WEIGHTS = 6000  # on average; with fewer, calls take longer than what they compute


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: PackedLayout,
    dropout: float = 0.0,
    causal: bool = False,
    back_end: str = "auto",
) -> Tensor:
    """Scaled dot-product attention of each sequence with itself (Vaswani et al. 2017, section 3.2.1).

    Args:
        query, key, value: [T, heads, head size].
        layout: where the sequences lie.
        dropout: on the attention weights; above 0 in training alone.
        causal: whether a token sees those before it and itself alone.
        back_end: a key of ``BACK_ENDS``, or ``auto``.

    Returns:
        [T, heads, head size].

    Raises:
        PipelineError: the back end cannot do what is asked for; see :func:`choose`.
    """
    chosen = choose(back_end, query.device.type, query.dtype, dropout)
    return BACK_ENDS[chosen](query, key, value, layout, dropout, causal)


def choose(wanted: str, device: str, dtype: torch.dtype, dropout: float) -> str:
    """The back end that runs: the one wanted, or with ``auto`` the fastest that can.

    Raises:
        PipelineError: there is no such back end, it needs a GPU, or it has no dropout and dropout is above 0.
    """
    if wanted == "auto":
        if device != "cuda":
            return "runs" if device == "cpu" else "padded"
        return "nested" if dropout or dtype == torch.float32 else "varlen"
    if wanted not in BACK_ENDS:
        known = ", ".join(["auto", *BACK_ENDS])
        raise PipelineError("unknown attention", wanted, where="machine.yaml, attention", remedy=f"give one of {known}")
    if dropout and wanted in WITHOUT_DROPOUT:
        raise PipelineError(
            "this attention has no dropout",
            f"{wanted}, with attention dropout {dropout:g}",
            where="machine.yaml, attention",
            remedy="set model.attention_dropout to 0, or attention in machine.yaml to nested or auto",
        )
    if device != "cuda" and wanted in ON_GPU:
        raise PipelineError(
            "this attention needs a GPU",
            f"{wanted}, on {device}",
            where="machine.yaml, attention",
            remedy="set attention in machine.yaml to auto or padded",
        )
    return wanted


def padded(query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout, dropout: float, causal: bool) -> Tensor:
    """Through a [B, heads, L, head size] rectangle, on any device."""
    # With padding at the end, a causal mask alone already hides it from every token.
    mask = None if layout.keep is None or causal else layout.keep[:, None, None, :]
    query, key, value = (layout.pad(flat).transpose(1, 2) for flat in (query, key, value))
    context = F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal=causal)
    return layout.unpad(context.transpose(1, 2))


def runs(query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout, dropout: float, causal: bool) -> Tensor:
    """Runs of sequences of equal length, one run after another, so that what is computed stays in the CPU's cache.

    Nothing is padded, except where the runs are so short that the calls would take longer than what they compute.
    """
    tokens, heads, size = query.shape
    equal = layout.runs(MOST_WEIGHTS // heads)
    if heads * sum(count * length**2 for count, length in equal) < LEAST_WEIGHTS * len(equal):
        return padded(query, key, value, layout, dropout, causal)
    tokens_of = [count * length for count, length in equal]
    contexts = []
    for (count, length), *flat in zip(equal, *(tensor.split(tokens_of) for tensor in (query, key, value)), strict=True):
        q, k, v = (part.view(count, length, heads, size).transpose(1, 2) for part in flat)
        if dropout:  # torch's own goes this way too, with more passes over the weights and slower dropout
            scores = (q * size**-0.5) @ k.transpose(2, 3)
            if causal:
                scores = scores + torch.full((length, length), -torch.inf, device=scores.device).triu(1)
            context = drop(scores.softmax(-1), dropout) @ v
        else:
            context = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        contexts.append(context.transpose(1, 2).reshape(-1, heads, size))
    return torch.cat(contexts)


def nested(query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout, dropout: float, causal: bool) -> Tensor:
    """Through nested tensors of the jagged layout; on a CPU only without causal mask, and slowly."""

    def nest(flat: Tensor) -> Tensor:  # [T, heads, size] -> [B, heads, (length), size]
        # the shortest length is asked for to rule out empty sequences alone: 1 spares a GPU the wait for it
        return torch.nested.nested_tensor_from_jagged(
            flat, layout.cu_seqlens, min_seqlen=1, max_seqlen=layout.max_seqlen
        ).transpose(1, 2)

    context = F.scaled_dot_product_attention(nest(query), nest(key), nest(value), dropout_p=dropout, is_causal=causal)
    return context.transpose(1, 2).values()


def varlen(query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout, dropout: float, causal: bool) -> Tensor:
    """Through the variable-length flash kernel (Dao 2023), which takes half precision: float32 becomes bfloat16."""
    # Imported where it is used: it brings torch's compiler along, which takes two seconds.
    from torch.nn.attention.varlen import varlen_attn

    dtype = torch.bfloat16 if query.dtype == torch.float32 else query.dtype
    context = varlen_attn(
        query.to(dtype),
        key.to(dtype),
        value.to(dtype),
        layout.cu_seqlens_32,
        layout.cu_seqlens_32,
        layout.max_seqlen,
        layout.max_seqlen,
        window_size=(-1, 0) if causal else (-1, -1),
    )
    return context.to(query.dtype)


BACK_ENDS: dict[str, BackEnd] = {"padded": padded, "runs": runs, "nested": nested, "varlen": varlen}
WITHOUT_DROPOUT = ("varlen",)
ON_GPU = ("nested", "varlen")
