"""Speed up training on a GPU: decide whether to compile, and capture training steps in CUDA graphs.

A step of a small model takes less time than the launches of its 1,300 kernels. A captured step is launched as one graph
per microbatch and one for the update. It needs microbatches of fixed capacity (``pipeline_src.pretrain.capacity``).
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import log
from pipeline_src.study.machine import Switch
from pipeline_src.training.batches import batch_tensors
from pipeline_src.training.optimizers import is_capturable
from pipeline_src.training.trainer import Trainer

# Compiling takes about 60 s and saves at least a fifth of the training time, so it pays off after 300 s of training.
COMPILE_BREAK_EVEN_SECONDS = 300
# Without the compiler, a GPU reaches at most this share of its peak FLOP/s.
MAX_UTILISATION = 0.25
# The host needs this long for a step: it launches about 1,300 kernels, besides other work.
LAUNCH_SECONDS = 0.03
# Steps that run before the capture, to create the optimizer's state and load the kernels.
EAGER_STEPS = 3

# Fields of a microbatch that its step does not read.
NOT_READ = ("examples", "workload")

Outputs = dict[str, Tensor]
Capture = Callable[[Callable[[], Outputs]], tuple[Callable[[], None], Outputs]]


def choose_compile(setting: Switch, flops_left: float, peak: float) -> bool:
    """Decide whether to compile the model, and log why.

    With "auto", the model is compiled on two conditions. The rest of the phase takes more than five minutes at a
    quarter of the GPUs' peak, and there is a C compiler, which torch.compile needs.

    Args:
        flops_left: FLOPs of the rest of the phase.
        peak: peak FLOP/s of all GPUs together.
    """
    has_compiler = bool(os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc"))
    if setting != "auto":
        if setting and not has_compiler:
            raise PipelineError(
                "torch.compile needs a C compiler",
                "no gcc or clang found",
                where="machine.yaml, compile",
                hint="install gcc or clang, name one in $CC, or set compile: auto",
            )
        return setting
    seconds = flops_left / (MAX_UTILISATION * peak)
    if seconds < COMPILE_BREAK_EVEN_SECONDS:
        log.info("not compiled: some %.0f seconds of training are left, too few for compiling to pay off", seconds)
        return False
    if not has_compiler:
        log.info("not compiled: there is no C compiler here; with gcc or clang training would be faster")
        return False
    log.info("compiled: the first step of each kind takes up to a minute")
    return True


def choose_capture(
    setting: Switch, flops_per_step: float, peak: float, trainer: Trainer[Any], has_capacity: bool
) -> bool:
    """Decide whether to capture training steps in CUDA graphs.

    With "auto", steps are captured if the host takes longer to launch a step than the GPU, at a quarter of its peak,
    to compute it.

    Args:
        flops_per_step: FLOPs of this process's part of a step.
        peak: peak FLOP/s of this process's GPU.
        has_capacity: whether microbatches have a fixed capacity.
    """
    reason = ""
    if trainer.distributed.device.type != "cuda" or not is_capturable(trainer.optimizer):
        reason = "unsharded parameters on a CUDA device"
    elif not has_capacity:
        reason = "microbatches of fixed capacity"
    elif trainer.distributed.world_size > 1:
        reason = "a single process"
    elif any(getattr(part, "activation_checkpointing", False) for part in trainer.objective.modules()):
        reason = "activation_checkpointing: false"
    if setting is True and reason:
        raise PipelineError(
            "steps cannot be captured in a CUDA graph here",
            f"needs {reason}",
            where="machine.yaml, pretrain.capture",
            hint="set capture: auto",
        )
    if setting != "auto":
        return bool(setting)
    return not reason and flops_per_step / (MAX_UTILISATION * peak) < LAUNCH_SECONDS


def capture_graph(run: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
    """Capture ``run`` in a CUDA graph.

    Returns:
        A function that replays the graph, and the output tensors, which every replay overwrites.

    Raises:
        RuntimeError: ``run`` cannot be captured. Training can continue without a graph.
    """
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    # PyTorch cannot release cached memory during a capture, so it is released now.
    torch.cuda.empty_cache()
    with torch.cuda.stream(stream):
        # With "thread_local", the thread that copies batches may continue during the capture.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            outputs = run()
        except RuntimeError as error:
            try:
                graph.capture_end()
            except RuntimeError:
                raise PipelineError(
                    "a training step cannot be captured in a CUDA graph",
                    _first_line(error),
                    where="training",
                    hint="set pretrain.capture: false in machine.yaml and run the same command again: it resumes from "
                    "the last checkpoint",
                ) from error
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph.replay, outputs


class CapturedSteps:
    """Replay a trainer's backward passes and updates as CUDA graphs.

    The first ``EAGER_STEPS`` steps run without graphs. Dropout reads the seed and offset of torch's generator at each
    replay, so its masks do not repeat. If the capture fails, training continues without graphs where CUDA allows it.
    """

    def __init__(self, trainer: Trainer[Any], capture: Capture = capture_graph) -> None:
        self.trainer = trainer
        self.capture = capture
        self._eager_until: float = trainer.state.step + EAGER_STEPS
        # The graph reads the tensors of this microbatch. New microbatches are copied into them.
        self._batch: Any = None
        self._counts: dict[str, Tensor] = {}
        self._replay_backward: Callable[[], None] | None = None
        self._replay_update: Callable[[], None] | None = None
        self._values: Outputs = {}
        self._norm: Outputs = {}
        trainer.keeps_gradients = True
        trainer.stepper = self

    def backward(self, microbatch: Any, counts: Mapping[str, Any], is_last: bool, is_own: bool) -> Outputs:
        trainer = self.trainer
        # Counts are tensors in eager steps too, since dividing by a Python number would round differently.
        for name, count in counts.items():
            if name not in self._counts:
                self._counts[name] = torch.empty((), device=trainer.distributed.device)
            self._counts[name].fill_(count)
        if trainer.state.step < self._eager_until:
            return self.trainer.backward(microbatch, self._counts, is_last, is_own)
        if self._replay_backward is None:
            try:
                self._capture(microbatch)
            except RuntimeError as error:
                return self._give_up(error, microbatch)
        assert self._replay_backward is not None
        self._check(microbatch)
        torch._foreach_copy_(list(batch_tensors(self._batch).values()), list(batch_tensors(microbatch).values()))
        self._replay_backward()
        return self._values

    def update(self) -> Tensor:
        if self._replay_update is None:
            return self.trainer.update()
        self._replay_update()
        return self._norm["grad_norm"]

    def _capture(self, microbatch: Any) -> None:
        copies = {name: tensor.clone() for name, tensor in batch_tensors(microbatch).items()}
        self._batch = replace(microbatch, **copies)
        backward, values = self.capture(
            lambda: self.trainer.backward(self._batch, self._counts, is_last=True, is_own=True)
        )
        update, norm = self.capture(lambda: {"grad_norm": self.trainer.update()})
        # Set these only when both graphs are captured, so that a failed capture leaves none of them.
        self._replay_backward = backward
        self._values = values
        self._replay_update = update
        self._norm = norm
        log.info("steps are captured in CUDA graphs from step %d on", self.trainer.state.step + 1)

    def _check(self, microbatch: Any) -> None:
        for name, captured in vars(self._batch).items():
            value = getattr(microbatch, name)
            if isinstance(value, Tensor):
                value, captured = value.shape, captured.shape
            if name not in NOT_READ and value != captured:
                raise ValueError(f"a microbatch differs from the captured one: {name} {value}, not {captured}")

    def _give_up(self, error: RuntimeError, microbatch: Any) -> Outputs:
        trainer = self.trainer
        log.warning("steps are not captured in a CUDA graph, so small models train slower: %s", _first_line(error))
        trainer.stepper = None
        # The remaining microbatches of this step still come to this object, and run without a graph.
        self._eager_until = math.inf
        trainer.optimizer.zero_grad(set_to_none=False)
        torch.manual_seed(trainer.dropout_seed)
        return self.trainer.backward(microbatch, self._counts, is_last=True, is_own=True)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
