"""After every run of a stage: its job and its time, as a line of measured rates."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_src.common.files import read_json
from pipeline_src.common.parallel import count_workers
from pipeline_src.common.paths import PRETRAIN_LOGS
from pipeline_src.common.progress import log
from pipeline_src.params.machine import load_machine
from pipeline_src.params.study import Study
from pipeline_src.tools.planning.hardware import Allocation
from pipeline_src.tools.planning.job_estimate import JobEstimate
from pipeline_src.tools.planning.jobs import STAGES, Jobs
from pipeline_src.tools.planning.output_sizes import size_on_disk
from pipeline_src.tools.planning.rates import MEASURED, append
from pipeline_src.training.datasheet import datasheet


def record_run(stage: str, item: str, study: Study, seconds: float, path: Path = MEASURED) -> None:
    """Add a run to the measured rates; whatever goes wrong here is logged, and never fails a stage.

    Args:
        stage: as ``python -m pipeline_src`` calls it.
        item: what its matrix runs over, joined by ``-``, or ``all``.
        seconds: it took.
    """
    try:
        job = _job(stage, item, study)
        allocation = _allocation(stage, item)
        if job is not None and allocation is not None:
            append(job, allocation, *_seconds(stage, item, seconds), path)
    except Exception as error:
        log.warning("this run's rate is not kept for `plan`: %s", error)


def _job(stage: str, item: str, study: Study) -> JobEstimate | None:
    """The job with sizes as they lie on disk, all of them this study's, now that the stage has run."""
    jobs = Jobs(study, size_on_disk)
    for name, estimate in STAGES.items():
        if name.startswith(stage):
            for job in estimate.jobs(jobs):
                if (job.stage, job.item) == (stage, item):
                    return job
    return None


def _allocation(stage: str, item: str) -> Allocation | None:
    """What it had to itself; None on a GPU whose peak is not known."""
    machine = load_machine()
    if stage == "pretrain":
        return _of_pretraining(_cost(item), machine.pretrain.threads, machine.pretrain.sharding)
    if stage == "finetune":
        name = _gpu()
        if name is None:
            return Allocation(machine.finetune.threads)
        chip = datasheet(name)
        return Allocation.on(chip, machine.finetune.threads, 1) if chip else None
    return Allocation(count_workers())


def _of_pretraining(cost: Mapping[str, Any], threads: int, sharding: str) -> Allocation:
    processes = cost["processes"]
    chip = datasheet(cost["peak_source"])  # which ends with the GPU's name
    if chip is not None:
        return Allocation.on(chip, threads, processes, sharding)
    if "bfloat16" in cost["peak_source"]:  # of another GPU; a CPU's peak is measured in float32
        return Allocation(threads, processes, cost["peak_flops"] / processes)
    return Allocation(threads * processes)


def _seconds(stage: str, item: str, seconds: float) -> tuple[float, float]:
    """How long it took, and how long torch compiled beside: a pretraining that was stopped, over all its sessions."""
    if stage != "pretrain":
        return seconds, 0.0
    cost = _cost(item)
    compiling = cost.get("compile_seconds", 0.0)
    return max(seconds, cost["seconds"]) - compiling, compiling


def _cost(phase: str) -> Mapping[str, Any]:
    return read_json(PRETRAIN_LOGS / f"{phase}.cost.json")


def _gpu() -> str | None:
    """Name of the GPU that the stage just used, from torch where the stage imported it."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else None
