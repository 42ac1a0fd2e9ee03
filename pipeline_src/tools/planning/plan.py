"""Tool ``plan``: what the study in force would take, stage by stage, before anything runs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.machine import load_machine
from pipeline_src.params.study import Study, check_study, load_study
from pipeline_src.tools.planning.hardware import CHOICES, CPU, Hardware, Place
from pipeline_src.tools.planning.jobs import STAGES, Jobs, StagePlan
from pipeline_src.tools.planning.rates import MEASURED, Correction, corrections, expected_seconds
from pipeline_src.tools.planning.recorded import recorded_sizes
from pipeline_src.tools.planning.show import table
from pipeline_src.tools.planning.work import Work
from pipeline_src.tools.preset import PARAMS, presets

COPIES = 2  # in the working tree and in DVC's cache, where the file system cannot share blocks
DOWNLOADS = 2  # at once: what Wikimedia asks for
ENGINE_START, ENGINE_JOB = 8.0, 1.0  # seconds that Snakemake, DVC and Python's start take; assumed


@dataclass(frozen=True)
class Row:
    """One stage's share of a plan; times in seconds, sizes in bytes.

    Attributes:
        stage: as dvc.yaml calls it.
        jobs: how many.
        read, written: by all of them together.
        tokens: real ones that go through.
        flops: of them; ``slot_flops`` as if every sequence were full.
        work: of all jobs, one after another.
        longest: of the longest job.
        elapsed: with as many jobs at once as the hardware takes.
        disk: output, its copy in DVC's cache, and what lies beside while it runs.
        gpu_hours: held, all GPUs of a job together.
        cost: at the given price; None without one.
        runs: that corrected the expected time; 0 leaves the project's own rates.
        factor: by which they corrected it.
    """

    stage: str
    jobs: int
    read: float
    written: float
    tokens: float
    flops: float
    slot_flops: float
    work: float
    longest: float
    elapsed: float
    disk: float
    gpu_hours: float
    cost: float | None
    runs: int
    factor: float


@dataclass(frozen=True)
class Prices:
    """Per hour: of one GPU, or of a machine without; and of the machine while no GPU is at work."""

    main: float | None
    cpu: float | None


@dataclass(frozen=True)
class Plan:
    """A whole study.

    Attributes:
        name: of the study.
        hardware: it runs on.
        rows: its stages in order.
        elapsed: from start to end on this hardware, along the longest way through the graph.
        critical: the same with a machine for every job.
        work: of all jobs, one after another.
        engine: of that, the engines' own share.
        notes: what was assumed, and how to read the figures.
    """

    name: str
    hardware: Hardware
    rows: tuple[Row, ...]
    elapsed: float
    critical: float
    work: float
    engine: float
    notes: tuple[str, ...]

    def total(self, name: str) -> float | None:
        """Sum of a column; None where no row has it."""
        found = [getattr(row, name) for row in self.rows if getattr(row, name) is not None]
        return sum(found) if found else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        sums = ("jobs", "read", "written", "tokens", "flops", "slot_flops", "disk", "gpu_hours", "cost")
        totals = {name: self.total(name) for name in sums}
        times = {"elapsed": self.elapsed, "critical": self.critical, "work": self.work, "engine": self.engine}
        return {
            "study": self.name,
            "hardware": asdict(self.hardware),
            "stages": [asdict(row) for row in self.rows],
            "totals": totals | times,
            "notes": list(self.notes),
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--preset", metavar="NAME", help="plan this study instead of params.yaml, which stays")
    parser.add_argument("--hardware", choices=CHOICES, default=CPU, help="what trains (default: cpu)")
    parser.add_argument("--gpus", type=int, help="GPUs in all (default: 1, none for cpu)")
    parser.add_argument("--cores", type=int, default=cores, help=f"CPU cores in all (default: this machine's, {cores})")
    parser.add_argument("--price", type=float, help="of a GPU for an hour; for cpu, of the machine for an hour")
    parser.add_argument("--cpu-price", type=float, help="beside GPUs: of the machine for an hour of stages without one")
    parser.add_argument("--whole-dump", action="store_true", help="count every part of the dump, listed or not")
    parser.add_argument("--defaults", action="store_true", help=f"leave {MEASURED} out: the project's own rates alone")
    parser.add_argument("--json", action="store_true", help="all figures, in bytes and seconds")


def main(arguments: argparse.Namespace) -> None:
    """Print the plan.

    Raises:
        PipelineError: no such preset or study, or hardware that cannot be.
    """
    name, raw, study = _study(arguments.preset)
    hardware = Hardware.of(arguments.hardware, arguments.cores, arguments.gpus)
    measured = Path(os.devnull) if arguments.defaults else MEASURED
    jobs = Jobs(study, recorded_sizes(raw).get, arguments.whole_dump)
    found = make_plan(name, jobs, hardware, Prices(arguments.price, arguments.cpu_price), corrections(measured))
    print(json.dumps(found.as_dict(), indent=2, allow_nan=False) if arguments.json else table(found))


def make_plan(
    name: str,
    jobs: Jobs,
    hardware: Hardware,
    prices: Prices,
    correction: Callable[[Work, Place], Correction],
) -> Plan:
    """Work out a plan; all inputs are given, nothing is read but the manifests that ``jobs`` looks at."""
    rows = tuple(_row(stage, jobs, hardware, prices, correction) for stage in STAGES)
    count = sum(row.jobs for row in rows)
    slots = 1 if hardware.gpus else hardware.cores  # jobs start beside each other
    engine = ENGINE_START + ENGINE_JOB * count / min(slots, 4)
    return Plan(
        name=name,
        hardware=hardware,
        rows=rows,
        elapsed=_longest_way({row.stage: row.elapsed for row in rows}) + engine,
        critical=_longest_way({row.stage: row.longest for row in rows}) + ENGINE_START,
        work=sum(row.work for row in rows) + ENGINE_START + ENGINE_JOB * count,
        engine=engine,
        notes=tuple(_notes(jobs, rows, hardware, prices)),
    )


def _row(
    stage: StagePlan,
    jobs: Jobs,
    hardware: Hardware,
    prices: Prices,
    correction: Callable[[Work, Place], Correction],
) -> Row:
    works = list(stage.jobs(jobs))
    place, slots = _place(stage, hardware)
    corrected = correction(max(works, key=lambda work: expected_seconds(work, place)), place)
    seconds = [corrected.factor * expected_seconds(work, place) for work in works]
    elapsed = max(max(seconds), sum(seconds) / slots)
    gpu_hours = sum(seconds) * place.gpus / 3600
    if place.gpus:
        cost = None if prices.main is None else prices.main * gpu_hours
    else:
        price = prices.main if hardware.name == CPU else prices.cpu
        cost = None if price is None else price * elapsed / 3600
    written = sum(work.written for work in works)
    extra = sum(work.extra for work in works)
    return Row(
        stage=stage.name,
        jobs=len(works),
        read=sum(work.read for work in works),
        written=written,
        tokens=sum(work.tokens for work in works),
        flops=sum(work.flops for work in works),
        slot_flops=sum(work.slot_flops for work in works),
        work=sum(seconds),
        longest=max(seconds),
        elapsed=elapsed,
        disk=COPIES * written + (min(slots / len(works), 1) * extra if stage.name == "finetune" else extra),
        gpu_hours=gpu_hours,
        cost=cost,
        runs=corrected.runs,
        factor=corrected.factor,
    )


def _place(stage: StagePlan, hardware: Hardware) -> tuple[Place, int]:
    """What one job of a stage gets, and how many run at once."""
    if stage.name.startswith("pretrain"):
        return hardware.training(load_machine().pretrain.threads, together=True)
    if stage.trains:
        return hardware.training(load_machine().finetune.threads, together=False)
    place, slots = hardware.on_cores()
    return place, DOWNLOADS if stage.name.startswith("download") else slots


def _longest_way(seconds: Mapping[str, float]) -> float:
    """Through the graph of stages, each taking as long as it says."""
    ends: dict[str, float] = {}
    for stage in STAGES:
        ends[stage.name] = seconds[stage.name] + max((ends[before] for before in stage.after), default=0.0)
    return max(ends.values())


def _study(preset: str | None) -> tuple[str, Mapping[str, Any], Study]:
    """Name, values as they are written, and the checked study: of params.yaml, or of a preset."""
    if preset is None:
        study = load_study(PARAMS)
        return str(PARAMS), yaml.safe_load(PARAMS.read_text(encoding="utf-8")), study
    known = presets()
    if preset not in known:
        remedy = "`python -m pipeline_src preset --list` shows all"
        raise PipelineError("no such preset", preset, where="--preset", remedy=remedy)
    raw = yaml.safe_load(known[preset])
    return preset, raw, check_study(raw, f"{preset}.yaml")


def _notes(jobs: Jobs, rows: tuple[Row, ...], hardware: Hardware, prices: Prices) -> list[str]:
    """What was assumed, and how to read the figures."""
    notes = list(dict.fromkeys(jobs.corpus.notes))
    if jobs.unknown_tasks:
        notes.append(f"of unknown size, counted as nothing: {', '.join(jobs.unknown_tasks)}")
    if not jobs.study.finetune.model.startswith("models/pretrained/"):
        notes.append(f"{jobs.study.finetune.model} is counted as if it were as large as this study's own model")
    if hardware.gpus and not any(row.runs for row in rows if row.gpu_hours):
        notes.append("no run on a GPU is known here: its share of the peak is assumed (planning/rates.py)")
    if hardware.gpus and prices.main is not None and prices.cpu is None:
        notes.append("stages without a GPU are not priced; --cpu-price does")
    tokens = sum(row.tokens for row in rows if row.stage.startswith("pretrain"))
    pretraining = [row for row in rows if row.stage.startswith("pretrain")]
    real, slots = (sum(getattr(row, name) for row in pretraining) for name in ("flops", "slot_flops"))
    notes.append(
        f"pretraining: {real:.2g} FLOPs of {tokens:.3g} real tokens; {slots:.2g} if every sequence were full, the way "
        "papers count"
    )
    return notes
