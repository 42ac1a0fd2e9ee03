"""Attention back ends equal the definition of attention, the right one is chosen, and dropout is exact."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline_src.base.errors import PipelineError
from pipeline_src.model import attention as module
from pipeline_src.model.attention import (
    BACK_ENDS,
    AttentionInputs,
    Dropout,
    PackedBatch,
    QueryRows,
    Window,
    apply_dropout,
    attention,
    choose,
)
from tests.flash_on_cpu import flash_on_cpu

LENGTHS = {"equal": [6, 6, 6], "unequal": [5, 1, 9]}


@pytest.fixture(autouse=True)
def group_small_batches(monkeypatch):
    """Let `grouped` compute small batches, which it would otherwise pad."""
    monkeypatch.setattr("pipeline_src.model.attention.MIN_GROUP_PROBS", 0)


@pytest.fixture
def flash_kernels():
    with flash_on_cpu():
        yield


@pytest.fixture
def gpu(monkeypatch):
    """Fake a GPU of some compute capability for :func:`choose`."""

    def of(capability: tuple[int, int]) -> torch.device:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
        monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
        return torch.device("cuda", 0)

    return of


def inputs(
    lengths: list[int], device: str = "cpu", dtype: torch.dtype = torch.float32, head_size: int = 16
) -> tuple[list[Tensor], PackedBatch]:
    generator = torch.Generator().manual_seed(0)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).to(device)
    parts = [torch.randn(sum(lengths), 2, head_size, generator=generator).to(device, dtype) for _ in range(3)]
    return [part.requires_grad_() for part in parts], PackedBatch.of(cu_seqlens, sum(lengths), max(lengths))


def attention_by_definition(query: Tensor, key: Tensor, value: Tensor, lengths: list[int], causal: bool) -> Tensor:
    result = []
    for q, k, v in zip(query.split(lengths), key.split(lengths), value.split(lengths), strict=True):
        scores = torch.einsum("qhs,khs->hqk", q, k) / q.shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        result.append(torch.einsum("hqk,khs->qhs", scores.softmax(-1), v))
    return torch.cat(result)


def check(
    back_end: str, lengths: list[int], causal: bool, tolerance: float = 1e-5, dropout: float = 0.0, **where
) -> None:
    parts, layout = inputs(lengths, **where)
    result = BACK_ENDS[back_end](AttentionInputs(*parts, layout, layout, dropout, causal))
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result)
    gradients = torch.autograd.grad((result * weight).sum(), parts)
    expected = attention_by_definition(*parts, lengths, causal)
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
    for first, second in zip(gradients, torch.autograd.grad((expected * weight).sum(), parts), strict=True):
        torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize(("back_end", "dropout"), [("padded", 0.0), ("length_grouped", 0.0), ("length_grouped", 0.1)])
def test_attention_back_end_equals_definition(monkeypatch, back_end, dropout, lengths, causal):
    """With dropout, `length_grouped` uses another function. A rate close to zero drops nothing."""
    monkeypatch.setattr("pipeline_src.model.attention.apply_dropout", lambda weights, rate: weights)
    check(back_end, lengths, causal, dropout=dropout)


def test_length_grouped_small_batch_is_padded(monkeypatch):
    parts, layout = inputs([6, 6, 9])  # two groups; (2 * 36 + 81) * 2 heads = 306 weights
    called = []
    monkeypatch.setattr("pipeline_src.model.attention.padded", lambda inputs: called.append(inputs) or inputs.query)
    for threshold, expected in ((153, 0), (154, 1)):
        monkeypatch.setattr("pipeline_src.model.attention.MIN_GROUP_PROBS", threshold)
        BACK_ENDS["length_grouped"](AttentionInputs(*parts, layout, layout))
        assert len(called) == expected


def test_length_grouped_autocast_computes_in_float32():
    parts, layout = inputs([70, 70, 64])
    expected = BACK_ENDS["length_grouped"](AttentionInputs(*parts, layout, layout))
    narrow = [part.bfloat16() for part in parts]
    with torch.autocast("cpu", torch.bfloat16):
        result = BACK_ENDS["length_grouped"](AttentionInputs(*narrow, layout, layout))
        wide = BACK_ENDS["length_grouped"](AttentionInputs(*(part.float() for part in narrow), layout, layout))
    assert result.dtype == torch.bfloat16 and wide.dtype == torch.float32
    assert torch.equal(result, wide.bfloat16())  # rounded once, at the end
    torch.testing.assert_close(result.float(), expected, rtol=0.02, atol=0.02)


def test_packed_batch_groups_joins_adjacent_sequences_of_equal_length():
    layout = PackedBatch.of(torch.tensor([0, 4, 8, 12, 15, 19]), 19)
    assert layout.groups(layout, 2 * 4**2) == [(2, 4, 4), (1, 4, 4), (1, 3, 3), (1, 4, 4)]
    assert layout.groups(layout, 1) == [(1, 4, 4), (1, 4, 4), (1, 4, 4), (1, 3, 3), (1, 4, 4)]
    assert layout.groups(layout, 1 << 20) == [(3, 4, 4), (1, 3, 3), (1, 4, 4)]
    queries = PackedBatch.of(torch.tensor([0, 1, 2, 4, 5, 6]), 6)  # one each, and of the third two
    assert layout.groups(queries, 1 << 20) == [(2, 1, 4), (1, 2, 4), (1, 1, 3), (1, 1, 4)]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_flash_varlen_equals_definition(lengths, causal, dtype):
    """The operator is replaced by the definition. It rejects float32, as the kernel does."""
    with flash_on_cpu():
        check("flash_varlen", lengths, causal, tolerance=3e-2, dtype=dtype)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="its kernels run on a GPU alone, and there is none")
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("back_end", ["padded", "flash_varlen"])
def test_attention_back_end_on_gpu_equals_definition(back_end, lengths, causal):
    check(back_end, lengths, causal, tolerance=3e-2, device="cuda", dtype=torch.bfloat16)


@pytest.mark.parametrize("back_end", ["padded", "length_grouped", "flash_varlen"])
def test_attention_dropout_scales_remaining_probabilities(flash_kernels, back_end):
    """If all values are one, a context is the sum of the kept probabilities, each scaled by 1 / (1 - dropout)."""
    (query, key, value), layout = inputs([400, 300])
    query, value = torch.zeros_like(query), torch.ones_like(value)
    torch.manual_seed(0)
    dropped = AttentionInputs(query, key, value, layout, layout, dropout=0.5)
    result = BACK_ENDS[back_end](dropped)
    assert result.mean().item() == pytest.approx(1, abs=0.01) and 0.03 < result[..., 0].std() < 0.08
    torch.manual_seed(0)
    assert torch.equal(result, BACK_ENDS[back_end](dropped))


@pytest.mark.parametrize(
    ("capability", "head_size", "expected"),
    [
        ((9, 0), 64, "flash_varlen"),
        ((8, 0), 256, "flash_varlen"),
        ((8, 6), 20, "padded"),
        ((9, 0), 264, "padded"),
        ((7, 5), 64, "padded"),
    ],
)
def test_choose_auto_on_gpu_is_flash_if_supported(gpu, capability, head_size, expected):
    device = gpu(capability)
    assert choose("auto", device, head_size) == expected
    assert choose("padded", device, head_size) == "padded"
    if expected == "flash_varlen":
        assert choose("flash_varlen", device, head_size) == "flash_varlen"
    else:
        with pytest.raises(PipelineError, match=f"Ampere.*head size {head_size} on Some GPU"):
            choose("flash_varlen", device, head_size)


def test_choose_auto_without_gpu_is_fastest_back_end_of_device():
    assert (
        choose("auto", torch.device("cpu"), 64) == choose("length_grouped", torch.device("cpu"), 64) == "length_grouped"
    )
    assert choose("auto", torch.device("mps"), 64) == "padded"


@pytest.mark.parametrize(
    ("wanted", "device", "message"),
    [
        ("flash_varlen", "cpu", "needs a GPU: flash_varlen, on cpu"),
        ("length_grouped", "cuda", "needs a CPU: length_grouped, on cuda"),  # it would wait for lengths in every block
        ("nested", "cuda", "set it to one of auto, padded, length_grouped, flash_varlen"),
    ],
)
def test_choose_unsupported_back_end_is_rejected(gpu, wanted, device, message):
    gpu((9, 0))
    with pytest.raises(PipelineError, match=message):
        choose(wanted, torch.device(device), 64)


def test_attention_auto_back_end_is_chosen_at_each_call(monkeypatch):
    parts, layout = inputs([3, 2])
    calls = []
    monkeypatch.setattr(module, "choose", lambda *given: calls.append(given) or "padded")
    assert attention(*parts, layout).shape == (5, 2, 16)
    assert calls == [("auto", torch.device("cpu"), 16)]
    attention(*parts, layout, back_end="padded")
    assert len(calls) == 1  # nothing is asked while the compiler traces a back end that was chosen before


@pytest.mark.parametrize("asked", [[2, 2, 2, 1], [1, 1, 1, 1], [1, 6, 2, 9]], ids=["some", "first", "unequal"])
@pytest.mark.parametrize(
    ("back_end", "dropout"), [("padded", 0.0), ("length_grouped", 0.0), ("length_grouped", 0.5), ("flash_varlen", 0.0)]
)
def test_attention_subset_of_queries_attends_whole_sequence(flash_kernels, monkeypatch, back_end, asked, dropout):
    """With dropout, groups are computed by another function. A rate close to zero drops nothing."""
    monkeypatch.setattr("pipeline_src.model.attention.apply_dropout", lambda weights, rate: weights)
    lengths = [6, 6, 6, 9]
    (query, key, value), layout = inputs(lengths, dtype=torch.bfloat16 if back_end == "flash_varlen" else torch.float32)
    all_tokens = attention_by_definition(query, key, value, lengths, causal=False)
    starts = [0, 6, 12, 18]
    positions = torch.tensor([start + row for start, rows in zip(starts, asked, strict=True) for row in range(rows)])
    queries = PackedBatch.of(torch.tensor([0, *asked]).cumsum(0), sum(asked))
    result = BACK_ENDS[back_end](AttentionInputs(query[positions], key, value, layout, queries, dropout))
    rtol, atol = (2e-2, 1e-2) if back_end == "flash_varlen" else (1e-5, 1e-6)
    torch.testing.assert_close(result, all_tokens[positions], rtol=rtol, atol=atol)


@pytest.mark.parametrize("back_end", ["length_grouped", "padded"])
@pytest.mark.parametrize("dropout", [0.0, 1e-6], ids=["fused", "with dropout"])
def test_attention_window_masks_distant_tokens(back_end, dropout):
    """Either all tokens or some of them are queries. A dropout rate close to zero drops nothing."""

    lengths, reach = torch.tensor([50, 50, 9, 3]), 4
    layout = PackedBatch.of(torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), int(lengths.sum()))
    query, key, value = torch.randn(3, int(lengths.sum()), 2, 8, generator=torch.Generator().manual_seed(1))
    sequence = torch.repeat_interleave(torch.arange(4), lengths)
    seen = (sequence[:, None] == sequence) & ((layout.position[:, None] - layout.position).abs() <= reach)
    scores = torch.einsum("qhd,khd->hqk", query, key) / 8**0.5
    expected = torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), value)
    window = Window(reach, layout.position)
    result = attention(query, key, value, layout, dropout, back_end=back_end, window=window)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    positions = torch.tensor([0, 30, 50, 99, 100, 105, 110])
    rows = QueryRows.of(positions, torch.tensor([0, 2, 4, 6, 7]))
    query_window = Window(reach, layout.position[positions])
    some = attention(
        query[positions], key, value, layout, dropout, back_end=back_end, queries=rows.layout, window=query_window
    )
    torch.testing.assert_close(some, expected[positions], rtol=1e-4, atol=1e-5)


MANY = 1 << 20


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_apply_dropout_rate_and_scale_are_exact_on_average(rate):
    torch.manual_seed(0)
    result = apply_dropout(torch.ones(MANY), rate)
    selected = result > 0
    assert (~selected).float().mean().item() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / MANY) ** 0.5)
    assert result[selected].unique().item() == pytest.approx(1 / (1 - rate), rel=1e-3)
    assert result.mean().item() == pytest.approx(1, abs=5 * (rate / (1 - rate) / MANY) ** 0.5)  # right on average


def test_apply_dropout_elements_are_independent():
    """Four elements share one random number of 64 bits, and must still be independent."""
    torch.manual_seed(1)
    gone = (apply_dropout(torch.ones(MANY), 0.1) == 0).numpy()
    for lag in (1, 2, 3, 4, 5, 8, 16, 128):
        correlation = np.corrcoef(gone[:-lag], gone[lag:])[0, 1]
        assert abs(correlation) < 5 / MANY**0.5, lag
    probs = gone.reshape(-1, 4).mean(axis=0)  # of each place in a draw
    assert np.abs(probs - 0.1).max() < 5 * (0.09 / (MANY / 4)) ** 0.5


def test_apply_dropout_gradient_uses_same_mask():
    inner = torch.randn(7, 5, 3, requires_grad=True)
    result = apply_dropout(inner, 0.3)
    result.sum().backward()
    assert torch.allclose(result, inner * inner.grad) and (inner.grad == 0).any()


def test_apply_dropout_same_seed_gives_same_mask():
    def draw(seed: int, shape: tuple[int, ...] = (3, 5)) -> torch.Tensor:
        torch.manual_seed(seed)
        return apply_dropout(torch.ones(shape), 0.5)

    assert torch.equal(draw(1, (100,)), draw(1, (100,))) and not torch.equal(draw(1, (100,)), draw(2, (100,)))
    strided = torch.ones(5, 3).T
    torch.manual_seed(1)
    assert torch.equal(apply_dropout(strided, 0.5), draw(1))  # whatever the memory's order


def test_dropout_in_evaluation_or_with_rate_zero_is_identity():
    inner = torch.randn(1000)
    assert Dropout(0.5).eval()(inner) is inner and Dropout(0.0).train()(inner) is inner
    assert (Dropout(0.5).train()(inner) == 0).any()
    assert apply_dropout(torch.ones(0), 0.5).shape == (0,)


def test_flash_varlen_head_size_without_kernel_is_padded(flash_kernels):
    """Of ELECTRA's generator, which takes the back end of the discriminator."""
    check("flash_varlen", [3, 9], False, head_size=5)
