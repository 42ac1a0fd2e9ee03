"""Rotary positions and the gated feed-forward layer: written-out gradients equal autograd's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.family.modernbert.encoder import GatedGelu, RotatedParts, rope_cache, rotate

TOKENS, HEADS, SIZE = 7, 3, 8
# How torch runs a function: as it is, or traced and differentiated by its compiler, which makes no kernels here.
COMPILERS = [None, "aot_eager"]


def cache(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    positions = torch.randint(0, 500, (TOKENS,), generator=torch.Generator().manual_seed(1))
    return rope_cache(positions, SIZE, 10_000.0, dtype)


def vectors(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    drawn = torch.randn(TOKENS, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return drawn.to(dtype).requires_grad_()


def test_rotate_is_a_multiplication_by_complex_numbers() -> None:
    cosines, sines = cache()
    plain = vectors(HEADS, SIZE).detach()
    turned = rotate(plain, (cosines, sines))
    first, second = plain.chunk(2, -1)
    expected = torch.complex(first, second) * torch.complex(cosines, sines)
    torch.testing.assert_close(turned, torch.cat([expected.real, expected.imag], -1))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("parts", "count"), [(3, 2), (2, 1), (1, 1)])
def test_rotated_parts_and_gradient_equal_rotation_of_slices(parts: int, count: int, compiler: str | None) -> None:
    def split(projected: Tensor) -> tuple[Tensor, ...]:
        return RotatedParts.apply(projected, count, *cache())  # type: ignore[no-any-return]

    projected = vectors(parts, HEADS, SIZE)
    result = (split if compiler is None else torch.compile(split, backend=compiler))(projected)
    cosines, sines = (table[:, None] for table in cache())
    first, second = projected[:, :count].chunk(2, -1)
    rotated = torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)
    expected = (*rotated.unbind(1), *projected[:, count:].unbind(1))
    for part, other in zip(result, expected, strict=True):
        torch.testing.assert_close(part, other)
    weights = [torch.randn_like(part) for part in expected]
    (gradient,) = torch.autograd.grad(result, projected, weights)
    (other,) = torch.autograd.grad(expected, projected, weights)
    torch.testing.assert_close(gradient, other)


def test_rotated_parts_bfloat16_within_its_rounding() -> None:
    half = RotatedParts.apply(vectors(3, HEADS, SIZE, dtype=torch.bfloat16), 2, *cache(torch.bfloat16))
    exact = RotatedParts.apply(vectors(3, HEADS, SIZE), 2, *cache())
    assert {part.dtype for part in half} == {torch.bfloat16}
    for part, expected in zip(half, exact, strict=True):
        torch.testing.assert_close(part.double(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gated_gelu_value_and_gradient_equal_formula(approximate: str) -> None:
    projected = vectors(2 * SIZE)
    inner, gate = projected.chunk(2, -1)
    expected = F.gelu(inner, approximate=approximate) * gate
    result = GatedGelu.apply(projected, approximate)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    weights = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad(result, projected, weights)
    (other,) = torch.autograd.grad(expected, projected, weights)
    torch.testing.assert_close(gradient, other, rtol=0, atol=0)
