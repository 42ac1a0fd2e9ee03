"""A GPU that is not there: torch computes shapes, types and devices on it, and no numbers (``FakeTensorMode``).

What a step does on it is what it would do on a real one, operator by operator, as far as torch's dispatcher knows: a
tensor on the wrong device is refused, autocast's types are CUDA's, and whatever asks for a number is seen. A torch
built without CUDA needs three parts lent to it: a device guard (that of the device ``meta``, which does nothing), a
walk of the backward graph (its engine has no thread for the device), and kernels of its own for an LSTM.

All of it changes torch for good: it is for a process of its own, see ``rehearsal.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline_src.training import batches

GPU = torch.device(os.environ.get("PRETENDED_DEVICE", "cuda:0"))
DEVICE_TYPES = {"cuda": 1, "mps": 13, "meta": 14}  # c10/core/DeviceType.h
HALF, EXACT = {torch.bfloat16, torch.float16}, {torch.float32}
KERNELS = {  # types that an operator takes: on a GPU it refuses others, or loses what training needs
    "addmm": HALF,
    "mm": HALF,
    "_flash_attention_forward": HALF,
    "_flash_attention_backward": HALF | EXACT,  # the sums of weights come in float32
    "_scaled_dot_product_flash_attention": HALF,
    "_log_softmax": EXACT,
    "nll_loss_forward": EXACT,
    "mse_loss": EXACT,
    "native_layer_norm": EXACT,  # for its statistics
    "_fused_adamw_": EXACT,
}
# operators whose result, or its size, the host has to know
NUMBERS = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique_consecutive", "_unique2")


def lend_cuda() -> None:
    """Let a torch without CUDA enter the device ``cuda``, and take what the project asks of one as given."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 21).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    number = DEVICE_TYPES[GPU.type]
    guards[number] = guards[number] or guards[DEVICE_TYPES["meta"]]
    cuda: Any = torch.cuda
    cuda.is_available = lambda: GPU.type == "cuda"
    torch.mps.manual_seed = lambda seed: None
    if GPU.type == "mps":  # what its torch chooses with gradients; another build has no table of choices for it
        math = torch.ops.aten._scaled_dot_product_attention_math
        nn.functional.scaled_dot_product_attention = lambda *args, **kwargs: math(*args, **kwargs)[0]
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.manual_seed_all = lambda seed: None
    cuda.set_device = lambda device: None
    cuda.Stream, cuda.current_stream, cuda.stream = Stream, Stream, lambda stream: contextlib.nullcontext()
    cuda.get_rng_state, cuda.set_rng_state = lambda *_: torch.empty(0), lambda *_: None
    torch.library.impl("aten::_fused_adamw_.tensor_lr", "Meta")(lambda *_, **__: None)
    torch.backends.cuda.is_flash_attention_available = lambda: True
    torch._C._set_only_lift_cpu_tensors(True)  # ``torch.tensor(0.0, device="cuda")`` is made on the host and copied
    tensor: Any = Tensor
    tensor.pin_memory = lambda self: self
    tensor.record_stream = lambda self, stream: None
    tensor.backward = backward
    nn.LSTM.forward = lstm  # type: ignore[method-assign, assignment]
    batches.prefetch = lambda items: items  # type: ignore[attr-defined]  # a mode is of one thread


PASSES: list[int] = []  # backward passes begun


