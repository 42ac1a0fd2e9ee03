"""Chunked losses equal the losses over all logits at once."""

import pytest
import torch
import torch.nn.functional as F

from pipeline_src.model import losses as module
from pipeline_src.model.losses import (
    IGNORE_INDEX,
    aligned_logits,
    full_cross_entropy,
    linear_cross_entropy,
    sample_tokens,
    sampled_cross_entropy,
    summed_cross_entropy,
)

ENTRIES, WIDTH = 50, 16


def inputs(rows: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(*shape, generator=generator) for shape in ((rows, WIDTH), (ENTRIES, WIDTH), (ENTRIES,))]
    return [part.requires_grad_() for part in parts], torch.randint(ENTRIES, (rows,), generator=generator)


@pytest.mark.parametrize("rows", [0, 1, 7, 23])
@pytest.mark.parametrize("held", [1, 5 * ENTRIES, 1 << 20], ids=["row by row", "pieces", "at once"])
def test_linear_cross_entropy_equals_loss_of_all_logits(monkeypatch, rows, held):
    monkeypatch.setattr(module, "CHUNK_LOGITS", held)
    parts, labels = inputs(rows)
    labels[::2] = F.linear(*parts).argmax(1)[::2]
    loss, right = linear_cross_entropy(*parts, labels)
    result = torch.autograd.grad(loss / 3, parts)
    scores = F.linear(*parts)
    expected = F.cross_entropy(scores, labels, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    assert right == (scores.argmax(1) == labels).sum() and right.dtype == torch.int64
    for first, second in zip(result, torch.autograd.grad(expected / 3, parts), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [0, 7, 23])
@pytest.mark.parametrize("held", [5 * ENTRIES, 1 << 20], ids=["pieces", "at once"])
def test_linear_cross_entropy_autocast_equals_gpu_path(monkeypatch, rows, held):
    """Products are in bfloat16, and sums, losses and gradients of weights in float32.

    The GPU path rounds the logits once more.
    """
    monkeypatch.setattr(module, "CHUNK_LOGITS", held)
    parts, labels = inputs(rows)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = [parts[0].bfloat16().detach().requires_grad_(), *parts[1:]]
        loss, right = linear_cross_entropy(*narrow, labels)
        expected, as_many = full_cross_entropy(*narrow, labels)
        assert aligned_logits(*narrow).dtype == torch.bfloat16
    assert loss.dtype == torch.float32 and right == as_many
    torch.testing.assert_close(loss, expected, rtol=2e-4, atol=1e-6)
    result = torch.autograd.grad(loss, narrow)
    assert [part.dtype for part in result] == [torch.bfloat16, torch.float32, torch.float32]
    for first, second in zip(result, torch.autograd.grad(expected, narrow), strict=True):
        torch.testing.assert_close(first, second, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
def test_full_cross_entropy_equals_torch_loss_and_ignores_labels(compiler):
    parts, labels = inputs(23)
    labels[::5] = IGNORE_INDEX
    compute = full_cross_entropy if compiler is None else torch.compile(full_cross_entropy, backend=compiler)
    loss, right = compute(*parts, labels)
    scores = F.linear(*parts)
    expected = F.cross_entropy(scores, labels, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    assert right == (scores.argmax(1) == labels).sum()
    gradients = zip(torch.autograd.grad(loss / 3, parts), torch.autograd.grad(expected / 3, parts), strict=True)
    for first, second in gradients:
        torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)


def test_linear_cross_entropy_tie_predicts_first_token():
    hidden, weight = torch.ones(2, WIDTH), torch.ones(4, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear_cross_entropy(hidden, weight, torch.zeros(4), torch.tensor([0, 3]))[1] == 1


def test_linear_cross_entropy_extreme_logits_stay_finite():
    hidden, labels = torch.eye(2) * 1e4, torch.tensor([0, 0])
    loss, right = linear_cross_entropy(hidden, torch.eye(2), torch.zeros(2), labels)
    assert loss == 1e4 and right == 1  # 0 and 10,000 nats


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_aligned_logits_padding_changes_no_loss_or_prediction(dtype):
    parts, labels = inputs(23)
    with torch.no_grad():
        parts[2] -= 1e4  # every real score is far below 0
    scores = aligned_logits(*(part.to(dtype) for part in parts))
    assert scores.shape == (23, 64) and scores[:, ENTRIES:].isneginf().all() and (scores.argmax(1) < ENTRIES).all()
    loss, right = summed_cross_entropy(aligned_logits(*parts), labels)
    expected, as_many = summed_cross_entropy(F.linear(*parts), labels)
    torch.testing.assert_close(loss, expected)
    assert right == as_many
    for first, second in zip(torch.autograd.grad(loss, parts), torch.autograd.grad(expected, parts), strict=True):
        assert first.shape == second.shape
        torch.testing.assert_close(first, second)


def test_aligned_logits_multiple_of_64_is_not_padded():
    weight = torch.zeros(128, WIDTH)
    assert aligned_logits(torch.zeros(2, WIDTH), weight, torch.zeros(128)).shape == (2, 128)


@pytest.mark.parametrize("held", [5 * ENTRIES, 1 << 20], ids=["pieces", "at once"])
def test_sampled_cross_entropy_samples_by_probability(monkeypatch, held):
    """The frequencies in 20,000 samples differ from the probabilities by at most five standard deviations."""
    monkeypatch.setattr(module, "CHUNK_LOGITS", held)
    count = 20_000 if held > 1000 else 200
    hidden, weight, bias = (part.detach() for part in inputs(1)[0])
    rows, labels = hidden.expand(count, -1), torch.zeros(count, dtype=torch.int64)
    draws = torch.rand(count, generator=torch.Generator().manual_seed(1))
    loss, right, sampled = sampled_cross_entropy(rows, weight, bias, labels, draws)
    probs = F.linear(hidden, weight, bias).softmax(1)[0]
    deviations = (probs * (1 - probs) / count).sqrt() + 1 / count
    assert ((torch.bincount(sampled, minlength=ENTRIES) / count - probs).abs() < 5 * deviations).all()
    for first, second in zip((loss, right), linear_cross_entropy(rows, weight, bias, labels), strict=True):
        assert torch.equal(first, second)


def test_sample_tokens_inverts_cumulative_sum():
    probs = torch.tensor([[0.0, 2.0, 1.0, 0.0, 1.0, 0.0]])  # the last is no entry that may be drawn
    draws = torch.tensor([1e-7, 0.49, 0.51, 0.74, 0.76, 1 - 2**-24])
    assert sample_tokens(probs.expand(6, -1), draws).tolist() == [1, 1, 2, 2, 4, 4]


def test_sampled_cross_entropy_sample_has_no_gradient():
    parts, labels = inputs(7)
    loss, _, sampled = sampled_cross_entropy(*parts, labels, torch.rand(7))
    assert not sampled.requires_grad and sampled.dtype == torch.int64
    expected = torch.autograd.grad(linear_cross_entropy(*parts, labels)[0], parts)
    assert all(map(torch.equal, torch.autograd.grad(loss, parts), expected))
