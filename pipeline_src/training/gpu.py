"""What makes training fast on a GPU: decisions from the FLOPs of a step, and steps captured in CUDA graphs.

A captured step needs microbatches of fixed capacity (:mod:`pipeline_src.pretraining.capacity`): the host then launches
one graph a microbatch and one for the update instead of some 1,300 kernels, which small models wait for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import log
from pipeline_src.config.machine import Switch
from pipeline_src.training.batches import tensors_of
from pipeline_src.training.optimizers import is_capturable
from pipeline_src.training.trainer import Trainer
from pipeline_src.training.weight_copies import Bfloat16Weights

COMPILE_BREAK_EVEN = 300  # seconds of training, of which compiling saves a fifth or more; it takes about 60
UTILISATION = 0.25  # upper bound of the share of its peak that a GPU reaches without the compiler
LAUNCH_SECONDS = 0.03  # for the launches of a step, about 1,300 kernels, with the host's other work
EAGER_STEPS = 3  # before the capture: they make the optimizer's state and load the kernels

Outputs = dict[str, Tensor]
Capture = Callable[[Callable[[], Outputs]], tuple[Callable[[], None], Outputs]]


def choose_compile(setting: Switch, flops_left: float, peak: float) -> bool:
    """Decide whether to compile the model, and log why.

    With ``auto`` it is compiled if the rest of the phase would take the GPUs over five minutes at a quarter of their
    peak, and Triton, which makes the kernels, finds the C compiler that it needs.

    Args:
        setting: ``compile`` of machine.yaml.
        flops_left: of the phase, by formula.
        peak: FLOP/s of all GPUs together.

    Raises:
        PipelineError: it is to be compiled, and there is no C compiler.
    """
    has_compiler = bool(os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc"))
    if setting != "auto":
        if setting and not has_compiler:
            raise PipelineError(
                "torch.compile needs a C compiler", "none here", where="machine.yaml, compile",
                hint="install gcc or clang, name one in $CC, or set compile: auto",
            )  # fmt: skip
        return setting
    seconds = flops_left / (UTILISATION * peak)
    if seconds < COMPILE_BREAK_EVEN:
        log.info("not compiled: some %.0f seconds of training are left, too few to earn the compiler's back", seconds)
        return False
    if not has_compiler:
        log.info("not compiled: there is no C compiler here; with gcc or clang training would be faster")
        return False
    log.info("compiled: the first step of each kind takes up to a minute")
    return True


def choose_capture(
    setting: Switch, flops_per_step: float, peak: float, trainer: Trainer[Any], has_capacity: bool
) -> bool:
    """Decide whether to capture steps of fixed capacity in CUDA graphs.

    With ``auto`` they are captured if the GPU would take less time for a step, at a quarter of its peak, than the host
    takes to launch it.

    Args:
        setting: ``pretrain.capture`` of machine.yaml.
        flops_per_step: by formula, on this process.
        peak: FLOP/s of the GPU.
        trainer: of the phase.
        has_capacity: whether its microbatches have a fixed capacity.

    Raises:
        PipelineError: they are to be captured, and cannot be.
    """
    reason = ""
    if not has_capacity:
        reason = "microbatches of fixed capacity"
    elif trainer.distributed.device.type != "cuda" or not is_capturable(trainer.optimizer):
        reason = "unsharded parameters on a CUDA device"
    elif trainer.distributed.world_size > 1:
        reason = "a single process"
    elif any(getattr(part, "activation_checkpointing", False) for part in trainer.objective.modules()):
        reason = "activation_checkpointing: false"
    if setting is True and reason:
        raise PipelineError(
            "steps cannot be captured in a CUDA graph here", f"needs {reason}", where="machine.yaml, pretrain.capture",
            hint="set capture: auto",
        )  # fmt: skip
    if setting != "auto":
        return bool(setting)
    return not reason and flops_per_step / (UTILISATION * peak) < LAUNCH_SECONDS


def capture_graph(run: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
    """Capture ``run`` in a CUDA graph; return the function that replays it and the outputs that it fills."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    return graph.replay, outputs


