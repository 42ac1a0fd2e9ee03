"""What trains here: a GPU, or the CPU where there is none; and the study whose sizes it is tried with."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pipeline_src.models.bert import BertConfig
from pipeline_src.params.machine import Machine
from pipeline_src.params.study import Study
from pipeline_src.tools.doctor.finding import OK, WARNING, Finding
from pipeline_src.tools.planning.hardware import Allocation
from pipeline_src.tools.planning.jobs import Jobs
from pipeline_src.tools.planning.rates import gpu_step
from pipeline_src.tools.planning.roofline import StepTime, Work
from pipeline_src.training.datasheet import Chip, datasheet
from pipeline_src.training.precision import wanted_precision

ROWS_CPU = 1024  # tokens that a CPU is tried with, where a GPU gets max_tokens of machine.yaml
ASKED = "driver_version,power.limit,clocks.max.sm,temperature.gpu,utilization.gpu,pstate"


@dataclass(frozen=True)
class Accelerator:
    """What is tried, and with what.

    Attributes:
        device: the first GPU, or the CPU.
        chip: its datasheet; None where it has none, and nothing is expected of it.
        study, machine: whose sizes the kernels are given.
    """

    device: torch.device
    chip: Chip | None
    study: Study
    machine: Machine

    @classmethod
    def here(cls, study: Study, machine: Machine) -> Accelerator:
        """Of this process: the GPU that it would train on."""
        if not torch.cuda.is_available():
            return cls(torch.device("cpu"), None, study, machine)
        device = torch.device("cuda", torch.cuda.current_device())
        return cls(device, datasheet(torch.cuda.get_device_name(device)), study, machine)

    @property
    def on_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.device.type == "cuda"

    @property
    def dtype(self) -> torch.dtype:
        """What products are of in training here."""
        return wanted_precision(self.machine.precision, self.device)

    @property
    def rows(self) -> int:
        """Tokens at once."""
        return self.machine.pretrain.max_tokens if self.on_gpu else ROWS_CPU

    @property
    def config(self) -> BertConfig:
        """The study's encoder."""
        return BertConfig.from_params(self.study.model, self.study.vocabulary.entries)

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of a sequence in both phases."""
        return self.study.examples.lengths.short, self.study.examples.lengths.long

    def seconds_of(self, work: Callable[[], object], lasting: float = 0.5) -> float:
        """Seconds of one call at best, tried for about as long as ``lasting`` after one call to warm up."""
        calls = 5 if self.on_gpu else 1  # launched in a row, so that a GPU does not wait for each

        def time_calls() -> float:
            start = time.perf_counter()
            for _ in range(calls):
                work()
            self.wait()
            return (time.perf_counter() - start) / calls

        work()
        self.wait()
        end, best = time.perf_counter() + (lasting if self.on_gpu else lasting / 5), float("inf")
        while time.perf_counter() < end or best == float("inf"):
            best = min(best, time_calls())
        return best

    def wait(self) -> None:
        """Until the device has done all that it was given."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def expected_step(self, gpus: int) -> tuple[Work, StepTime] | None:
        """One GPU's work in a step of the first phase, and the time that the roofline model gives it."""
        if self.chip is None:
            return None
        (job,) = Jobs(self.study, lambda _: None).pretrain("short")
        if not job.steps:
            return None
        allocation = Allocation.on(self.chip, 1, gpus, self.machine.pretrain.sharding)
        return gpu_step(job, allocation, self.machine.pretrain.max_tokens)


def versions(_: Accelerator) -> Finding:
    """What computes: torch and what it brought along."""
    parts = [f"torch {torch.__version__}"]
    if torch.version.cuda:
        parts += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
        if torch.distributed.is_nccl_available():
            parts.append(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    parts += [f"Python {platform.python_version()}", f"{platform.system()} {platform.release()}"]
    return Finding("versions", OK, ", ".join(parts))


def devices(accelerator: Accelerator) -> Finding:
    """The GPUs by name, with what their driver says of them; or why the CPU is tried in their place."""
    if not accelerator.on_gpu:
        reason = "no driver answers" if torch.version.cuda else "this torch is built without CUDA"
        threads = torch.get_num_threads()
        found = f"no GPU: {reason}. The figures below are of the CPU, and nothing is expected of them: "
        found += f"{_processor()}, {threads} threads"
        remedy = "on a cluster, run it in a job: srun --gres gpu:1 python -m pipeline_src doctor --gpu"
        if not torch.version.cuda:
            remedy = f"install into an environment whose torch is built for CUDA (make study TORCH=installed); {remedy}"
        return Finding("device", WARNING, found, remedy)
    lines = []
    for number in range(torch.cuda.device_count()):
        known: Any = torch.cuda.get_device_properties(number)
        lines.append(f"{known.name}, {known.total_memory / 2**30:.0f} GiB, sm_{known.major}{known.minor}")
    counted = [f"{lines.count(line)} x {line}" for line in dict.fromkeys(lines)]
    found = "; ".join([*counted, *_driver()])
    if accelerator.chip is None:
        remedy = "add its datasheet to pipeline_src/training/datasheet.py; until then nothing is expected of it"
        return Finding("device", WARNING, f"{found}; not in the list of datasheets", remedy)
    return Finding("device", OK, found)


def _driver() -> list[str]:
    """What nvidia-smi says of the first GPU, by name; nothing where it does not answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        asked = subprocess.run(
            ["nvidia-smi", f"--query-gpu={ASKED}", "--format=csv,noheader"], capture_output=True, text=True, timeout=5,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    values = asked.stdout.strip().partition("\n")[0].split(", ")
    names = [name.replace("_", " ").replace(".", " ") for name in ASKED.split(",")]
    return [f"{name} {value}" for name, value in zip(names, values, strict=False)]


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    named = re.search(r"model name\s*: (.*)", cpuinfo.read_text(encoding="utf-8")) if cpuinfo.exists() else None
    return named[1] if named else platform.machine()
