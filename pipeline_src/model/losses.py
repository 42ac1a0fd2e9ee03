"""Cross-entropy and distillation losses over the vocabulary that never hold all logits in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# On a CPU, this many logits are in memory at once. They are 24 MB, which fit its cache.
CHUNK_LOGITS = 6 << 20
# The label of a token that is not predicted, as in torch's and transformers' losses.
IGNORE_INDEX = -100
# The vocabulary is padded to a multiple of this, as in NVIDIA's and Mosaic's BERTs.
ALIGNMENT = 64


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of a linear layer and the number of correct predictions.

    On a CPU, logits are computed, turned into their gradient and discarded chunk by chunk, as in Liger Kernel (Hsu et
    al. 2024). Moving all logits of a batch through memory (72 MB for 590 predictions over BERT's vocabulary) would take
    longer than computing them. Under autocast, matmuls use autocast's dtype, and sums are float32.

    Args:
        hidden: [P, H]. P may be 0.
        weight, bias: parameters of the layer, [vocab_size, H] and [vocab_size].
        labels: int64 [P].

    Returns:
        Cross-entropy in nats, a float32 scalar, and number of correct predictions, an int64 scalar.
    """
    if hidden.device.type == "cpu":
        loss, correct, _ = _Chunked.apply(hidden, weight, bias, labels, None)
        return loss, correct
    return full_cross_entropy(hidden, weight, bias, labels)


def full_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    # As ``linear_cross_entropy`` on a GPU: computes all logits at once.
    logits = aligned_logits(hidden, weight, bias)
    return _CrossEntropy.apply(logits, labels), _correct(logits, labels)


