"""Stand-ins for a GPU: a fake device that computes shapes and types, and a GPU's code paths on the CPU.

On the fake device (``FakeTensorMode``) torch refuses what a GPU would, such as tensors of two devices. A torch built
without CUDA lacks a device guard and a thread of autograd for it, so the guard is lent and gradients are zeros.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline_src.base.registry import member_module, member_names
from pipeline_src.model import attention, bert, losses
from pipeline_src.model.bert import load_architecture
from pipeline_src.pretrain.capacity import Capacity
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.pretrain.objective import load_objective
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ElectraParams
from pipeline_src.training.batches import batch_tensors, to_device
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.trainer import Objective, OptimizerConfig, Trainer, make_trainer
from tests.flash_on_cpu import flash_on_cpu

VOCAB_SIZE = 200
LENGTH = 32
CAPACITY = Capacity(6, LENGTH, predictions_per_sequence=5, pad_id=0)
# Batches of different kinds: mixed lengths, only full sequences, a single sequence, only short sequences.
LENGTHS = ([32, 31, 8, 30, 32, 29], [32] * 6, [4], [32], [20, 3, 32], [2, 3, 4, 2, 3, 4])
# As in c10/core/DeviceType.h.
DEVICE_TYPES = {"cuda": 1, "mps": 13, "meta": 14}
HALF = {torch.bfloat16, torch.float16}
EXACT = {torch.float32}
# Operator -> dtypes that its CUDA kernel takes, or that training needs.
KERNELS = {
    "addmm": HALF,
    "mm": HALF,
    "_flash_attention_forward": HALF,
    "_log_softmax": EXACT,
    "nll_loss_forward": EXACT,
    "mse_loss": EXACT,
    "_fused_adamw_": EXACT,
}
# Operators whose CUDA kernel takes inputs and weights of one dtype.
ONE_DTYPE = ("native_layer_norm", "native_layer_norm_backward")
# Operators whose result, or its size, the host has to know.
NUMBERS = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique_consecutive", "_unique2")
ELECTRA = {
    f"{target}/{positions}": ElectraParams(disc_target=target, disc_loss_on=positions, embeddings="separate")
    for target in ("rtd", "mlm")
    for positions in ("all", "predicted")
}


class Watch(TorchDispatchMode):
    """Record operators with their shapes, synchronisations, and dtypes that a kernel does not support."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.operators: list[tuple[str, list[torch.Size]]] = []
        self.dtypes: set[torch.dtype] = set()
        self.waits: list[str] = []
        self.wrong: list[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = operator._schema.name.partition("::")[2]
        given = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        if name == "_to_copy":
            # torch would read the number of a constant on the host instead.
            args[0].constant = None
        out = operator(*args, **kwargs)
        tensors = [*given, *(part for part in tree_leaves(out) if isinstance(part, Tensor))]
        devices = {part.device.type for part in tensors}
        if self.device.type not in devices:
            return out
        dtypes = {part.dtype for part in given if part.is_floating_point() and part.device == self.device}
        is_mixed = name in ONE_DTYPE and len(dtypes) > 1
        if self.device.type == "cuda" and (is_mixed or not dtypes <= KERNELS.get(name, dtypes)):
            self.wrong.append(f"{name} of {dtypes}")
        is_copy = name in ("_to_copy", "copy_") and len(devices) > 1
        is_blocking = not kwargs.get("non_blocking") or out.device.type == "cpu"
        has_unknown_size = name == "repeat_interleave" and not kwargs.get("output_size")
        if name in NUMBERS or has_unknown_size or (is_copy and is_blocking):
            self.waits.append(name)
        self.dtypes |= {part.dtype for part in tensors if part.device == self.device}
        self.operators.append((str(operator).removeprefix("aten."), [part.shape for part in tensors]))
        return out


@cache
def lend_guard(kind: str) -> None:
    """Let a torch without CUDA use the device, with the device guard of ``meta``, which does nothing."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 21).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    number = DEVICE_TYPES[kind]
    guards[number] = guards[number] or guards[DEVICE_TYPES["meta"]]
    torch.library.impl("aten::_fused_adamw_.tensor_lr", "Meta")(lambda *_, **__: None)


@contextmanager
def fake_gpu(device: torch.device) -> Iterator[tuple[FakeTensorMode, Watch]]:
    """Context manager: tensors have shapes but no values, and ``device`` exists."""
    lend_guard(device.type)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: device.type == "cuda")
        patch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)
        patch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        patch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)
        patch.setattr(torch.mps, "manual_seed", lambda seed: None)
        patch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
        patch.setattr(Tensor, "backward", zero_gradients)
        patch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
        patch.setattr(nn.LSTM, "forward", lstm_shapes)
        if device.type == "mps":
            # What its torch chooses where there are gradients.
            math = torch.ops.aten._scaled_dot_product_attention_math
            patch.setattr(F, "scaled_dot_product_attention", lambda *args, **kwargs: math(*args, **kwargs)[0])
        # `torch.tensor(0.0, device="cuda")` is made on the host and copied.
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            with FakeTensorMode(allow_non_fake_inputs=False) as mode, Watch(device) as watch:
                yield mode, watch
        finally:
            torch._C._set_only_lift_cpu_tensors(False)


def zero_gradients(loss: Tensor) -> None:
    """Give every parameter in the graph of ``loss`` a zero gradient."""
    waiting = [loss.grad_fn]
    seen = {None}
    while waiting:
        node: Any = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        if hasattr(node, "variable"):
            before = node.variable.grad
            node.variable.grad = torch.zeros_like(node.variable) if before is None else before + 0


def lstm_shapes(lstm: nn.LSTM, inputs: Any) -> tuple[Any, None]:
    """Return a tensor with the shape and dtype of cuDNN's result, which under autocast is float16."""
    data = inputs.data if isinstance(inputs, PackedSequence) else inputs
    if torch.is_autocast_enabled("cuda") or data.dtype != torch.float32:
        raise TypeError("an LSTM in half precision underflows small gradients")
    width = (lstm.proj_size or lstm.hidden_size) * (2 if lstm.bidirectional else 1)
    out = data.new_empty((*data.shape[:-1], width)) + sum(weight.sum() for weight in lstm.parameters())
    return (PackedSequence(out, inputs.batch_sizes) if isinstance(inputs, PackedSequence) else out), None


def step_on_fake_gpu(
    make: Callable[[], Objective[Any]],
    batches: Iterable[list[Any]],
    optimizer: str = "adamw",
    device: str = "cuda:0",
    prepare: Callable[[Trainer[Any]], object] = lambda trainer: None,
) -> tuple[Watch, list[list[tuple[str, list[torch.Size]]]]]:
    """Train a step on each batch, and return the record and the operators of each step."""
    gpu = torch.device(device)
    precision = torch.bfloat16 if gpu.type == "cuda" else torch.float32
    batches = list(batches)
    with fake_gpu(gpu) as (mode, watch):
        objective = on_device(make, gpu)
        trainer = trainer_of(objective, Distributed(0, 1, gpu, precision), optimizer)
        prepare(trainer)
        objective.train()
        watch.waits.clear()
        steps = []
        for batch in batches:
            sent = []
            for microbatch in batch:
                host = {
                    name: mode.from_tensor(part, static_shapes=True) for name, part in batch_tensors(microbatch).items()
                }
                sent.append(to_device(replace(microbatch, **host), gpu))
            watch.operators = []
            trainer.train_step(sent)
            steps.append(list(watch.operators))
    return watch, steps


def on_device(make: Callable[[], Any], device: torch.device) -> Any:
    """Build an objective whose parameters, and its teacher's, are on ``device``."""
    with torch.device("meta"):
        module = make()
    teacher = getattr(module, "teacher", None)
    for part in [*module.modules(), *(teacher.modules() if teacher is not None else ())]:
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                there = torch.empty(parameter.shape, device=device)
                part._parameters[name] = nn.Parameter(there, requires_grad=parameter.requires_grad)
    if hasattr(module, "tie"):
        module.tie()
    return module


def trainer_of(objective: Objective[Any], distributed: Distributed, optimizer: str = "adamw") -> Trainer[Any]:
    recipe = OptimizerConfig(1e-3, total_steps=1_000, decay_steps=0, optimizer=optimizer)
    return make_trainer(objective, recipe, distributed, name="test", last=1_000, seed=1)


def objective_of(name: str, architecture: str = "bert", variant: str = "", **changes: Any) -> Callable[[], Any]:
    """Return a function that makes an objective on a small encoder, and its teacher.

    ``variant`` is a key of ``ELECTRA``; ``changes`` are of ModelParams, or ``attention``.
    """
    kind = load_objective(name)
    back_end = changes.pop("attention", "flash_varlen")
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    sizes |= {"max_position_embeddings": 2 * LENGTH} | changes

    def config(**more: int) -> Any:
        params = ModelParams(architecture=architecture, **sizes | more)
        family = load_architecture(architecture)
        return family.config.from_params(params, VOCAB_SIZE, kind.spec.causal, attention=back_end)

    def make() -> Any:
        objective = kind(config(), "nsp", ELECTRA.get(variant))
        if kind.build_teacher is not None:
            teacher = kind.build_teacher(config(num_hidden_layers=4))
            objective.set_teacher(teacher.eval().requires_grad_(False))
        return objective

    return make


def make_batch(
    rng: np.random.Generator, lengths: list[int], counts: list[int] | None = None, skip: int = 0
) -> TensorBatch:
    """Return a batch with these sequence lengths and numbers of predictions, by default 15 % of the tokens."""
    counts = counts or [max(1, round(0.15 * length)) for length in lengths]
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    positions = []
    for start, length, count in zip(cu_seqlens, lengths, counts, strict=False):
        positions.append(start + skip + np.sort(rng.permutation(length - skip)[:count]))
    predicted = np.concatenate(positions).astype(np.int64)
    ids = rng.integers(5, VOCAB_SIZE, cu_seqlens[-1])
    segments, pairs = rng.integers(0, 2, len(ids)), rng.integers(0, 2, len(lengths))
    labels, noise = rng.integers(5, VOCAB_SIZE, len(predicted)), rng.random(len(predicted), dtype=np.float32)
    examples = np.arange(len(lengths))
    return TensorBatch.of(PretrainingBatch(ids, segments, cu_seqlens, predicted, labels, pairs, examples, noise))


def run_again(run: Callable[[], dict[str, Tensor]]) -> tuple[Callable[[], None], dict[str, Tensor]]:
    """Stand-in for a CUDA graph that replays by running the function again into the same outputs."""
    outputs: dict[str, Tensor] = {}

    def replay() -> None:
        for name, value in run().items():
            if name in outputs:
                outputs[name].copy_(value)
            else:
                outputs[name] = value.clone()

    return replay, outputs


@contextmanager
def gpu_branches(compiler: str = "") -> Iterator[None]:
    """Context manager under which the CPU runs a GPU's code paths, and torch.compile uses the back end ``compiler``."""
    with pytest.MonkeyPatch.context() as patch, flash_on_cpu():
        patch.setattr(attention, "choose", lambda *_: "flash_varlen")
        patch.setattr(attention, "apply_dropout", plain_dropout)
        patch.setattr(attention, "ALWAYS_MASKED", {"cuda", "cpu"})
        patch.setattr(bert, "sampled_cross_entropy", losses.full_sampled_cross_entropy)
        patch.setattr(bert, "linear_cross_entropy", losses.full_cross_entropy)
        if "deberta" in member_names("models"):
            deberta = importlib.import_module(member_module("models", "deberta"))
            patch.setattr(deberta, "apply_dropout", plain_dropout)
            patch.setattr(deberta, "disentangled_grouped", deberta.disentangled_padded)
        if compiler:
            from torch._dynamo.variables import constant, tensor

            torch._dynamo.reset()
            patch.setattr(torch, "compile", partial(torch.compile, backend=compiler))
            is_cuda = constant.ConstantVariable.create(True)
            patch.setattr(tensor.TensorVariable, "method_attr_is_cuda", lambda *_: is_cuda, raising=False)
        yield
    if compiler:
        torch._dynamo.reset()


def plain_dropout(inner: Tensor, rate: float) -> Tensor:
    return F.dropout(inner, rate) if rate else inner
