"""Cross-entropy of a linear layer over the vocabulary, without ever holding all its scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SCORES = 6 << 20  # held at once on a CPU: 24 MB, which stay in its cache
ALIGNMENT = 64  # entries; what NVIDIA's and Mosaic's BERTs pad the vocabulary to


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the cross-entropies (nats, float32) and number of right first guesses (int64), both scalars.

    Sums, because the mean over a batch cut into micro-batches is the sum over all of them by the count of the whole.
    On a CPU, where the scores of a batch (72 MB for 590 predictions of 30,522 entries) take longer to move than to
    compute, they are made, turned into their gradient and used up a chunk at a time, as in Liger Kernel (Hsu et al.
    2024). Under autocast the products are of its type, and what is summed is float32.

    Args:
        hidden: [P, H]; P may be 0.
        weight, bias: of the layer, [entries, H] and [entries].
        labels: int64 [P].
    """
    if hidden.device.type == "cpu":
        loss, right, _ = _Chunked.apply(hidden, weight, bias, labels, None)
        return loss, right
    return summed_cross_entropy(aligned_scores(hidden, weight, bias), labels)


def sampled_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`linear_cross_entropy`, and for each row an entry drawn from the shares of its scores, int64 [P].

    A uniform number picks the entry at which the running sum of the shares reaches it, which needs none of the noise
    that ELECTRA adds to every score (Clark et al. 2020; its Gumbel noise gives the same distribution). No gradient
    flows through what is drawn.

    Args:
        hidden, weight, bias, labels: likewise.
        draws: from 0 to below 1, float32 [P].
    """
    if hidden.device.type == "cpu":
        return _Chunked.apply(hidden, weight, bias, labels, draws)
    scores = aligned_scores(hidden, weight, bias)
    with torch.no_grad():
        drawn = draw_entries(scores.float().softmax(1), draws)
    return *summed_cross_entropy(scores, labels), drawn


def draw_entries(shares: Tensor, draws: Tensor) -> Tensor:
    """An entry of each row at the rate of its share, int64 [P]; shares [P, entries] need not sum to one."""
    sums = shares.cumsum(1)
    return torch.searchsorted(sums, draws[:, None] * sums[:, -1:]).squeeze(1)


def aligned_scores(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Scores [P, entries], with as many more of minus infinity as make their number a multiple of ``ALIGNMENT``.

    Those that were added are no one's best guess, and get no share of the probability and no gradient.
    """
    return F.linear(hidden, *aligned(weight, bias))


def aligned(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weight [entries, H] and bias [entries] of a layer whose number of entries is a multiple of ``ALIGNMENT``.

    A GPU multiplies bfloat16 matrices several times as fast where rows begin at multiples of 16 bytes, a CPU float32
    ones half as fast again at those of a vector register; 30,522 entries, the paper's number, are no multiple of
    anything but 2.
    """
    more = -len(weight) % ALIGNMENT
    return (F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=-torch.inf)) if more else (weight, bias)


def summed_cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the cross-entropies (nats, float32) and number of right first guesses (int64), both scalars.

    Args:
        scores: [P, classes].
        labels: int64 [P].
    """
    with torch.no_grad():
        right = (scores.argmax(dim=1) == labels).sum()
    return F.cross_entropy(scores.float(), labels, reduction="sum"), right


class _Chunked(torch.autograd.Function):
    """Computes the gradients along with the loss; the backward pass, which may run once, only scales them."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, draws: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        loss, right, drawn = weight.new_zeros(()), labels.new_zeros(()), torch.empty_like(labels)
        of_hidden, of_bias = torch.empty_like(hidden), torch.zeros_like(bias)
        cuts, kind = chunks(len(hidden), len(weight)), type_of_products(weight)
        of_weight = torch.empty_like(weight) if cuts else torch.zeros_like(weight)
        exact, matrix = kind == weight.dtype, weight.to(kind)
        (buffer,) = score_buffers(1, cuts, weight)
        for rows in cuts:
            inner, wanted = hidden[rows].to(kind), labels[rows, None]
            scores = product_into(buffer[: len(inner)], inner, matrix.T, plus=bias)
            if not exact:  # of products in bfloat16 many are equal
                right += (scores.argmax(1, keepdim=True) == wanted).sum()
            at_label = scores.gather(1, wanted)
            shares, total, best = proportions(scores)
            if draws is not None:
                drawn[rows] = draw_entries(shares, draws[rows])
            loss += (best + total.log() - at_label).sum()
            of_scores = shares.div_(total).scatter_add_(1, wanted, shares.new_full(wanted.shape, -1.0))
            if exact:
                right += (at_label >= best).sum()  # half the time of argmax
            of_bias += of_scores.sum(0)
            of_scores = of_scores.to(kind)
            product_into(of_hidden[rows], of_scores, matrix)
            # the first is written, so that no zeros need be
            product_into(of_weight, of_scores.T, inner, plus=of_weight if rows.start else None)
        ctx.gradients = of_hidden, of_weight, of_bias
        ctx.mark_non_differentiable(right, drawn)
        return loss, right, drawn

    @staticmethod
    def backward(ctx: Any, *of_outputs: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None  # held by no one else, they need not be copied
        return *(gradient.mul_(of_outputs[0]) for gradient in gradients), None, None


def proportions(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [P, entries] made, in place, into what is in proportion to their shares, with its sums and their largest.

    Returns:
        Numbers from 0 to 1; their sum over each row, [P, 1]; the largest score of each row, [P, 1]. Its shares are the
        numbers by their sum, and the logarithm of its scores' sum of exponentials is the largest + log(sum).
    """
    best = scores.amax(1, keepdim=True)
    shares = scores.sub_(best).exp_()
    return shares, shares.sum(1, keepdim=True), best


def chunks(rows: int, entries: int) -> list[slice]:
    """Equal cuts of ``rows``, each of at most ``SCORES`` scores."""
    size = max(1, SCORES // entries)
    count = -(-rows // size)
    return [slice(rows * chunk // count, rows * (chunk + 1) // count) for chunk in range(count)]


def product_into(out: Tensor, left: Tensor, right: Tensor, plus: Tensor | None = None) -> Tensor:
    """Write ``left @ right``, and ``plus`` added to it, into ``out``, which may be of a wider type; or be ``plus``.

    Returns:
        ``out``.
    """
    if left.dtype == out.dtype:
        return torch.mm(left, right, out=out) if plus is None else torch.addmm(plus, left, right, out=out)
    product = left @ right
    return out.copy_(product) if plus is None else torch.add(product, plus, out=out)


def type_of_products(weight: Tensor) -> torch.dtype:
    """The type that autocast gives to products with ``weight``; its own without autocast.

    What goes through the rows cut by cut casts for itself, once: autocast narrows no product that is written into a
    tensor, and casts the weight anew for every other.
    """
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def score_buffers(number: int, cuts: Sequence[slice], weight: Tensor) -> Sequence[Tensor]:
    """As many buffers for the scores of a cut over the entries of ``weight``, float32 [rows of the longest, entries].

    Their rows begin at multiples of ``ALIGNMENT``: into 30,522 columns side by side, which are no multiple of a vector
    register, a CPU multiplies at two thirds of its speed. Memory that is taken once need not be cleared for every cut.
    """
    rows, entries = max((cut.stop - cut.start for cut in cuts), default=0), len(weight)
    return weight.new_empty(number, rows, entries + -entries % ALIGNMENT, dtype=torch.float32)[..., :entries].unbind()
