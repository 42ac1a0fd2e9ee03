"""Measuring a run while it trains: what it has taken, how fast it goes, and what that is of the machine's best."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from pipeline_src.common.parallel import peak_memory
from pipeline_src.models.flops import Workload
from pipeline_src.training.compute import Compute, Sizes, normalised_computation
from pipeline_src.training.energy import EnergyCounter
from pipeline_src.training.peak_flops import peak_flops


class ComputeTracker:
    """Counts one phase of training, from its first step or from where a checkpoint left it.

    Time runs from the moment it is made. What a killed run spent after its last checkpoint is not in the sum. A step in
    which torch compiled is counted apart, and enters no rate.

    Args:
        sizes: of the encoder.
        device: what this process trains on; its peak in ``precision`` counts ``processes`` times.
        earlier: :meth:`state` of the checkpoint that training goes on from; None at a phase's first step.
        precision: of the model's products.
        parameters: of the model.
        tokens_per_batch: token slots of a batch over all processes, sequences x longest length.
        processes: how many train together. Counts handed to :meth:`add` are of all of them; energy and peak memory are
            of this one.
    """

    def __init__(
        self,
        sizes: Sizes,
        device: torch.device,
        earlier: dict[str, Any] | None = None,
        *,
        precision: torch.dtype,
        parameters: int,
        tokens_per_batch: int,
        processes: int = 1,
    ) -> None:
        self.sizes, self.device, self.processes = sizes, device, processes
        self.parameters, self.tokens_per_batch = parameters, tokens_per_batch
        self.peak = peak_flops(device, precision)
        self._compute = Compute.from_dict(earlier) if earlier else Compute()
        self._energy = EnergyCounter(device)
        self._joules_before = self._compute.joules
        self._last = self._step_began = time.perf_counter()
        self._compilations = compilations()
        self._shown = self._compute  # at the last call of rates()

    def add(self, work: Workload) -> None:
        """Count one step, over all processes."""
        self._compute = self._compute.plus_step(work)
        began, self._step_began = self._step_began, time.perf_counter()
        before, self._compilations = self._compilations, compilations()
        if self._compilations != before:
            self._set_apart(self._step_began - began, work)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Time spent within is of the run but not of training: measuring validation text, saving."""
        self._tick()
        try:
            yield
        finally:
            now = time.perf_counter()
            self._compute = replace(self._compute, seconds=self._compute.seconds + now - self._last)
            self._last = self._step_began = now
            self._compilations = compilations()

    def rates(self) -> dict[str, float]:
        """``tokens_per_second`` and ``mfu`` since the last call, or since the start; nothing if all steps compiled."""
        self._tick()
        before, now = self._shown, self._compute
        self._shown = now
        tokens, flops = (now.steady_tokens - before.steady_tokens), now.steady_flops(self.sizes)
        if not tokens:
            return {}
        return {
            "tokens_per_second": tokens / (now.training_seconds - before.training_seconds),
            "mfu": (flops - before.steady_flops(self.sizes)) / (now.capacity - before.capacity),
        }

    def deterministic(self) -> dict[str, Any]:
        """What depends on parameters and data alone, for a tracked output."""
        compute = self._compute
        return {
            "steps": compute.steps,
            "sequences": compute.work.sequences,
            "tokens": compute.work.tokens,
            "predictions": compute.work.predictions,
            "flops": compute.flops(self.sizes),
            "tokens_per_batch": self.tokens_per_batch,
            "normalised_computation": normalised_computation(self.parameters, compute.steps, self.tokens_per_batch),
        }

    def measured(self) -> dict[str, Any]:
        """What depends on the machine, for ``logs/``; ``flops`` says of which run."""
        compute = self._tick()
        trained = compute.training_seconds or float("inf")  # nothing trained, no rate
        return {
            "flops": compute.flops(self.sizes),
            "seconds": compute.seconds,
            "training_seconds": compute.training_seconds,
            "compile_seconds": compute.compile_seconds,
            "compile_steps": compute.compile_steps,
            "tokens_per_second": compute.steady_tokens / trained,
            "mfu": compute.steady_flops(self.sizes) / (compute.capacity or float("inf")),
            "joules": compute.joules,
            "peak_memory": compute.peak_memory,
            "processes": self.processes,
            "peak_flops": self.peak.flops * self.processes,
            "peak_source": self.peak.source,
        }

    def state(self) -> dict[str, Any]:
        """For the checkpoint; its counts are exact, its times differ from run to run."""
        return self._tick().as_dict()

    def _set_apart(self, seconds: float, work: Workload) -> None:
        """Take the last step out of what the rates are of."""
        compute = self._tick()
        self._compute = replace(
            compute,
            training_seconds=compute.training_seconds - seconds,
            capacity=compute.capacity - seconds * self.peak.flops * self.processes,
            compile_steps=compute.compile_steps + 1,
            compile_seconds=compute.compile_seconds + seconds,
            compile_work=compute.compile_work + work,
        )

    def _tick(self) -> Compute:
        """Bring times, energy and memory up to now."""
        now = time.perf_counter()
        passed = now - self._last
        self._last = now
        compute, joules = self._compute, self._energy.joules()
        self._compute = replace(
            compute,
            seconds=compute.seconds + passed,
            training_seconds=compute.training_seconds + passed,
            capacity=compute.capacity + passed * self.peak.flops * self.processes,
            joules=None if joules is None or self._joules_before is None else self._joules_before + joules,
            peak_memory=max(compute.peak_memory, _peak_memory(self.device)),
        )
        return self._compute


def compilations() -> int:
    """How many functions torch.compile has compiled in this process so far, those that it compiled again included."""
    dynamo = sys.modules.get("torch._dynamo.utils")  # not there until something is compiled
    return dynamo.counters["frames"]["total"] if dynamo else 0


def _peak_memory(device: torch.device) -> int:
    """Bytes: on a GPU what tensors took there, else what the process took."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_memory()
