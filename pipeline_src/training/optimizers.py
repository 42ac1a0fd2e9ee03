"""Optimizers, their parameter groups, and the learning-rate schedule of BERT (Devlin et al. 2018)."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.training.distributed import distribute_like, full_tensor, is_dtensor

# Values of Devlin et al. 2018, appendix A.2.
BETAS = (0.9, 0.999)
# The value in optimization.py of google-research/bert.
EPSILON = 1e-6
DEFAULT_MAX_GRAD_NORM = 1.0
# Parameter names of Transformer blocks contain this.
BLOCKS = ".encoder."
# Every optimizer keeps these two tensors for a parameter, under torch's names.
MOMENTS = ("exp_avg", "exp_avg_sq")

# Key that marks the parameter group that Muon updates.
MATRICES = "matrices"
# Muon's momentum, a running mean of gradients, is stored under the name of Adam's first moment.
MOMENTUM = "exp_avg"
# Values of Jordan et al. 2024: decay of the momentum, number of Newton-Schulz iterations, and coefficients of their
# polynomial, which is steep at zero.
MUON_BETA = 0.95
ITERATIONS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)
# Matrices with a higher aspect ratio take fewer FLOPs when only their Gram matrix is iterated (see `orthogonal`).
MIN_GRAM_ASPECT = 1.5
# Muon's updates are scaled to this root mean square, which AdamW's updates have (Liu et al. 2025, section 2.2).
RMS = 0.2
MIN_NORM = 1e-7
# Matrices that are not stacked are orthogonalised in batches of at most this many elements, 8 MB in bfloat16.
MAX_BATCH_ELEMENTS = 1 << 22


class Muon(Optimizer):
    """Muon (Jordan et al. 2024) for the matrices of blocks, and AdamW for all other parameters.

    Muon orthogonalises the update of a matrix, so that directions with small gradients move as far as directions with
    large ones. The updates are scaled to the RMS of AdamW's updates ("Muon is scalable for LLM training", Liu et al.
    2025, section 2.2). AdamW updates embeddings, biases, norms and heads.

    The results equal those of ``torch.optim.Muon``, except that a CPU computes in float32 instead of bfloat16. All
    matrices of one shape are updated at once, which takes two thirds of the time for small matrices.

    On CUDA, all unsharded matrices of one shape are stacked into one tensor (see ``Stack``), so that a step launches
    as many kernels for a hundred matrices as for one.

    Args:
        groups: parameter groups. A group with ``matrices: True`` is updated by Muon.
        stacked: whether unsharded matrices are stacked. None: those on CUDA are.
    """

    param_groups: list[dict[str, Any]]

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        stacked: bool | None = None,
    ) -> None:
        capturable = _may_capture(groups)
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "fused": True, "capturable": capturable})
        adamw_groups = [group for group in self.param_groups if not group.get(MATRICES)]
        self._adamw = _adamw(adamw_groups, lr=lr, betas=betas, eps=eps) if adamw_groups else None
        matrix_groups = [group for group in self.param_groups if group.get(MATRICES)]
        if self._adamw is not None:
            # Muon and AdamW share one state and one list of groups.
            self._adamw.state = self.state
            self.param_groups = [*matrix_groups, *self._adamw.param_groups]
        to_stack: list[nn.Parameter] = []
        self._single: list[nn.Parameter] = []
        for group in matrix_groups:
            for matrix in group["params"]:
                is_stacked = matrix.is_cuda if stacked is None else stacked
                if is_stacked and _has_own_memory(matrix):
                    to_stack.append(matrix)
                else:
                    self._single.append(matrix)
        self._stacks = [Stack(matrices, self.state) for matrices in by_shape(to_stack)]
        self._move_stacked: Callable[..., None] = move_stacked

    def compile(self, compiler: Callable[[Callable[..., None]], Callable[..., None]] | None = None) -> None:
        if compiler is None:
            compiler = partial(torch.compile, fullgraph=True, dynamic=False)
        self._move_stacked = compiler(move_stacked)

    def zero_grad(self, set_to_none: bool = True) -> None:
        # Stacked gradients are zeroed in place, since backward passes must add to the same memory.
        super().zero_grad(set_to_none and not self._stacks)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        # A stacked matrix without a gradient in some step would be treated as if its gradient were zero, so its weights
        # would decay. No objective has such a matrix, and DistributedDataParallel would reject it.
        for group in self.param_groups:
            if group.get(MATRICES):
                single = list(self._single)
                for stack in self._stacks:
                    if stack.collect(self.state):
                        self._move_stacked(
                            stack.parameters, stack.gradients, stack.momentum, group["lr"], group["weight_decay"]
                        )
                    else:
                        single += stack.matrices
                self._move_matrices(single, group)
        if self._adamw is not None:
            self._adamw.step()

    def _move_matrices(self, candidates: list[nn.Parameter], group: dict[str, Any]) -> None:
        moved = [matrix for matrix in candidates if matrix.grad is not None]
        for matrix in moved:
            state = self.state[matrix]
            if MOMENTUM not in state:
                state[MOMENTUM] = torch.zeros_like(matrix)
            # Checkpoints store zeros as the second moment of Muon's matrices.
            state.pop("exp_avg_sq", None)
        for matrices in same_shape_batches(moved):
            updates = []
            for matrix in matrices:
                momentum = self.state[matrix][MOMENTUM].lerp_(matrix.grad, 1 - MUON_BETA)
                # Nesterov momentum.
                updates.append(full_tensor(matrix.grad.lerp(momentum, MUON_BETA)))
            stacked = torch.stack(updates)
            # Most CPUs multiply bfloat16 20 to 40 times slower than float32.
            if stacked.is_cuda:
                stacked = stacked.bfloat16()
            for matrix, update in zip(matrices, orthogonal(stacked), strict=True):
                update = distribute_like(update.to(matrix.dtype), matrix)
                _decay_and_add(matrix, update, group["lr"], group["weight_decay"])


class Stack:
    """Hold N matrices of one shape, with gradients and momentum, in three tensors [N, rows, columns].

    The matrices, their ``grad`` and their momentum in the optimizer's state become views of the three tensors. Backward
    passes therefore add to the tensors directly, and a checkpoint is restored by copying into the views.

    The matrices must be unsharded, and have the same dtype and device.
    """

    def __init__(self, matrices: list[nn.Parameter], state: MutableMapping[Tensor, Any]) -> None:
        self.matrices = matrices
        self.parameters = torch.stack([matrix.detach() for matrix in matrices])
        self.gradients = torch.zeros_like(self.parameters)
        self.momentum = torch.zeros_like(self.parameters)
        # For each matrix, the views of its parameter, gradient and momentum.
        self._views = list(zip(self.parameters, self.gradients, self.momentum, strict=True))
        for matrix, (parameter, gradient, momentum) in zip(matrices, self._views, strict=True):
            matrix.data = parameter
            state[matrix][MOMENTUM] = momentum
            if matrix.grad is None:
                matrix.grad = gradient

    def collect(self, state: MutableMapping[Tensor, Any]) -> bool:
        """Copy gradients from other memory into the stack.

        DistributedDataParallel keeps gradients in its own buckets, and other code may have set them to None.

        Returns:
            Whether every matrix has a gradient.

        Raises:
            RuntimeError: a matrix or its momentum was moved to other memory.
        """
        copies = []
        for matrix, (parameter, gradient, momentum) in zip(self.matrices, self._views, strict=True):
            # Checkpoints store zeros as the second moment of Muon's matrices.
            state[matrix].pop("exp_avg_sq", None)
            if not _same_memory(matrix, parameter) or not _same_memory(state[matrix][MOMENTUM], momentum):
                raise RuntimeError("parameters or optimizer state were moved or replaced after Muon had stacked them")
            if matrix.grad is None:
                return False
            if matrix.grad is not gradient:
                copies.append((gradient, matrix.grad))
        if copies:
            torch._foreach_copy_(*map(list, zip(*copies, strict=True)))
        return True


def _has_own_memory(matrix: Tensor) -> bool:
    # cuDNN keeps all weights of an LSTM in one buffer. If one weight were moved, cuDNN would copy all of them into a
    # new buffer in every pass.
    return not is_dtensor(matrix) and matrix.untyped_storage().nbytes() == matrix.nbytes


def _same_memory(first: Tensor, second: Tensor) -> bool:
    return bool(torch._C._is_alias_of(first, second))


def move_stacked(
    parameters: Tensor, gradients: Tensor, momentum: Tensor, rate: float | Tensor, weight_decay: float
) -> None:
    """Update all matrices of one shape by one Muon step.

    All tensors are [N, rows, columns]. ``parameters`` and ``momentum`` change in place. If the learning rate ``rate``
    is a scalar tensor on the same device, one captured or compiled graph serves all steps.

    On CUDA, updates are orthogonalised in bfloat16. The step needs memory for about three more copies of
    ``parameters``, which is 1.2 GB for BERT-large with 100 million elements per shape.
    """
    momentum.lerp_(gradients, 1 - MUON_BETA)
    # Nesterov momentum.
    update = gradients.lerp(momentum, MUON_BETA)
    if update.is_cuda:
        update = update.bfloat16()
    _decay_and_add(parameters, orthogonal(update).to(parameters.dtype), rate, weight_decay)


def _decay_and_add(parameters: Tensor, update: Tensor, rate: float | Tensor, weight_decay: float) -> None:
    length = rate * RMS * math.sqrt(max(parameters.shape[-2:]))
    parameters.mul_(1 - rate * weight_decay)
    if isinstance(length, Tensor):
        # `add_` takes `alpha` only as a Python number, for which the host would have to wait for the GPU.
        parameters.addcmul_(update, -length)
    else:
        parameters.add_(update, alpha=-length)


def by_shape(matrices: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    ordered = sorted(matrices, key=lambda matrix: tuple(matrix.shape))
    return [list(group) for _, group in groupby(ordered, lambda matrix: matrix.shape)]


def same_shape_batches(matrices: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    for group in by_shape(matrices):
        size = max(1, MAX_BATCH_ELEMENTS // group[0].numel())
        for first in range(0, len(group), size):
            yield group[first : first + size]


def orthogonal(matrices: Tensor) -> Tensor:
    """Orthogonalise matrices by five Newton-Schulz iterations.

    The iterations keep the singular vectors and move the singular values close to one. Each iteration multiplies a
    matrix X by a polynomial of its Gram matrix X Xᵀ. For long matrices, only the Gram matrix is iterated, and X is
    multiplied once by the product of the polynomials (Gram Newton-Schulz, Dao AI Lab 2026).

    Args:
        matrices: [N, rows, columns]. They are overwritten if rows <= columns.

    Returns:
        [N, rows, columns], with singular values between about 0.5 and 1.5 (Jordan et al. 2024).
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT.contiguous() if is_tall else matrices
    wide /= torch.linalg.matrix_norm(wide, keepdim=True).clamp(min=MIN_NORM)
    is_long = wide.shape[2] > MIN_GRAM_ASPECT * wide.shape[1]
    # In bfloat16 the iterated Gram matrix would lose its small singular values.
    if is_long and wide.dtype == torch.float32:
        wide = _newton_schulz_product(wide @ wide.mT) @ wide
    else:
        wide = _newton_schulz(wide)
    return wide.mT if is_tall else wide


