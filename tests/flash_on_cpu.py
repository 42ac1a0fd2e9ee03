"""Flash attention's operators on the CPU, by definition, so that what a GPU runs can be traced and compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def flash_on_cpu() -> Iterator[None]:
    """Within it ``aten._flash_attention_forward`` and its backward pass run on the CPU, as slowly as they are plain."""
    kernels = torch.library.Library("aten", "IMPL")
    kernels.impl("_flash_attention_forward", _forward, "CPU")
    kernels.impl("_flash_attention_backward", _backward, "CPU")
    try:
        yield
    finally:
        kernels._destroy()


def _forward(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, starts_k: Tensor, longest: int, longest_k: int,
    dropout: float, causal: bool, debug: bool, **more: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    _check(query, key, value, (starts, longest), (starts_k, longest_k))
    seed = torch.randint(1 << 31, (2,)).to(torch.uint64)  # torch's own generator decides, as on a GPU
    context = torch.empty_like(query, memory_format=torch.contiguous_format)
    sums = query.new_empty((query.shape[1], len(query)), dtype=torch.float32)
    for rows, _, _, _, v, scores, mask in _sequences(query, key, value, starts, starts_k, dropout, causal, seed):
        context[rows] = ((scores.softmax(-1) * mask) @ v).transpose(0, 1).to(context.dtype)
        sums[:, rows] = scores.logsumexp(-1)
    return context, sums, seed, torch.empty((), dtype=torch.uint64), torch.empty(0, dtype=query.dtype)


def _backward(
    grad_context: Tensor, query: Tensor, key: Tensor, value: Tensor, context: Tensor, sums: Tensor, starts: Tensor,
    starts_k: Tensor, longest: int, longest_k: int, dropout: float, causal: bool, seed: Tensor, unused: Tensor,
    **more: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    gradients = tuple(torch.empty_like(part, memory_format=torch.contiguous_format) for part in (query, key, value))
    for rows, rows_k, q, k, v, scores, mask in _sequences(query, key, value, starts, starts_k, dropout, causal, seed):
        weights, grad_part = scores.softmax(-1), grad_context[rows].transpose(0, 1).float()
        grad_weights = (grad_part @ v.transpose(1, 2)) * mask
        grad_logits = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        parts = grad_logits @ k, grad_logits.transpose(1, 2) @ q, (weights * mask).transpose(1, 2) @ grad_part
        for gradient, part, where in zip(gradients, parts, (rows, rows_k, rows_k), strict=True):
            gradient[where] = part.transpose(0, 1).to(gradient.dtype)
    return gradients


def _sequences(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    starts_k: Tensor,
    dropout: float,
    causal: bool,
    seed: Tensor,
) -> Iterator[tuple[slice, slice, Tensor, Tensor, Tensor, Tensor, Any]]:
    """Of each sequence the slices of queries and keys, q, k, v, scores, and what dropout multiplies weights with.

    q, k and v are [heads, length, size].
    """
    draw = torch.Generator().manual_seed(int(seed[0]))
    slices, slices_k = (list(map(slice, bounds, bounds[1:])) for bounds in (starts.tolist(), starts_k.tolist()))
    for rows, rows_k in zip(slices, slices_k, strict=True):
        q, k, v = (part[at].transpose(0, 1).float() for part, at in ((query, rows), (key, rows_k), (value, rows_k)))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(1, 2)
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        mask = (torch.rand(scores.shape, generator=draw) >= dropout) / (1 - dropout) if dropout else 1.0
        yield rows, rows_k, q, k, v, scores, mask


def _check(query: Tensor, key: Tensor, value: Tensor, *layouts: tuple[Tensor, int]) -> None:
    """What the kernel refuses (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp)."""
    assert query.dtype in (torch.bfloat16, torch.float16) and query.dtype == key.dtype == value.dtype
    assert query.shape[1:] == key.shape[1:] and key.shape == value.shape
    assert all(part.stride(-1) == 1 for part in (query, key, value))
    for starts, longest in layouts:
        assert starts.dtype == torch.int32 and starts.is_contiguous() and longest >= int(starts.diff().max())
    assert query.shape[-1] % 8 == 0 and query.shape[-1] <= 256
