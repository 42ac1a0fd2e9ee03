"""The benchmark of memory traffic: bytes by operator, eager and compiled."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import traffic
from benchmarks._gpu_steps import SHAPES
from benchmarks._traffic_count import FUSED, Traffic, compiled, eager

N = 64
SMALL = SHAPES["mini"]._replace(layers=2, width=64, sequences=16, length=32, entries=1_000)
# Name -> function of a float32 matrix [N, N], and the float32 elements that it reads and writes.
CALLS: dict[str, tuple[Callable[[Tensor], object], int]] = {
    "product": (lambda x: x @ x, 3 * N * N),
    "sum of two": (lambda x: x + x, 3 * N * N),
    "sum with a row": (lambda x: x + x[0].expand(N, N), 2 * N * N + N),
    "in place": (lambda x: x.mul_(2), 2 * N * N),
    "cast to half": (lambda x: x.bfloat16(), N * N + N * N // 2),
    "no cast": (lambda x: x.float(), 0),
    "views": (lambda x: x.view(-1)[5:].reshape(1, -1).detach(), 0),
    "copy of a transpose": (lambda x: x.T.contiguous(), 2 * N * N),
    "copy into": (lambda x: torch.empty(N, N).copy_(x), 2 * N * N),
    "zeros": (lambda x: torch.zeros(N, N), N * N),
    "allocation": (lambda x: torch.empty(N, N), 0),
    "out": (lambda x: torch.mul(x, x, out=torch.empty(N, N)), 3 * N * N),
    "lookup": (lambda x: F.embedding(torch.tensor([3, 5]), x), 2 * 2 * N + 4),
    "half of the columns": (lambda x: x[:, : N // 2] * 2, N * N),
}


@pytest.mark.parametrize("name", CALLS)
def test_traffic_of_operator_is_operands_and_results(name: str) -> None:
    call, elements = CALLS[name]
    matrix = torch.ones(N, N)
    indices = torch.tensor([3, 5])
    with Traffic() as seen:
        call(matrix)
    # Making the indices writes them.
    made = indices.numel() * indices.element_size() if name == "lookup" else 0
    assert seen.bytes.total() in (4 * elements, 4 * elements + made)


def test_traffic_in_place_lists_are_read_and_written() -> None:
    tensors = [torch.ones(N), torch.ones(2 * N)]
    with Traffic() as seen:
        torch._foreach_mul_(tensors, 2.0)
    assert seen.bytes.total() == 2 * 4 * 3 * N


def of_model(traffic: Traffic) -> int:
    return sum(number for (phase, _), number in traffic.bytes.items() if phase == "model")


def test_traffic_compiled_step_moves_less_than_eager_step() -> None:
    unfused, fused = eager(SMALL), compiled(SMALL)
    assert of_model(fused) < 0.8 * of_model(unfused)
    products = ("model", "matrix products")
    assert fused.bytes[products] == pytest.approx(unfused.bytes[products], rel=0.15)
    assert fused.bytes["model", FUSED] > 0 == unfused.bytes["model", FUSED]
    # Twice as many sequences move twice as many activations, and the same weights.
    more = eager(SMALL._replace(sequences=2 * SMALL.sequences))
    assert 1.5 < of_model(more) / of_model(unfused) < 2
    assert more.bytes.total() - of_model(more) == unfused.bytes.total() - of_model(unfused)


def test_benchmark_traffic_reports_rooflines_and_targets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SHAPES, "8x512", SMALL)
    traffic.main(["--shape", "8x512"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["name"] for line in lines] == ["traffic 8x512, eager", "traffic 8x512, compiled"]
    assert all(line["met"] and line["H200_memory_ms"] <= line["H100_memory_ms"] for line in lines)
