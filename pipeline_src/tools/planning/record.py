"""After every run of a stage: its amount of work and its time, as a line of measured rates."""

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
from pipeline_src.tools.planning.hardware import Place
from pipeline_src.tools.planning.jobs import STAGES, Jobs
from pipeline_src.tools.planning.rates import MEASURED, append
from pipeline_src.tools.planning.recorded import size_on_disk
from pipeline_src.tools.planning.work import Work
from pipeline_src.training.peak_flops import datasheet


def record_run(stage: str, item: str, study: Study, seconds: float, path: Path = MEASURED) -> None:
    """Add a run to the measured rates; whatever goes wrong here is told, and never costs a stage its success.

    Args:
        stage: as ``python -m pipeline_src`` calls it.
        item: what its matrix runs over, joined by ``-``, or ``all``.
        seconds: it took.
    """
    try:
        work = _work(stage, item, study)
        found = _place_and_seconds(stage, item, study, seconds)
        if work is not None and found is not None:
            append(work, *found, path)
    except Exception as error:
        log.warning("this run's rate is not kept for `plan`: %s", error)


def _work(stage: str, item: str, study: Study) -> Work | None:
    """The job with sizes as they lie on disk, all of them this study's, now that the stage has run."""
    jobs = Jobs(study, size_on_disk)
    for each in STAGES:
        if each.name.startswith(stage):
            for work in each.jobs(jobs):
                if (work.stage, work.item) == (stage, item):
                    return work
    return None


def _place_and_seconds(stage: str, item: str, study: Study, seconds: float) -> tuple[Place, float] | None:
    """Where it ran, and how long in all; None on a GPU whose peak is not known."""
    if stage == "pretrain":
        cost = read_json(PRETRAIN_LOGS / f"{item}.cost.json")
        return _pretraining_place(cost, study), max(seconds, cost["seconds"])  # over all sessions of one stopped
    if stage == "finetune":
        name = _gpu()
        if name is None:
            return Place(load_machine().finetune.threads), seconds
        peak = datasheet(name)
        return (Place(load_machine().finetune.threads, 1, peak), seconds) if peak else None
    return Place(count_workers()), seconds


def _pretraining_place(cost: Mapping[str, Any], study: Study) -> Place:
    processes = cost["processes"]
    if "bfloat16" in cost["peak_source"]:  # a GPU's; a CPU's peak is measured in float32
        return Place(load_machine().pretrain.threads, processes, cost["peak_flops"] / processes)
    return Place(load_machine().pretrain.threads * processes)


def _gpu() -> str | None:
    """Name of the GPU that the stage just used, from torch where the stage imported it."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else None
