"""Measure the compute and throughput of a training, and the peak FLOP/s of its device."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch

from pipeline_src.base.parallel import peak_memory
from pipeline_src.model.flops import Workload

# Part of a GPU's name (`torch.cuda.get_device_name`) -> dense bfloat16 TFLOP/s with float32 accumulation. If several
# keys match, the longest is used. The sources are NVIDIA's and AMD's datasheets, and for RTX cards the whitepapers on
# GA102, Ada and Blackwell. Values given "with sparsity" are halved. GPUs older than Ampere have no bfloat16.
DATASHEET_TFLOPS: dict[str, float] = {
    "B200": 2250,
    "GH200": 989,
    "H200": 989,
    "H200 NVL": 835,
    "H100": 989,
    "H100 NVL": 835,
    "H100 PCIe": 756,
    "H800": 989,
    "H20": 148,
    "A100": 312,
    "A100-SXM4-40GB": 312,
    "A100-PCIE-40GB": 312,
    "A100 80GB PCIe": 312,
    "A800": 312,
    "A40": 149.7,
    "A30": 165,
    "A10": 125,
    "A10G": 70,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "RTX A6000": 154.8,
    "RTX 6000 Ada": 364.2,
    "RTX 5090": 209.5,
    "RTX 4090": 165.2,
    "RTX 3090": 71.2,
    "RTX 3090 Ti": 80,
    "MI300X": 1307.4,
    "MI250X": 383,
}
# A name that contains one of these is a slower variant, or only a part, of the GPU whose key it contains.
OTHER_GPUS = ("Laptop", "Max-Q", "MIG ", "RTX 5090 D")
CPU = torch.device("cpu")
# Number of rows and columns of the matrices whose product is timed.
SMALL_SIZE = 256
CPU_SIZE = 768
GPU_SIZE = 8192
MEASURE_SECONDS = 0.08


class Peak(NamedTuple):
    # The peak of one device in FLOP/s.
    flops: float
    # A description of the source, such as "datasheet, dense bfloat16, NVIDIA H200".
    source: str


def peak_flops(device: torch.device, precision: torch.dtype) -> Peak:
    """Return the peak FLOP/s of ``device``, from its datasheet or from a timed matrix product.

    The product is computed in ``precision``, with the current number of CPU threads. Other work on the machine makes it
    slower. The global random generators are not used.
    """
    size = CPU_SIZE
    name = "machine"
    if device.type == "cuda":
        size = GPU_SIZE
        name = torch.cuda.get_device_name(device)
        teraflops = datasheet_tflops(name)
        if teraflops is not None and precision == torch.bfloat16:
            return Peak(teraflops * 1e12, f"datasheet, dense bfloat16, {name}")
    dtype = str(precision).removeprefix("torch.")
    return Peak(measure_matmul(device, size, precision), f"{dtype} matrix product measured on this {name}")


def cpu_slowdown(precision: torch.dtype) -> float:
    return measure_matmul(CPU, SMALL_SIZE, torch.float32) / measure_matmul(CPU, SMALL_SIZE, precision)


def datasheet_tflops(name: str) -> float | None:
    if any(variant in name for variant in OTHER_GPUS):
        return None
    keys = [known for known in DATASHEET_TFLOPS if re.search(rf"\b{re.escape(known)}\b", name)]
    return DATASHEET_TFLOPS[max(keys, key=len)] if keys else None


def measure_matmul(device: torch.device, size: int, dtype: torch.dtype) -> float:
    generator = torch.Generator(device).manual_seed(0)
    left = torch.rand(size, size, device=device, generator=generator).to(dtype)
    right = left.clone()

    def time_product() -> float:
        start = time.perf_counter()
        torch.mm(left, right)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return time.perf_counter() - start

    time_product()
    best = time_product()
    end = time.perf_counter() + MEASURE_SECONDS
    while time.perf_counter() < end:
        best = min(best, time_product())
    return 2 * size**3 / best


class CountsFlops(Protocol):
    # A BertConfig is one example.
    def training_flops(self, work: Workload) -> int: ...


def normalised_computation(parameters: float, steps: int, tokens_per_batch: int) -> float:
    # parameters x steps x tokens per batch. The published values are 1.408e19 for BERT-base (110 M parameters) and
    # 4.352e19 for BERT-large (340 M), with 1 M steps of "128,000 tokens/batch" (Devlin et al. 2018, appendix A.2). They
    # count all steps at length 512, although 900,000 of them have length 128.
    return parameters * steps * tokens_per_batch


@dataclass
class Compute:
    steps: int = 0
    work: Workload = Workload()
    # Wall time of the training loop, summed over all sessions of a training that was stopped and resumed.
    seconds: float = 0.0
    # ``seconds`` without validation, saving, and the steps in which torch compiled.
    training_seconds: float = 0.0
    # FLOPs that the hardware could do at its peak in ``training_seconds``.
    capacity: float = 0.0
    # Bytes.
    peak_memory: int = 0
    # Number of steps in which torch compiled.
    compile_steps: int = 0
    compile_seconds: float = 0.0
    compile_work: Workload = Workload()

    @property
    def steady_work(self) -> Workload:
        return self.work - self.compile_work


class ComputeTracker:
    """Measure the compute of a phase.

    Time that a killed training spent after its last checkpoint is not counted. Steps in which torch compiled are
    counted separately and excluded from rates.

    Args:
        sizes: object that counts the FLOPs of training, such as a config.
        device: this process's device.
        precision: dtype in which the peak of ``device`` is looked up or measured.
        parameters: number of weights of the model.
        tokens_per_batch: sequences x maximum length of a batch, over all processes.
        processes: number of processes. The hardware's peak is the peak of ``device`` times this.
        peak: peak of ``device``. None: ``peak_flops`` determines it.
    """

    def __init__(
        self,
        sizes: CountsFlops,
        device: torch.device,
        *,
        precision: torch.dtype,
        parameters: int,
        tokens_per_batch: int,
        processes: int = 1,
        peak: Peak | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.sizes = sizes
        self.device = device
        self.processes = processes
        self.parameters = parameters
        self.tokens_per_batch = tokens_per_batch
        self.peak = peak or peak_flops(device, precision)
        self._compute = Compute()
        # Copy of the counts from the last call of throughput().
        self._reported = Compute()
        self._clock = clock
        # Whether time counts only towards ``seconds`` at the moment.
        self._is_aside = False
        self.start()

    def start(self) -> None:
        self._last = self._step_began = self._clock()
        self._compilations = compilations()

    def load_state(self, state: dict[str, Any]) -> None:
        work = Workload(*state["work"])
        compile_work = Workload(*state["compile_work"])
        self._compute = Compute(**{**state, "work": work, "compile_work": compile_work})
        self._reported = replace(self._compute)

    def add(self, work: Workload) -> None:
        compute = self._compute
        compute.steps += 1
        compute.work += work
        now = self._clock()
        seconds = now - self._step_began
        self._step_began = now
        if self._compilations != compilations():
            self._compilations = compilations()
            self._tick()
            compute.training_seconds -= seconds
            compute.capacity -= seconds * self.peak.flops * self.processes
            compute.compile_steps += 1
            compute.compile_seconds += seconds
            compute.compile_work += work

    @contextmanager
    def aside(self) -> Iterator[None]:
        # Time under this context manager (validation, saving) adds to ``seconds`` but not to ``training_seconds``.
        self._tick()
        self._is_aside = True
        try:
            yield
        finally:
            self._tick()
            self._is_aside = False
            self._step_began = self._last
            self._compilations = compilations()

    def throughput(self) -> dict[str, float]:
        """Return ``tokens_per_second`` and, on a GPU, ``mfu`` since the last call.

        The result is empty if torch compiled in every step since then. A CPU gets no ``mfu``, since its measured peak
        changes with the machine's load.
        """
        now = replace(self._tick())
        before = self._reported
        self._reported = now
        work = now.steady_work - before.steady_work
        if not work.tokens:
            return {}
        rates = {"tokens_per_second": work.tokens / (now.training_seconds - before.training_seconds)}
        if self.device.type != "cpu":
            rates["mfu"] = self.sizes.training_flops(work) / (now.capacity - before.capacity)
        return rates

    def deterministic(self) -> dict[str, Any]:
        compute = self._compute
        return {
            "steps": compute.steps,
            "sequences": compute.work.sequences,
            "tokens": compute.work.tokens,
            "predictions": compute.work.predictions,
            "flops": self.sizes.training_flops(compute.work),
            "tokens_per_batch": self.tokens_per_batch,
            "normalised_computation": normalised_computation(self.parameters, compute.steps, self.tokens_per_batch),
        }

    def measured(self) -> dict[str, Any]:
        compute = self._tick()
        # If nothing was trained, the rates are 0.
        trained = compute.training_seconds or float("inf")
        return {
            "flops": self.sizes.training_flops(compute.work),
            "seconds": compute.seconds,
            "training_seconds": compute.training_seconds,
            "compile_seconds": compute.compile_seconds,
            "compile_steps": compute.compile_steps,
            "tokens_per_second": compute.steady_work.tokens / trained,
            "mfu": self.sizes.training_flops(compute.steady_work) / (compute.capacity or float("inf")),
            "peak_memory": compute.peak_memory,
            "processes": self.processes,
            "peak_flops": self.peak.flops * self.processes,
            "peak_source": self.peak.source,
        }

    def state(self) -> dict[str, Any]:
        # Counts are deterministic, but times differ from run to run.
        return asdict(self._tick())

    def _tick(self) -> Compute:
        now = self._clock()
        passed = now - self._last
        self._last = now
        compute = self._compute
        compute.seconds += passed
        if not self._is_aside:
            compute.training_seconds += passed
            compute.capacity += passed * self.peak.flops * self.processes
        # On a GPU, this is the peak memory of all tensors. On a CPU, it is the peak memory of the process.
        is_gpu = self.device.type == "cuda"
        held = torch.cuda.max_memory_allocated(self.device) if is_gpu else peak_memory()
        compute.peak_memory = max(compute.peak_memory, held)
        return compute


def compilations() -> int:
    # torch imports this module when it first compiles something.
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters["frames"]["total"] if dynamo else 0