def _newton_schulz(wide: Tensor) -> Tensor:
    slope, cubic, quintic = QUINTIC
    for _ in range(ITERATIONS):
        gram = wide @ wide.mT
        factor = torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic)
        wide = torch.baddbmm(wide, factor, wide, beta=slope)
    return wide


def _newton_schulz_product(gram: Tensor) -> Tensor:
    # Returns the product of the polynomials of all iterations, [N, rows, rows], given the initial Gram matrix.
    slope, cubic, quintic = QUINTIC
    product = None
    for iteration in range(ITERATIONS):
        # This iteration's polynomial without its constant term.
        factor = torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic)
        if product is None:
            product = factor + slope * torch.eye(gram.shape[1], device=gram.device)
        else:
            product = torch.baddbmm(product, factor, product, beta=slope)
        if iteration < ITERATIONS - 1:
            half = torch.baddbmm(gram, factor, gram, beta=slope)
            gram = torch.baddbmm(half, half, factor, beta=slope)
    return product


class _Moments(Optimizer):
    # Base class with Adam's running means of gradients and squared gradients. A group's parameters are updated at once.
    # Of a sharded parameter, each process updates its own shard.

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(
            groups, {"lr": lr, "betas": betas, "eps": eps, "capturable": _may_capture(groups), "foreach": True}
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            for parameter in parameters:
                state = self.state[parameter]
                if not state:
                    state["step"] = step_count(self, parameter, 0)
                    state.update({name: torch.zeros_like(parameter) for name in MOMENTS})
            counts = [self.state[parameter]["step"] for parameter in parameters]
            if group["capturable"]:
                torch._foreach_add_(counts, 1)
            else:
                for count in counts:
                    count += 1
            first = [_local(self.state[parameter]["exp_avg"]) for parameter in parameters]
            second = [_local(self.state[parameter]["exp_avg_sq"]) for parameter in parameters]
            gradients = [_local(parameter.grad) for parameter in parameters]
            torch._foreach_lerp_(first, gradients, 1 - group["betas"][0])
            torch._foreach_mul_(second, group["betas"][1])
            torch._foreach_addcmul_(second, gradients, gradients, 1 - group["betas"][1])
            self._move(parameters, first, second, group)

    @abstractmethod
    def _move(self, parameters: list[Tensor], first: list[Tensor], second: list[Tensor], group: dict[str, Any]) -> None:
        # ``first`` and ``second`` are the moments of the parameters, or of this process's shards of them.
        pass


def _local(tensor: Tensor) -> Tensor:
    # Returns this process's shard of a DTensor, which shares its memory.
    return tensor.to_local() if is_dtensor(tensor) else tensor


def _norms(like: Tensor, *kinds: list[Tensor]) -> Tensor:
    # Returns the norms of full tensors, [kinds, tensors]. ``kinds`` are lists of this process's shards. If ``like`` is
    # a DTensor, the norms are combined over the processes of its mesh.
    norms = torch.stack([torch.stack(torch._foreach_norm(tensors)) for tensors in kinds])
    if not is_dtensor(like):
        return norms
    squared = norms.square()
    dist.all_reduce(squared, group=like.device_mesh.get_group())
    return squared.sqrt()


def _adam_update(first: list[Tensor], second: list[Tensor], epsilon: float) -> list[Tensor]:
    roots = torch._foreach_sqrt(second)
    torch._foreach_add_(roots, epsilon)
    return list(torch._foreach_div(first, roots))


def _subtract(parts: list[Tensor], updates: list[Tensor], rate: float | Tensor) -> None:
    # ``updates`` may be overwritten.
    if isinstance(rate, Tensor):
        torch._foreach_mul_(updates, rate)
        torch._foreach_sub_(parts, updates)
    else:
        torch._foreach_add_(parts, updates, alpha=-rate)


class BertAdam(_Moments):
    """Adam with decoupled weight decay and without bias correction.

    This is the optimizer in optimization.py of google-research/bert. Zhang et al. 2020 ("Revisiting few-sample BERT
    fine-tuning", section 4) measure what the missing correction costs.
    """

    def _move(self, parameters: list[Tensor], first: list[Tensor], second: list[Tensor], group: dict[str, Any]) -> None:
        parts = list(map(_local, parameters))
        updates = _adam_update(first, second, group["eps"])
        torch._foreach_add_(updates, parts, alpha=group["weight_decay"])
        _subtract(parts, updates, group["lr"])


class Lamb(_Moments):
    """LAMB, layer-wise adaptive moments for large batches (You et al. 2019, algorithm 2).

    LAMB is Adam with bias correction whose update is scaled to the norm of the parameter. As in the authors' code,
    biases and LayerNorm weights, which have no weight decay, get unscaled updates.
    """

    def _move(self, parameters: list[Tensor], first: list[Tensor], second: list[Tensor], group: dict[str, Any]) -> None:
        count = self.state[parameters[0]]["step"]
        if group["capturable"]:
            # Compute in float64, as Python does on the host. In float32, 1 - 0.999 has only four correct digits.
            first_bias, second_bias = ((1 - beta ** count.double()).float() for beta in group["betas"])
        else:
            first_bias, second_bias = (1 - beta ** int(count) for beta in group["betas"])
        corrected_first = torch._foreach_div(first, first_bias)
        corrected_second = torch._foreach_div(second, second_bias)
        updates = _adam_update(corrected_first, corrected_second, group["eps"])
        parts = list(map(_local, parameters))
        if group["weight_decay"]:
            torch._foreach_add_(updates, parts, alpha=group["weight_decay"])
        # The group with weight decay is scaled even if the weight decay is set to 0.
        if group.get("decays", True):
            lengths, update_lengths = _norms(parameters[0], parts, updates)
            has_ratio = (lengths > 0) & (update_lengths > 0)
            trust = torch.where(has_ratio, lengths / update_lengths, 1.0)
            torch._foreach_mul_(updates, list(trust.unbind()))
        _subtract(parts, updates, group["lr"])


def _adamw(groups: list[dict[str, Any]], **options: Any) -> torch.optim.AdamW:
    # On CUDA, all steps are capturable, which does not slow down a fused step.
    capturable = _may_capture(groups)
    if capturable:
        warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
    return torch.optim.AdamW(groups, fused=True, capturable=capturable, **options)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adamw": _adamw, "bert_adam": BertAdam, "lamb": Lamb, "muon": Muon}


def step_count(optimizer: Optimizer, parameter: Tensor, steps: int) -> Tensor:
    # Returns the step count as the optimizer stores it, a float32 scalar. Fused kernels and captured steps read it on
    # the parameter's device. Other optimizers read it on the host, which would otherwise wait for the GPU.
    on_device = optimizer.defaults.get("fused") or is_capturable(optimizer)
    return torch.full((), float(steps), device=parameter.device) if on_device else torch.tensor(float(steps))


def _may_capture(groups: list[dict[str, Any]]) -> bool:
    # Steps of sharded parameters use collectives, which cannot be captured.
    parameters = [parameter for group in groups for parameter in group["params"]]
    return bool(parameters) and all(parameter.is_cuda and not is_dtensor(parameter) for parameter in parameters)


def is_capturable(optimizer: Optimizer) -> bool:
    """Return whether the optimizer's step can be captured in a CUDA graph.

    This holds if all parameters are on CUDA and unsharded. Before the capture, at least one step must run, to create
    the optimizer's state. Captured steps need gradients in fixed memory, so call ``zero_grad(set_to_none=False)``.
    """
    return bool(optimizer.defaults.get("capturable"))


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set each group's learning rate to ``rate`` times the group's own ``rate``, which is 1 by default.

    A learning rate that is a tensor is filled in place, so that captured and compiled steps read the new value. The
    host does not wait for the GPU.
    """
    for group in optimizer.param_groups:
        value = rate * group.get("rate", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def make_optimizer(
    module: nn.Module,
    learning_rate: float,
    weight_decay: float,
    name: str = "adamw",
    betas: tuple[float, float] = BETAS,
    epsilon: float = EPSILON,
    blocks_learning_rate: float | None = None,
    blocks_weight_decay: float | None = None,
    **options: Any,
) -> Optimizer:
    """Return the optimizer ``name`` for the trainable parameters of ``module``.

    As in google-research/bert, biases and LayerNorm have no weight decay. The matrices of blocks may have their own
    learning rate and weight decay. A group's ``rate`` is the ratio of its learning rate to ``learning_rate``.

    The module must already be on its device. On CUDA, learning rates are scalar tensors, to be changed by
    ``set_learning_rate``, and Muon moves the matrices to other memory.
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    matrices_apart = name == "muon" or blocks_learning_rate is not None or blocks_weight_decay is not None
    for parameter_name, parameter in module.named_parameters():
        if parameter.requires_grad:
            is_plain = "bias" in parameter_name.rpartition(".")[2] or "LayerNorm" in parameter_name
            is_block = BLOCKS in parameter_name and "embeddings" not in parameter_name
            if matrices_apart and parameter.ndim == 2 and is_block:
                matrices.append(parameter)
            elif is_plain:
                plain.append(parameter)
            else:
                decayed.append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": weight_decay, "decays": True},
        {"params": plain, "weight_decay": 0.0, "decays": False},
    ]
    if matrices:
        rate = (blocks_learning_rate or learning_rate) / learning_rate
        decay = weight_decay if blocks_weight_decay is None else blocks_weight_decay
        groups.append({"params": matrices, "weight_decay": decay, MATRICES: name == "muon", "rate": rate})
    optimizer = OPTIMIZERS[name](groups, lr=learning_rate, betas=betas, eps=epsilon, **options)
    if is_capturable(optimizer):
        # Each group has its own tensor, since the groups' learning rates may differ.
        for group in optimizer.param_groups:
            group["lr"] = torch.full((), learning_rate, device=next(module.parameters()).device)
    return optimizer


def linear_schedule(peak: float, warmup: int, total: int, decay: int | None = None) -> Callable[[int], float]:
    """Return a function that maps a step, counted from 0, to its learning rate.

    The rate rises linearly to ``peak`` in ``warmup`` steps and then falls linearly to 0 at step ``total``. With
    ``decay``, the rate stays at ``peak`` until the last ``decay`` steps (warmup-stable-decay).
    """
    falling = max(1, total - warmup if decay is None else decay)

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        return peak * min(1.0, max(0.0, (total - step) / falling))

    return rate