class Stream:
    """Of no device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record_event(self) -> None:
        """Nothing happens on it."""

    def wait_event(self, event: None) -> None:
        """So there is nothing to wait for."""


@contextlib.contextmanager
def pretended() -> Iterator[None]:
    """Within it, tensors have no numbers; those made of an array neither."""
    mode, real = FakeTensorMode(allow_non_fake_inputs=False), torch.from_numpy
    torch.from_numpy = lambda array: mode.from_tensor(real(array), static_shapes=True)  # type: ignore[assignment]
    try:
        with mode:
            yield
    finally:
        torch.from_numpy = real  # type: ignore[assignment]


def backward(loss: Tensor) -> None:
    """What ``loss.backward()`` does, node by node, each after all that give to it.

    As torch's engine does, a gradient takes the shape and type of what it is the gradient of.
    """
    givers: dict[Any, int] = {}
    waiting, seen = [loss.grad_fn], {loss.grad_fn}
    while waiting:
        for node, _ in waiting.pop().next_functions:  # type: ignore[union-attr]
            if node is not None:
                givers[node] = givers.get(node, 0) + 1
                if node not in seen:
                    seen.add(node)
                    waiting.append(node)
    given: dict[Any, dict[int, Tensor]] = {loss.grad_fn: {0: torch.ones_like(loss)}}
    ready: list[Any] = [loss.grad_fn]
    PASSES.append(len(PASSES))
    torch._C._current_graph_task_id = lambda: len(PASSES)  # by which torch.utils.checkpoint computes again but once
    with torch.no_grad():
        while ready:
            node = ready.pop()
            gradients = given.pop(node, {})
            if hasattr(node, "variable"):  # a parameter
                for gradient in gradients.values():
                    before = node.variable.grad
                    node.variable.grad = gradient if before is None else before + gradient
                continue
            run = getattr(
                node, "apply", node
            )  # a function written in Python, which gives of its last arguments nothing
            result = run(*(gradients.get(position) for position in range(len(node._input_metadata))))
            if run is not node:
                result = result[: len(node.next_functions)]
            for (receiver, position), gradient in zip(
                node.next_functions, result if isinstance(result, tuple) else (result,), strict=True
            ):
                if receiver is None:
                    continue
                if gradient is not None:
                    target = receiver._input_metadata[position]
                    gradient = gradient.sum_to_size(target.shape).to(target.dtype)
                    others = given.setdefault(receiver, {})
                    others[position] = others[position] + gradient if position in others else gradient
                givers[receiver] -= 1
                if not givers[receiver]:
                    ready.append(receiver)


def lstm(self: nn.LSTM, given: PackedSequence | Tensor) -> tuple[PackedSequence | Tensor, None]:
    """Of the shape and type that cuDNN's gives; it takes the counts from the host and, without a scaler, no float16."""
    data = given.data if isinstance(given, PackedSequence) else given
    kind = torch.float16 if torch.is_autocast_enabled("cuda") else data.dtype  # whatever type autocast is told
    counts = given.batch_sizes if isinstance(given, PackedSequence) else None
    if kind != torch.float32 or (counts is not None and counts.device.type != "cpu"):
        raise TypeError(f"LSTM in {kind}, counts {counts}")
    for layer in range(self.num_layers):
        read = []
        for way in ("", "_reverse") if self.bidirectional else ("",):
            other = getattr(self, f"weight_hh_l{layer}{way}").sum(1)
            other = other + getattr(self, f"bias_ih_l{layer}{way}") + getattr(self, f"bias_hh_l{layer}{way}")
            gates = torch.einsum("...i,gi->...g", data, getattr(self, f"weight_ih_l{layer}{way}")) + other
            read.append(gates[..., : self.hidden_size])
            if self.proj_size:
                read[-1] = torch.einsum("...h,ph->...p", read[-1], getattr(self, f"weight_hr_l{layer}{way}"))
        data = torch.cat(read, dim=-1)
    return (data if counts is None else PackedSequence(data, counts)), None


@dataclass
class Seen:
    """What went wrong in steps, each with the lines of the project that led to it.

    Attributes:
        waits: where the host would have waited for the GPU.
        types: numbers in a type that a kernel does not take, or in which training loses something.
        refused: what no GPU would have run, such as tensors of two devices.
        kernels: of the operators in KERNELS, those that ran.
        operators: all that ran on the device.
        kinds: types of the tensors there.
    """

    waits: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)


class Watch(TorchDispatchMode):
    """Sees every operator: what makes the host wait for the GPU, and types that a kernel does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operator itself, looked at."""
        kwargs = kwargs or {}
        name = operator._schema.name.partition("::")[2]
        given = [part for part in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        if name in KERNELS and name not in self.seen.kernels:
            self.seen.kernels.append(name)
        tells = name in NUMBERS or (name == "repeat_interleave" and not kwargs.get("output_size"))
        if tells and any(part.is_cuda for part in given):
            self.seen.waits.append(f"{name} at {where()}")
        taken = {part.dtype for part in given if part.is_floating_point() and part.is_cuda}
        if not taken <= KERNELS.get(name, taken):
            self.seen.types.append(f"{name} of {', '.join(map(str, taken))} at {where()}")
        if name == "_to_copy":  # of a number the host has just made torch would copy the number itself
            args[0].constant = None
        out = operator(*args, **kwargs)
        there = [part for part in (*given, *torch.utils._pytree.tree_leaves(out)) if isinstance(part, Tensor)]
        if any(part.device.type == GPU.type for part in there):
            self.seen.operators.add(str(operator).removeprefix("aten."))
            self.seen.kinds.update(str(part.dtype) for part in there if part.device.type == GPU.type)
        if name in ("_to_copy", "copy_") and isinstance(out, Tensor):
            devices = {out.device.type, *(part.device.type for part in given)}
            blocking = not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
            if len(devices) > 1 and (blocking or out.device.type == "cpu"):
                self.seen.waits.append(f"{name} to {out.device.type} at {where()}")
        return out


def where(error: BaseException | None = None) -> str:
    """The project's lines on the way to here, or to an error, the innermost first."""
    frames = traceback.extract_tb(error.__traceback__) if error else traceback.extract_stack()
    own = [frame for frame in frames if "pipeline_src" in frame.filename]
    return " < ".join(f"{re.sub('.*pipeline_src/', '', frame.filename)}:{frame.lineno}" for frame in own[::-1][:3])