class CapturedSteps:
    """Takes the place of a trainer's eager backward pass and update, which it captures after some steps.

    Dropout reads the seed and offset of torch's generator at each replay, so it does not repeat. If a capture fails,
    training goes on without.

    Args:
        trainer: its batches have microbatches of equal shapes.
        capture: see :func:`capture_graph`.
    """

    def __init__(self, trainer: Trainer[Any], capture: Capture = capture_graph) -> None:
        self.trainer, self.capture, self._eager_until = trainer, capture, trainer.state.step + EAGER_STEPS
        self._inputs: list[Tensor] = []
        self._counts: dict[str, Tensor] = {}
        self._replay_backward: Callable[[], None] | None = None
        self._replay_update: Callable[[], None] | None = None
        self._values: Outputs = {}
        self._norm: Outputs = {}
        trainer.keeps_gradients = True
        trainer.backward, trainer.update = self.backward, self.update

    def backward(self, part: Any, counts: Mapping[str, Any], is_last: bool, is_own: bool) -> Outputs:
        """Add a microbatch's gradients; see :meth:`Trainer.eager_backward`."""
        trainer = self.trainer
        if trainer.state.step < self._eager_until:
            return trainer.eager_backward(part, counts, is_last, is_own)
        if self._replay_backward is None:
            try:
                self._capture(part, counts)
            except RuntimeError as error:
                return self._give_up(error, part, counts)
        assert self._replay_backward is not None
        torch._foreach_copy_(self._inputs, list(tensors_of(part).values()))
        for name, count in counts.items():
            self._counts[name].fill_(count)
        self._replay_backward()
        return self._values

    def update(self) -> Tensor:
        """Clip the gradients and take the optimizer's step; see :meth:`Trainer.eager_update`."""
        if self._replay_update is None:
            return self.trainer.eager_update()
        self._replay_update()
        return self._norm["grad_norm"]

    def _capture(self, part: Any, counts: Mapping[str, Any]) -> None:
        trainer, device = self.trainer, self.trainer.distributed.device
        static = type(part)(**{**vars(part), **{name: value.clone() for name, value in tensors_of(part).items()}})
        self._inputs = list(tensors_of(static).values())
        self._counts = {name: torch.full((), float(count), device=device) for name, count in counts.items()}
        self._replay_backward, self._values = self.capture(
            lambda: trainer.eager_backward(static, self._counts, is_last=True, is_own=True)
        )
        self._replay_update, self._norm = self.capture(lambda: {"grad_norm": trainer.eager_update()})
        trainer.optimizer.zero_grad(set_to_none=False)
        torch.manual_seed(trainer.dropout_seed)
        log.info("steps are captured in CUDA graphs from step %d on", trainer.state.step + 1)

    def _give_up(self, error: RuntimeError, part: Any, counts: Mapping[str, Any]) -> Outputs:
        trainer = self.trainer
        log.warning("steps are not captured in a CUDA graph, so small models train slower: %s", _first_line(error))
        trainer.backward, trainer.update = trainer.eager_backward, trainer.eager_update
        trainer.optimizer.zero_grad(set_to_none=False)
        torch.manual_seed(trainer.dropout_seed)
        return trainer.backward(part, counts, is_last=True, is_own=True)


class CopiedWeights:
    """Runs a trainer's eager passes with bfloat16 copies of its weights; see :class:`Bfloat16Weights`.

    Args:
        trainer: of a single process in bfloat16; not yet captured.
    """

    def __init__(self, trainer: Trainer[Any]) -> None:
        self.trainer = trainer
        self.copies: Bfloat16Weights | None = None
        self._backward, self._update = trainer.eager_backward, trainer.eager_update
        trainer.eager_backward = trainer.backward = self.backward  # type: ignore[method-assign]
        trainer.eager_update = trainer.update = self.update  # type: ignore[method-assign]

    def backward(self, part: Any, counts: Mapping[str, Any], is_last: bool, is_own: bool) -> Outputs:
        """Add a microbatch's gradients; see :meth:`Trainer.eager_backward`."""
        if self.copies is None:
            self.copies = Bfloat16Weights(self.trainer.objective, lambda: self._losses(part))
        with self.copies.in_use():
            return self._backward(part, counts, is_last, is_own)

    def update(self) -> Tensor:
        """Update the weights and their copies; see :meth:`Trainer.eager_update`."""
        norm = self._update()
        assert self.copies is not None
        self.copies.refresh()
        return norm

    def _losses(self, part: Any) -> list[Tensor]:
        with self.trainer.distributed.autocast():
            return [term.loss for term in self.trainer.objective(part).values()]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