def sampled_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of ``linear_cross_entropy``, and a token sampled for each prediction.

    Tokens are sampled by inverting the cumulative distribution at a random number. ELECTRA (Clark et al. 2020) adds
    Gumbel noise to each logit instead, which gives the same distribution.

    Args:
        uniform: a random number in [0, 1) for each prediction, float32 [P].

    Returns:
        Cross-entropy, number of correct predictions, and sampled tokens, int64 [P], which have no gradient.
    """
    if hidden.device.type == "cpu":
        return _Chunked.apply(hidden, weight, bias, labels, uniform)
    return full_sampled_cross_entropy(hidden, weight, bias, labels, uniform)


def full_sampled_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    logits = aligned_logits(hidden, weight, bias)
    with torch.no_grad():
        sampled = sample_tokens(logits.float().softmax(1), uniform)
    return _CrossEntropy.apply(logits, labels), _correct(logits, labels), sampled


def sample_tokens(probs: Tensor, uniform: Tensor) -> Tensor:
    # ``probs`` [P, vocab_size] need not be normalised. ``uniform`` [P] is in [0, 1).
    sums = probs.cumsum(1)
    return torch.searchsorted(sums, uniform[:, None] * sums[:, -1:]).squeeze(1)


def aligned_logits(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    # Returns [P, padded vocab_size]: the vocabulary is padded to a multiple of ALIGNMENT with logits of minus infinity.
    return F.linear(hidden, *aligned(weight, bias))


def aligned(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    # Aligned matmuls are several times faster in bfloat16 on a GPU, and 1.5 times faster in float32 on a CPU. BERT's
    # vocabulary size, 30,522, is a multiple of 2 only.
    more = -len(weight) % ALIGNMENT
    if not more:
        return weight, bias
    return F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=-torch.inf)


def summed_cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return F.cross_entropy(logits.float(), labels, reduction="sum"), _correct(logits, labels)


@torch.no_grad()
def _correct(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(dim=1) == labels).sum()


class _CrossEntropy(torch.autograd.Function):
    # The summed cross-entropy of many logits. Of F.cross_entropy's memory traffic it has half: the gradient overwrites
    # the probabilities, and gets the logits' dtype at once. The backward pass can run only once.

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        log_probs = logits.float().log_softmax(1)
        ctx.save_for_backward(log_probs, labels)
        ctx.dtype = logits.dtype
        return F.nll_loss(log_probs, labels, reduction="sum", ignore_index=IGNORE_INDEX)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # The gradient of the logits is the softmax, minus one at the label.
        log_probs, labels = ctx.saved_tensors
        target = labels[:, None]
        is_counted = target != IGNORE_INDEX
        scale = gradient * is_counted
        if torch.compiler.is_compiling():
            # The compiler fuses a comparison, but not a scatter.
            is_label = torch.arange(log_probs.shape[1], device=log_probs.device) == target
            return ((log_probs.exp() - is_label.float()) * scale).to(ctx.dtype), None
        difference = log_probs.exp_().scatter_add_(1, target * is_counted, -is_counted.float())
        result = torch.empty_like(difference, dtype=ctx.dtype)
        return torch.mul(difference, scale, out=result), None


class _Chunked(torch.autograd.Function):
    # Gradients are computed in the forward pass. The backward pass only scales them, and can run only once.

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, uniform: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        slices = chunks(len(hidden), len(weight))
        dtype = matmul_dtype(weight)
        is_exact = dtype == weight.dtype
        matrix = weight.to(dtype)
        (buffer,) = logit_buffers(1, slices, weight)
        loss = weight.new_zeros(())
        correct = labels.new_zeros(())
        sampled = torch.empty_like(labels)
        grad_hidden = torch.empty_like(hidden)
        grad_bias = torch.zeros_like(bias)
        # The first chunk overwrites the weight's gradient, so it need not start at zero.
        grad_weight = torch.empty_like(weight) if slices else torch.zeros_like(weight)
        for chunk in slices:
            inner = hidden[chunk].to(dtype)
            target = labels[chunk, None]
            logits = matmul_into(buffer[: len(inner)], inner, matrix.T, plus=bias)
            # Bfloat16 logits have many ties, so argmax decides. For float32, comparing with the maximum, which is
            # done below, is twice as fast.
            if not is_exact:
                correct += (logits.argmax(1, keepdim=True) == target).sum()
            at_label = logits.gather(1, target)
            probs, total, best = softmax_parts(logits)
            if uniform is not None:
                sampled[chunk] = sample_tokens(probs, uniform[chunk])
            loss += (best + total.log() - at_label).sum()
            if is_exact:
                correct += (at_label >= best).sum()
            # The gradient of the logits is the softmax, minus one at the label.
            minus_one = probs.new_full(target.shape, -1.0)
            grad_logits = probs.div_(total).scatter_add_(1, target, minus_one)
            grad_bias += grad_logits.sum(0)
            grad_logits = grad_logits.to(dtype)
            matmul_into(grad_hidden[chunk], grad_logits, matrix)
            matmul_into(grad_weight, grad_logits.T, inner, plus=grad_weight if chunk.start else None)
        ctx.gradients = grad_hidden, grad_weight, grad_bias
        ctx.mark_non_differentiable(correct, sampled)
        return loss, correct, sampled

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        # Nothing else references the gradients, so they are scaled in place.
        gradients, ctx.gradients = ctx.gradients, None
        return *(gradient.mul_(grad_outputs[0]) for gradient in gradients), None, None


def softmax_parts(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # Overwrites ``logits``, and returns (unnormalised probabilities, their sum, maximum logit) of each row.
    best = logits.amax(1, keepdim=True)
    probs = logits.sub_(best).exp_()
    return probs, probs.sum(1, keepdim=True), best


def chunks(length: int, vocab_size: int) -> list[slice]:
    size = max(1, CHUNK_LOGITS // vocab_size)
    count = -(-length // size)
    return [slice(length * chunk // count, length * (chunk + 1) // count) for chunk in range(count)]


def matmul_into(out: Tensor, left: Tensor, right: Tensor, plus: Tensor | None = None) -> Tensor:
    # Writes left @ right + plus into ``out``, which may be wider than the inputs and may be ``plus`` itself.
    if left.dtype == out.dtype:
        return torch.mm(left, right, out=out) if plus is None else torch.addmm(plus, left, right, out=out)
    product = left @ right
    return out.copy_(product) if plus is None else torch.add(product, plus, out=out)


def matmul_dtype(weight: Tensor) -> torch.dtype:
    # The chunked losses cast the weight once. Autocast would cast it for each chunk, and does not affect matmuls with
    # ``out``.
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def logit_buffers(number: int, slices: Sequence[slice], weight: Tensor) -> Sequence[Tensor]:
    # Each row of the buffers starts at a multiple of ``ALIGNMENT``, which makes matmuls on a CPU 1.5 times faster.
    rows = max((chunk.stop - chunk.start for chunk in slices), default=0)
    vocab_size = len(weight)
    buffers = weight.new_empty(number, rows, vocab_size + -vocab_size % ALIGNMENT, dtype=torch.float32)
    return buffers[..., :vocab_size].unbind()


class LazyLogits(NamedTuple):
    """Tensors from which the logits, inner @ weight.T + bias, can be computed chunk by chunk.

    ``inner`` is [P, H], ``weight`` is [vocab_size, H], and ``bias`` is [vocab_size].
    """

    inner: Tensor
    weight: Tensor
    bias: Tensor


def distillation_loss(student: LazyLogits, teacher: LazyLogits, temperature: float) -> Tensor:
    """Return temperature^2 x KL(teacher || student), summed over all predictions.

    The result is a float32 scalar in nats. The factor temperature^2 keeps the scale of the gradients independent of the
    temperature (Hinton et al. 2015, section 2). Logits are computed in chunks. The teacher gets no gradient.
    """
    loss: Tensor = _Distilled.apply(*student, *teacher, temperature)
    return loss


class _Distilled(torch.autograd.Function):
    # Gradients are computed in the forward pass. The backward pass only scales them, and can run only once.

    @staticmethod
    def forward(
        ctx: Any,
        inner: Tensor,
        weight: Tensor,
        bias: Tensor,
        teacher_inner: Tensor,
        teacher_weight: Tensor,
        teacher_bias: Tensor,
        temperature: float,
    ) -> Tensor:
        slices = chunks(len(inner), len(weight))
        dtype = matmul_dtype(weight)
        matrix = weight.to(dtype)
        teacher_matrix = teacher_weight.to(dtype)
        scaled_bias = bias / temperature
        teacher_scaled_bias = teacher_bias / temperature
        buffers = logit_buffers(3, slices, weight)
        loss = inner.new_zeros((), dtype=torch.float32)
        grad_inner = torch.empty_like(inner)
        grad_weight = torch.zeros_like(weight)
        grad_bias = torch.zeros_like(bias)
        for chunk in slices:
            logits, teacher_logits, difference = (buffer[: chunk.stop - chunk.start] for buffer in buffers)
            scaled = (inner[chunk] / temperature).to(dtype)
            teacher_scaled = (teacher_inner[chunk] / temperature).to(dtype)
            matmul_into(logits, scaled, matrix.T, plus=scaled_bias)
            matmul_into(teacher_logits, teacher_scaled, teacher_matrix.T, plus=teacher_scaled_bias)
            torch.sub(teacher_logits, logits, out=difference)
            probs, total, best = softmax_parts(logits)
            teacher_probs, teacher_total, teacher_best = softmax_parts(teacher_logits)
            # KL(p || q) is the mean of log p - log q under p. This is the mean of the logits' difference, plus
            # the difference of the log-sum-exps.
            means = difference.mul_(teacher_probs).sum(1, keepdim=True) / teacher_total
            divergence = means + best + total.log() - teacher_best - teacher_total.log()
            loss += temperature**2 * divergence.sum()
            # The gradient is temperature^2 x (student's softmax - teacher's) / temperature.
            grad_logits = probs.div_(total).addcdiv_(teacher_probs, teacher_total, value=-1).mul_(temperature)
            grad_bias += grad_logits.sum(0)
            grad_logits = grad_logits.to(dtype)
            matmul_into(grad_inner[chunk], grad_logits, matrix)
            matmul_into(grad_weight, grad_logits.T, inner[chunk].to(dtype), plus=grad_weight)
        ctx.gradients = grad_inner, grad_weight, grad_bias
        return loss

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        return *(gradient.mul_(grad_outputs[0]) for gradient in gradients), None, None, None, None
