"""bfloat16 copies of the weights of linear layers; without the copies, autocast casts the weights in every pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class _Slot(NamedTuple):
    linear: nn.Linear
    name: str
    parameter: nn.Parameter
    copy: nn.Parameter


class Bfloat16Weights:
    """bfloat16 copies of the float32 weights and biases of a module's linear layers, for passes under autocast.

    Losses and gradients are bit-equal to those of autocast without copies. Optimizer, checkpoints and validation see
    only the float32 parameters. Three kinds of parameters get no copy, and autocast casts them:

    - Frozen parameters, and parameters that no loss depends on: they get no gradient.
    - Weight and bias of a layer whose weight another module has too (the MLM decoder's is the embedding matrix): the
      embeddings are looked up in float32, and the losses over the vocabulary take the gradient's dtype from the weight.
    - Parameters that a pass reads at several places (shared layers, DeBERTa's mask decoder, TinyBERT's attention
      logits). A copy's gradients would be summed in bfloat16; autocast sums them in float32 where it casts the weight
      at each place, which it does for concatenated or sliced weights and in compiled code.

    For one process only: DistributedDataParallel and FSDP wait for the float32 parameters' gradients.

    Args:
        module: a module with float32 parameters, on its device.
        forward: runs the module under autocast and returns its losses. It is called once, uncompiled and without
            keeping activations, to count the places that read each parameter. Random generators are restored.
    """

    def __init__(self, module: nn.Module, forward: Callable[[], Iterable[Tensor]]) -> None:
        self._slots = list(_slots(module))
        self.refresh()
        devices = {slot.parameter.device for slot in self._slots if slot.parameter.device.type == "cuda"}
        nothing_saved = saved_tensors_hooks(lambda tensor: None, _no_backward)
        with torch.random.fork_rng(devices), torch.compiler.set_stance("force_eager"), nothing_saved, self._swapped():
            reads = _reads(forward())
        self._slots = [slot for slot in self._slots if reads[id(slot.copy)] == 1]

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the parameters again; must be called after every change of them, such as an optimizer's step."""
        if self._slots:
            torch._foreach_copy_([slot.copy for slot in self._slots], [slot.parameter for slot in self._slots])

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Context manager for a forward and a backward pass, in which the copies take the parameters' places.

        At the end, the copies' gradients are added to the parameters' in float32; after an exception, they are dropped.
        """
        with self._swapped():
            yield
            self._add_gradients()

    @contextmanager
    def _swapped(self) -> Iterator[None]:
        for slot in self._slots:
            slot.linear._parameters[slot.name] = slot.copy
        try:
            yield
        finally:
            for slot in self._slots:
                slot.linear._parameters[slot.name] = slot.parameter
                slot.copy.grad = None

    @torch.no_grad()
    def _add_gradients(self) -> None:
        # all copies at once: a hook per copy would launch as many kernels as autocast's casts
        narrow = [(slot.parameter, slot.copy.grad) for slot in self._slots if slot.copy.grad is not None]
        if not narrow:
            return
        wide = [torch.empty_like(parameter) for parameter, _ in narrow]
        torch._foreach_copy_(wide, [gradient for _, gradient in narrow])
        sums: list[Tensor] = []
        more: list[Tensor] = []
        for (parameter, _), gradient in zip(narrow, wide, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                sums.append(parameter.grad)
                more.append(gradient)
        if sums:
            torch._foreach_add_(sums, more)


def _slots(module: nn.Module) -> Iterator[_Slot]:
    holders = Counter(id(parameter) for part in module.modules() for parameter in part._parameters.values())
    for linear in module.modules():
        if not isinstance(linear, nn.Linear) or holders[id(linear.weight)] > 1:
            continue
        for name, parameter in linear._parameters.items():
            if parameter is not None and parameter.requires_grad and parameter.dtype == torch.float32:
                yield _Slot(linear, name, parameter, nn.Parameter(torch.empty_like(parameter, dtype=torch.bfloat16)))


def _reads(losses: Iterable[Tensor]) -> Counter[int]:
    """Return id of a leaf tensor -> number of places at which the losses' graph reads it."""
    reads: Counter[int] = Counter()
    waiting: list[Any] = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if hasattr(node, "variable"):
                reads[id(node.variable)] += 1
            elif node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return reads


def _no_backward(saved: None) -> Tensor:
    raise RuntimeError("no backward pass follows this forward pass")
