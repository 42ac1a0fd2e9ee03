"""Disk, memory, cores, GPUs: what this machine has, beside what the study in params.yaml needs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.parallel import usable_cores
from pipeline_src.tools.doctor import needs
from pipeline_src.tools.doctor.finding import OK, PROBLEM, WARNING, Finding

MEMINFO = Path("/proc/meminfo")
WORTH = 1.3  # times float32's rate of products that bfloat16's must have to shorten a training
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def disk(study: Any | None) -> Finding:
    """Free space here, beside what the study writes."""
    free, wanted = shutil.disk_usage(".").free, needs.disk(study) if study else 0
    found = f"{_gb(free)} free" + (f"; the study needs about {_gb(wanted)} in all" if study else "")
    if free < wanted / 4:
        return Finding(
            "disk",
            PROBLEM,
            found,
            "free some, or clone onto a larger disk; `python -m pipeline_src plan` has it by stage",
        )
    if free < wanted:
        return Finding("disk", WARNING, found, "watch it: what earlier runs left here counts towards the need")
    return Finding("disk", OK, found)


def memory(study: Any | None) -> Finding:
    """Memory that processes here may use, beside what the largest stage takes."""
    there, wanted = usable_memory(), needs.memory(study) if study else 0
    found = f"{_gb(there)}" + (f"; the study needs about {_gb(wanted)}" if study else "")
    if there < wanted:
        remedy = "set recompute: true and fewer max_tokens in machine.yaml, or train on a larger machine"
        return Finding("memory", WARNING, found, remedy)
    return Finding("memory", OK, found)


def cores(study: Any | None) -> Finding:
    """CPU cores this process may use."""
    there, wanted = usable_cores(), _machine().pretrain.threads if study else 1
    if there < wanted:
        remedy = f"set pretrain.threads: {there} in machine.yaml; more threads than cores slow each other down"
        return Finding("cores", WARNING, f"{there}; pretrain.threads is {wanted}", remedy)
    return Finding("cores", OK, str(there))


def gpus(study: Any | None) -> Finding:
    """GPUs that torch can use."""
    try:
        import torch
    except ImportError:
        return Finding("gpus", WARNING, "not known: torch cannot be imported", "see the line `torch`")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return Finding("gpus", OK, f"{len(names)}: {', '.join(sorted(set(names)))}")
    if shutil.which("nvidia-smi"):
        remedy = "install a CUDA build of torch for this python3, then make study TORCH=installed"
        return Finding("gpus", WARNING, "there is a driver, but this torch cannot use it", remedy)
    if study and needs.parameters(study) > needs.LARGE:
        size = f"{needs.parameters(study) / 1e6:.0f} M parameters"
        return Finding("gpus", WARNING, f"none, for a model of {size}", "pretrain on GPUs: docs/your-cluster.md")
    return Finding("gpus", OK, "none; training runs on the CPU")


def precision(study: Any | None) -> Finding:
    """Whether this CPU multiplies bfloat16 faster than float32, which training may then use."""
    try:
        import torch
    except ImportError:
        return Finding("precision", WARNING, "not known: torch cannot be imported", "see the line `torch`")
    if torch.cuda.is_available():
        return Finding("precision", OK, "that of the GPU: see `python -m pipeline_src doctor --gpu`")
    exact, narrow = product_rates()
    found = f"bfloat16 products take {exact / narrow:.1f} times as long as float32 ones"
    if narrow >= WORTH * exact:
        found = f"bfloat16 products are {narrow / exact:.1f} times as fast as float32 ones: `precision: bfloat16` in "
        return Finding("precision", OK, f"{found}machine.yaml trains faster")
    if _machine().precision == "bfloat16":
        return Finding("precision", WARNING, found, "set precision: auto in machine.yaml")
    return Finding("precision", OK, found)


def product_rates() -> tuple[float, float]:
    """FLOP/s of products of float32 and of bfloat16 on this CPU."""
    import torch

    from pipeline_src.training.peak_flops import peak_flops

    exact, narrow = (peak_flops(torch.device("cpu"), kind).flops for kind in (torch.float32, torch.bfloat16))
    return exact, narrow


def usable_memory() -> float:
    """Bytes: what the machine has, or what a container is allowed of it."""
    lines = MEMINFO.read_text(encoding="ascii").splitlines() if MEMINFO.exists() else []
    total = next((1024 * float(line.split()[1]) for line in lines if line.startswith("MemTotal:")), float("inf"))
    for file in LIMITS:
        try:
            total = min(total, float(file.read_text(encoding="ascii")))
        except (OSError, ValueError):  # not limited: there is no such file, or it says "max"
            continue
    return total


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"


def _machine() -> Any:
    """What machine.yaml says; where that cannot be read, its own check says so."""
    from pipeline_src.params.machine import Machine, load_machine

    try:
        return load_machine()
    except PipelineError:
        return Machine()
