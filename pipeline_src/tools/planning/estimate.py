"""A plan of a study: the work, time, disk and price of every stage on given hardware, and of all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from pipeline_src.params.machine import Machine, load_machine
from pipeline_src.tools.planning.hardware import CPU, Allocation, Hardware
from pipeline_src.tools.planning.job_estimate import JobEstimate
from pipeline_src.tools.planning.jobs import STAGES, Jobs
from pipeline_src.tools.planning.rates import Correction, expected_seconds, job_seconds

Correct = Callable[[JobEstimate, Allocation], Correction]
COPIES = 2  # in the working tree and in DVC's cache, where the file system cannot share blocks
DOWNLOADS = 2  # at once: what Wikimedia asks for
ENGINE_START, ENGINE_JOB = 8.0, 1.0  # seconds that Snakemake, DVC and Python's start take; assumed


@dataclass(frozen=True)
class StageTotals:
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
        elapsed: from start to end on this hardware, along the critical path.
        critical: the same with a machine for every job.
        work: of all jobs, one after another.
        engine: of that, the engines' own share.
        notes: what was assumed, and how to read the figures.
    """

    name: str
    hardware: Hardware
    rows: tuple[StageTotals, ...]
    elapsed: float
    critical: float
    work: float
    engine: float
    notes: tuple[str, ...]

    def total(self, name: str) -> float | None:
        """Sum of a column; None where no row has it."""
        values = [getattr(row, name) for row in self.rows if getattr(row, name) is not None]
        return sum(values) if values else None

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


def make_plan(
    name: str,
    jobs: Jobs,
    order: Mapping[str, Sequence[str]],
    hardware: Hardware,
    prices: Prices,
    correction: Correct,
) -> Plan:
    """Work out a plan.

    Args:
        name: of the study.
        jobs: its jobs.
        order: every stage of dvc.yaml with those whose outputs it reads; one without an estimate takes no time, and a
            note says so.
        hardware: it runs on.
        prices: of that.
        correction: what measured runs say of a job's expected time.
    """
    machine = load_machine()
    rows = tuple(
        _totals(stage, jobs, *_allocation(stage, hardware, machine), hardware, prices, correction)
        for stage in order
        if stage in STAGES
    )
    count = sum(row.jobs for row in rows)
    slots = 1 if hardware.gpus else hardware.cores  # jobs start beside each other
    engine = ENGINE_START + ENGINE_JOB * count / min(slots, 4)
    return Plan(
        name=name,
        hardware=hardware,
        rows=rows,
        elapsed=critical_path({row.stage: row.elapsed for row in rows}, order) + engine,
        critical=critical_path({row.stage: row.longest for row in rows}, order) + ENGINE_START,
        work=sum(row.work for row in rows) + ENGINE_START + ENGINE_JOB * count,
        engine=engine,
        notes=tuple(_notes(jobs, order, rows, hardware, prices)),
    )


def _totals(
    stage: str,
    jobs: Jobs,
    allocation: Allocation,
    at_once: int,
    hardware: Hardware,
    prices: Prices,
    correction: Correct,
) -> StageTotals:
    """One stage, of whose jobs ``at_once`` run beside each other, each with its ``allocation``."""
    estimates = list(STAGES[stage].jobs(jobs))
    corrected = correction(max(estimates, key=lambda job: expected_seconds(job, allocation)), allocation)
    seconds = [job_seconds(job, allocation, corrected.factor) for job in estimates]
    elapsed = max(max(seconds), sum(seconds) / at_once)
    gpu_hours = sum(seconds) * allocation.gpus / 3600
    if allocation.gpus:
        cost = None if prices.main is None else prices.main * gpu_hours
    else:
        price = prices.main if hardware.name == CPU else prices.cpu
        cost = None if price is None else price * elapsed / 3600
    written = sum(job.written for job in estimates)
    extra = sum(job.extra for job in estimates)
    return StageTotals(
        stage=stage,
        jobs=len(estimates),
        read=sum(job.read for job in estimates),
        written=written,
        tokens=sum(job.tokens for job in estimates),
        flops=sum(job.flops for job in estimates),
        slot_flops=sum(job.slot_flops for job in estimates),
        work=sum(seconds),
        longest=max(seconds),
        elapsed=elapsed,
        disk=COPIES * written + (min(at_once / len(estimates), 1) * extra if stage == "finetune" else extra),
        gpu_hours=gpu_hours,
        cost=cost,
        runs=corrected.runs,
        factor=corrected.factor,
    )


def _allocation(stage: str, hardware: Hardware, machine: Machine) -> tuple[Allocation, int]:
    """What one job of a stage gets, and how many run at once."""
    if stage.startswith("pretrain"):
        return hardware.training(machine.pretrain.threads, together=True, sharding=machine.pretrain.sharding)
    if STAGES[stage].trains:
        return hardware.training(machine.finetune.threads, together=False)
    allocation, at_once = hardware.on_cores()
    return allocation, DOWNLOADS if stage.startswith("download") else at_once


def critical_path(seconds: Mapping[str, float], order: Mapping[str, Sequence[str]]) -> float:
    """Seconds of the longest way through the graph of stages.

    Args:
        seconds: of each stage; one that is not there takes none.
        order: each stage with those that must end before it starts.
    """

    @cache
    def end(stage: str) -> float:
        return seconds.get(stage, 0.0) + max(map(end, order[stage]), default=0.0)

    return max(map(end, order))


def _notes(
    jobs: Jobs, order: Iterable[str], rows: Sequence[StageTotals], hardware: Hardware, prices: Prices
) -> list[str]:
    """What was assumed, and how to read the figures."""
    notes = list(dict.fromkeys(jobs.corpus.notes))
    if unknown_stages := [stage for stage in order if stage not in STAGES]:
        notes.append(f"stages without an estimate, counted as nothing: {', '.join(unknown_stages)}")
    if jobs.unknown_tasks:
        notes.append(f"of unknown size, counted as nothing: {', '.join(jobs.unknown_tasks)}")
    if not jobs.study.finetune.model.startswith("models/pretrained/"):
        notes.append(f"{jobs.study.finetune.model} is counted as if it were as large as this study's own model")
    if hardware.gpus and not any(row.runs for row in rows if row.gpu_hours):
        notes.append("no run on a GPU is known here: its speed is by the roofline model (planning/roofline.py)")
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
