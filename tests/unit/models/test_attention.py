"""Every back end against the definition of attention, sequence by sequence; and which one runs where."""

import pytest
import torch
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.models import attention as module
from pipeline_src.models.attention import BACK_ENDS, AttentionInputs, Window, attention, choose
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from tests.flash_on_cpu import flash_on_cpu

LENGTHS = {"equal": [6, 6, 6], "unequal": [5, 1, 9]}


@pytest.fixture(autouse=True)
def many_short_runs(monkeypatch):
    """As little as there is in these inputs is not too little for `runs`."""
    monkeypatch.setattr("pipeline_src.models.attention.LEAST_WEIGHTS", 0)


@pytest.fixture
def flash_kernels():
    with flash_on_cpu():
        yield


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of some compute capability, as far as :func:`choose` asks."""

    def of(capability: tuple[int, int]) -> torch.device:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
        monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
        return torch.device("cuda", 0)

    return of


def inputs(
    lengths: list[int], device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], PackedLayout]:
    generator = torch.Generator().manual_seed(0)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).to(device)
    parts = [torch.randn(sum(lengths), 2, 16, generator=generator).to(device, dtype) for _ in range(3)]
    return [part.requires_grad_() for part in parts], PackedLayout.of(cu_seqlens, sum(lengths), max(lengths))


def by_definition(query: Tensor, key: Tensor, value: Tensor, lengths: list[int], causal: bool) -> Tensor:
    found = []
    for q, k, v in zip(query.split(lengths), key.split(lengths), value.split(lengths), strict=True):
        scores = torch.einsum("qhs,khs->hqk", q, k) / q.shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        found.append(torch.einsum("hqk,khs->qhs", scores.softmax(-1), v))
    return torch.cat(found)


def check(
    back_end: str, lengths: list[int], causal: bool, tolerance: float = 1e-5, dropout: float = 0.0, **where
) -> None:
    parts, layout = inputs(lengths, **where)
    found = BACK_ENDS[back_end](AttentionInputs(*parts, layout, layout, dropout, causal))
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).to(found)
    gradients = torch.autograd.grad((found * weight).sum(), parts)
    expected = by_definition(*parts, lengths, causal)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    for one, two in zip(gradients, torch.autograd.grad((expected * weight).sum(), parts), strict=True):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("back_end", ["padded", "runs"])
def test_on_any_device(back_end, lengths, causal):
    check(back_end, lengths, causal)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_runs_in_training_are_attention_too(monkeypatch, lengths, causal):
    """With dropout they go another way than without; here nothing is dropped on it."""
    monkeypatch.setattr("pipeline_src.models.attention.drop", lambda weights, rate: weights)
    check("runs", lengths, causal, dropout=0.1)


def test_runs_with_little_to_compute_are_padded(monkeypatch):
    parts, layout = inputs([6, 6, 9])  # two runs; (2 * 36 + 81) * 2 heads = 306 weights
    called = []
    monkeypatch.setattr("pipeline_src.models.attention.padded", lambda inputs: called.append(inputs) or inputs.query)
    for least, expected in ((153, 0), (154, 1)):
        monkeypatch.setattr("pipeline_src.models.attention.LEAST_WEIGHTS", least)
        BACK_ENDS["runs"](AttentionInputs(*parts, layout, layout))
        assert len(called) == expected


def test_runs_compute_in_float32_under_autocast():
    parts, layout = inputs([70, 70, 64])
    expected = BACK_ENDS["runs"](AttentionInputs(*parts, layout, layout))
    narrow = [part.bfloat16() for part in parts]
    with torch.autocast("cpu", torch.bfloat16):
        found = BACK_ENDS["runs"](AttentionInputs(*narrow, layout, layout))
        wide = BACK_ENDS["runs"](AttentionInputs(*(part.float() for part in narrow), layout, layout))
    assert found.dtype == torch.bfloat16 and wide.dtype == torch.float32
    assert torch.equal(found, wide.bfloat16())  # rounded once, at the end
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)


def test_runs_are_neighbours_of_equal_length_up_to_a_limit():
    layout = PackedLayout.of(torch.tensor([0, 4, 8, 12, 15, 19]), 19)
    assert layout.runs(layout, 2 * 4**2) == [(2, 4, 4), (1, 4, 4), (1, 3, 3), (1, 4, 4)]
    assert layout.runs(layout, 1) == [(1, 4, 4), (1, 4, 4), (1, 4, 4), (1, 3, 3), (1, 4, 4)]
    assert layout.runs(layout, 1 << 20) == [(3, 4, 4), (1, 3, 3), (1, 4, 4)]
    queries = PackedLayout.of(torch.tensor([0, 1, 2, 4, 5, 6]), 6)  # one each, and of the third two
    assert layout.runs(queries, 1 << 20) == [(2, 1, 4), (1, 2, 4), (1, 1, 3), (1, 1, 4)]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_flash(lengths, causal, dtype):
    """Through its operator, which computes by definition here; it takes no float32."""
    with flash_on_cpu():
        check("flash", lengths, causal, tolerance=3e-2, dtype=dtype)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="its kernels run on a GPU alone, and there is none")
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("back_end", ["padded", "flash"])
def test_on_a_gpu(back_end, lengths, causal):
    check(back_end, lengths, causal, tolerance=3e-2, device="cuda", dtype=torch.bfloat16)


@pytest.mark.parametrize("back_end", ["padded", "runs", "flash"])
def test_dropout_is_on_the_weights(flash_kernels, back_end):
    """With values of one, a context is the sum of the weights kept, each scaled by 1 / (1 - dropout)."""
    (query, key, value), layout = inputs([400, 300])
    query, value = torch.zeros_like(query), torch.ones_like(value)
    torch.manual_seed(0)
    dropped = AttentionInputs(query, key, value, layout, layout, dropout=0.5)
    found = BACK_ENDS[back_end](dropped)
    assert found.mean().item() == pytest.approx(1, abs=0.01) and 0.03 < found[..., 0].std() < 0.08
    torch.manual_seed(0)
    assert torch.equal(found, BACK_ENDS[back_end](dropped))


@pytest.mark.parametrize(
    ("capability", "head_size", "expected"),
    [
        ((9, 0), 64, "flash"),
        ((8, 0), 256, "flash"),
        ((8, 6), 20, "padded"),
        ((9, 0), 264, "padded"),
        ((7, 5), 64, "padded"),
    ],
)
def test_auto_takes_the_fastest_that_can_run(gpu, capability, head_size, expected):
    device = gpu(capability)
    assert choose("auto", device, head_size) == expected
    assert choose("padded", device, head_size) == "padded"
    if expected == "flash":
        assert choose("flash", device, head_size) == "flash"
    else:
        with pytest.raises(PipelineError, match=f"Ampere.*flash, with heads of {head_size} on Some GPU"):
            choose("flash", device, head_size)


def test_without_a_gpu_auto_takes_what_is_fast_there():
    assert choose("auto", torch.device("cpu"), 64) == choose("runs", torch.device("cpu"), 64) == "runs"
    assert choose("auto", torch.device("mps"), 64) == "padded"


@pytest.mark.parametrize(
    ("wanted", "device", "message"),
    [
        ("flash", "cpu", "needs a GPU: flash, on cpu"),
        ("runs", "cuda", "needs a CPU: runs, on cuda"),  # on a GPU it would wait for the lengths in every block
        ("nested", "cuda", "give one of auto, padded, runs, flash"),
    ],
)
def test_what_a_back_end_cannot_do_is_refused(gpu, wanted, device, message):
    gpu((9, 0))
    with pytest.raises(PipelineError, match=message):
        choose(wanted, torch.device(device), 64)


def test_auto_is_decided_where_it_runs(monkeypatch):
    parts, layout = inputs([3, 2])
    asked = []
    monkeypatch.setattr(module, "choose", lambda *given: asked.append(given) or "padded")
    assert attention(*parts, layout).shape == (5, 2, 16)
    assert asked == [("auto", torch.device("cpu"), 16)]
    attention(*parts, layout, back_end="padded")
    assert len(asked) == 1  # nothing is asked while the compiler traces a back end that was chosen before


@pytest.mark.parametrize("asked", [[2, 2, 2, 1], [1, 1, 1, 1], [1, 6, 2, 9]], ids=["some", "first", "unequal"])
@pytest.mark.parametrize(("back_end", "dropout"), [("padded", 0.0), ("runs", 0.0), ("runs", 0.5), ("flash", 0.0)])
def test_queries_of_some_tokens_see_all_of_their_sequence(flash_kernels, monkeypatch, back_end, asked, dropout):
    """By definition; with dropout runs go another way, on which nothing is dropped here."""
    monkeypatch.setattr("pipeline_src.models.attention.drop", lambda weights, rate: weights)
    monkeypatch.setattr("pipeline_src.models.attention.LEAST_WEIGHTS", 0)
    lengths = [6, 6, 6, 9]
    (query, key, value), layout = inputs(lengths, dtype=torch.bfloat16 if back_end == "flash" else torch.float32)
    every = by_definition(query, key, value, lengths, causal=False)
    starts = [0, 6, 12, 18]
    places = torch.tensor([start + row for start, rows in zip(starts, asked, strict=True) for row in range(rows)])
    queries = PackedLayout.of(torch.tensor([0, *asked]).cumsum(0), sum(asked))
    found = BACK_ENDS[back_end](AttentionInputs(query[places], key, value, layout, queries, dropout))
    torch.testing.assert_close(
        found, every[places], rtol=2e-2 if back_end == "flash" else 1e-5, atol=1e-2 if back_end == "flash" else 1e-6
    )


@pytest.mark.parametrize("back_end", ["runs", "padded"])
@pytest.mark.parametrize("dropout", [0.0, 1e-6], ids=["fused", "with dropout"])
def test_a_window_hides_what_is_further_away(back_end, dropout):
    """All tokens as queries, where long sequences are cut, and some of them; a rate that drops nothing shows."""

    lengths, reach = torch.tensor([50, 50, 9, 3]), 4
    layout = PackedLayout.of(torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), int(lengths.sum()))
    query, key, value = torch.randn(3, int(lengths.sum()), 2, 8, generator=torch.Generator().manual_seed(1))
    sequence = torch.repeat_interleave(torch.arange(4), lengths)
    seen = (sequence[:, None] == sequence) & ((layout.position[:, None] - layout.position).abs() <= reach)
    scores = torch.einsum("qhd,khd->hqk", query, key) / 8**0.5
    expected = torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), value)
    every = Window(reach, layout.position)
    found = attention(query, key, value, layout, dropout, back_end=back_end, window=every)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    places = torch.tensor([0, 30, 50, 99, 100, 105, 110])
    rows = RowsInUse.of(places, torch.tensor([0, 2, 4, 6, 7]))
    asked = Window(reach, layout.position[places])
    some = attention(query[places], key, value, layout, dropout, back_end=back_end, queries=rows.layout, window=asked)
    torch.testing.assert_close(some, expected[places], rtol=1e-4, atol=1e-5)
