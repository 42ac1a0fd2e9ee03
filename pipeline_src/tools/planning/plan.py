"""Tool ``plan``: sizes, FLOPs, time, disk and cost of the study, stage by stage, before anything runs.

A job takes its stage's start and its amount of work at a rate: the project's own rate, multiplied by the median of how
much longer or shorter the last runs here took. Every run adds a line to ``logs/rates.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.parallel import count_workers, usable_cores
from pipeline_src.common.paths import LOGS, PRETRAIN_LOGS
from pipeline_src.common.progress import log
from pipeline_src.config.machine import load_machine
from pipeline_src.config.study import Study, check_study, load_study
from pipeline_src.tools.planning.jobs import STAGES, Job, Jobs
from pipeline_src.tools.planning.sizes import recorded_sizes, size_on_disk
from pipeline_src.tools.preset import PARAMS, preset_text

DVC_YAML, MEASURED = Path("dvc.yaml"), LOGS / "rates.jsonl"
LAST = 20  # runs of a stage that count
MOSTLY_WORK = 3  # a run corrects jobs of any length if it took at least so many times its start,
ABOUT_AS_SHORT = 10  # else only jobs at most so many times as long
COPIES = 2  # in the working tree and in DVC's cache
DOWNLOADS, CORES_OF_A_JOB = 2, 4  # at once: Wikimedia's limit; as in workflow/Snakefile
# Stage: seconds before the work begins, and units per second and core (of downloads per connection, assumed; of
# training by width below). Measured: docs/measurements.md; bytes but for tokens of build_examples and word vectors.
RATES = {
    "download": (2, 5e6),
    "start_model": (3, 5e6),
    "download_tasks": (3, 5e6),
    "clean": (2, 2.7e6),  # of a dump's .bz2; of books as many as take as long
    "train_tokenizer": (1, 11.6e6),
    "tokenize": (1, 8.9e6),
    "build_examples": (1, 8.5e6),  # tokens x passes
    "train_word_vectors": (2, 1.0e6),  # tokens x epochs
    "corpus_statistics": (2, 2.0e6),
    "pretrain": (6, 0),
    "finetune": (5, 0),
    "interpret": (4, 0),
    "evaluate": (3, 1.0e4),  # predicted examples
    "report": (2, 1e9),
}
ONE_PROCESS = ("train_word_vectors", "interpret", "evaluate", "report")
THREAD_FLOPS = {128: 45e9, 256: 60e9, 768: 110e9}  # FLOP/s of one thread that trains, by hidden size
THREADS_TOGETHER = 0.7  # n threads reach n^0.7 times as much
TERAFLOPS = 100  # of a GPU without --teraflops or runs: a third of an A100's bfloat16 peak
WIDTH, COLUMNS = 100, (18, 4, 8, 7, 7, 8, 8, 9, 8)
HEADS = ("stage", "jobs", "output", "tokens", "FLOPs", "time", "disk", "cost", "rates")


@dataclass(frozen=True)
class Devices:
    """Devices of a job: CPU cores, or GPUs with a throughput in 10^12 FLOP/s."""

    cores: int
    gpus: int = 0
    teraflops: float = TERAFLOPS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    cores = usable_cores()
    parser.add_argument("--preset", metavar="NAME", help="plan this study instead of params.yaml, which stays")
    parser.add_argument("--cores", type=int, default=cores, help=f"CPU cores in all (default: this machine's, {cores})")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that train (default: 0, the CPU trains)")
    parser.add_argument("--teraflops", type=float, help="10^12 FLOP/s that training reaches on one GPU (default: as "
                        f"runs on a GPU here did, else {TERAFLOPS})")  # fmt: skip
    parser.add_argument("--price", type=float, help="of a GPU for an hour; without GPUs, of the machine for an hour")
    parser.add_argument("--whole-dump", action="store_true", help="count every part of the dump, listed or not")
    parser.add_argument("--json", action="store_true", help="all figures, in bytes and seconds")


def main(arguments: argparse.Namespace) -> None:
    """Print the plan."""
    devices = Devices(arguments.cores, arguments.gpus, arguments.teraflops or TERAFLOPS)
    for option, value, least in (("--cores", devices.cores, 1), ("--gpus", devices.gpus, 0)):
        if value < least:
            raise PipelineError("nothing to run on", value, where=option, hint=f"{least} or more")
    if not 0 < devices.teraflops < float("inf"):
        raise PipelineError("not a rate", devices.teraflops, where="--teraflops", hint="give a number above 0")
    if arguments.price is not None and not 0 <= arguments.price < float("inf"):
        raise PipelineError("not a price", arguments.price, where="--price", hint="give a number of 0 or more")
    if arguments.preset is None:
        study, raw = load_study(PARAMS), yaml.safe_load(PARAMS.read_text(encoding="utf-8"))
    else:
        raw = yaml.safe_load(preset_text(arguments.preset))
        study = check_study(raw, f"{arguments.preset}.yaml")
    jobs = Jobs(study, recorded_sizes(raw).get, arguments.whole_dump)
    order = stages_of(DVC_YAML)
    # a rate that the user gives is not corrected
    correct = corrections(MEASURED, on_gpu=arguments.teraflops is None)
    rows = [_row(stage, jobs, devices, arguments.price, correct) for stage in order if stage in STAGES]
    totals = {name: sum(row[name] for row in rows) for name in ("jobs", "written", "flops", "seconds", "disk")}
    costs = [row["cost"] for row in rows if row["cost"] is not None]
    totals["cost"] = sum(costs) if costs else None
    plan = {"study": arguments.preset or str(PARAMS), "devices": asdict(devices), "stages": rows, "totals": totals}
    plan["notes"] = _notes(jobs, order, rows, devices)
    print(json.dumps(plan, indent=2, allow_nan=False) if arguments.json else _table(plan))


def stages_of(path: Path) -> list[str]:
    """Return the names of dvc.yaml's stages in order."""
    try:
        return [name for name in yaml.safe_load(path.read_text(encoding="utf-8"))["stages"] if name != "code"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        hint = "run from the project's root, where dvc.yaml lists the stages"
        raise PipelineError("the stages cannot be read", path, where=error, hint=hint) from None


def expected_seconds(job: Job, devices: Devices) -> float:
    """Return a job's seconds at the project's own rates."""
    start, rate = RATES[job.stage]
    cores = 1 if job.stage in ONE_PROCESS or job.stage.startswith("download") else devices.cores
    if devices.gpus:
        return start + job.flops / (devices.gpus * devices.teraflops * 1e12)
    if job.flops or not rate:
        import numpy as np  # every stage imports this module to record its rate, and few need numpy

        thread = float(np.interp(job.width, list(THREAD_FLOPS), list(THREAD_FLOPS.values())))
        return start + job.flops / (thread * cores**THREADS_TOGETHER)
    return start + job.units / (rate * cores)


def _row(stage: str, jobs: Jobs, devices: Devices, price: float | None, correct: Correct) -> dict[str, Any]:
    """One stage of the plan; ``seconds`` with as many jobs at once as the machine takes."""
    estimates = list(STAGES[stage](jobs))
    each, at_once = _devices_of(stage, devices)
    factor, runs = correct(max(estimates, key=lambda job: expected_seconds(job, each)), each)
    times = [factor * expected_seconds(job, each) for job in estimates]
    seconds = max(max(times), sum(times) / at_once)
    written, extra = sum(job.written for job in estimates), sum(job.extra for job in estimates)
    gpu_hours = each.gpus * sum(times) / 3600
    hours = gpu_hours if devices.gpus else seconds / 3600  # that are paid for
    return {
        "stage": stage,
        "jobs": len(estimates),
        "written": written,
        "tokens": sum(job.tokens for job in estimates),
        "flops": sum(job.flops for job in estimates),
        "slot_flops": sum(job.slot_flops for job in estimates),
        "seconds": seconds,
        "gpu_hours": gpu_hours,
        "disk": COPIES * written + (min(at_once / len(estimates), 1) * extra if stage == "finetune" else extra),
        "cost": None if price is None or (devices.gpus and not each.gpus) else price * hours,
        "runs": runs,
    }


def _devices_of(stage: str, devices: Devices) -> tuple[Devices, int]:
    """Devices of one job of a stage, and how many jobs run at once."""
    machine = load_machine()
    if stage.startswith("pretrain"):
        return (devices if devices.gpus else Devices(min(machine.pretrain.threads, devices.cores))), 1
    if stage == "finetune" and devices.gpus:
        return replace(devices, gpus=1), devices.gpus
    wanted = machine.finetune.threads if stage == "finetune" else CORES_OF_A_JOB
    each = Devices(min(wanted, devices.cores))
    return each, DOWNLOADS if stage.startswith("download") else devices.cores // each.cores


Correct = Callable[[Job, Devices], tuple[float, int]]


def corrections(path: Path, on_gpu: bool = True) -> Correct:
    """Return a function that gives a job's factor and the number of runs in ``path`` that it is the median of.

    Lines that cannot be read, such as those of a killed process or another release, are skipped.
    """
    runs: dict[tuple[str, bool], list[tuple[float, float]]] = {}  # expected seconds, ratio
    names = {field.name for field in fields(Job)}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            run = json.loads(line)
            job, devices = Job(**{name: run["job"][name] for name in names}), Devices(run["cores"], run["gpus"])
            expected = expected_seconds(job, devices)
            runs.setdefault((job.stage, devices.gpus > 0), []).append((expected, run["seconds"] / expected))
        except (ValueError, KeyError, TypeError):
            continue

    def correction(job: Job, devices: Devices) -> tuple[float, int]:
        wanted, start = expected_seconds(job, devices), RATES[job.stage][0]
        known = runs.get((job.stage, devices.gpus > 0), []) if on_gpu or not devices.gpus else []
        ratios = [r for took, r in known if took >= MOSTLY_WORK * start or wanted <= ABOUT_AS_SHORT * took][-LAST:]
        return (median(ratios), len(ratios)) if ratios else (1.0, 0)

    return correction


def record_run(stage: str, item: str, study: Study, seconds: float, path: Path = MEASURED) -> None:
    """Add a run to the measured rates; an error here is logged and never fails a stage.

    Args:
        stage: name of the stage's command.
        item: value of its matrix, joined by ``-``, or ``all``.
        study: its parameters.
        seconds: that the run took.
        path: JSON lines; each is one write, so that lines of parallel jobs do not mix.
    """
    try:
        jobs = Jobs(study, size_on_disk)
        names = [name for name in STAGES if name.startswith(stage)]
        found = [job for name in names for job in STAGES[name](jobs) if (job.stage, job.item) == (stage, item)]
        if not found:
            return
        machine, torch, compiling = load_machine(), sys.modules.get("torch"), 0.0
        cores, gpus = count_workers(), 0
        if stage == "pretrain":  # over all sessions of a pretraining that was stopped, without torch.compile's time
            cost: Mapping[str, Any] = read_json(PRETRAIN_LOGS / f"{item}.cost.json")
            compiling = cost.get("compile_seconds", 0.0)
            seconds = max(seconds, cost["seconds"]) - compiling
            on_gpu = "bfloat16" in cost["peak_source"]  # a CPU's peak is measured in float32
            cores = machine.pretrain.threads * (1 if on_gpu else cost["processes"])
            gpus = cost["processes"] if on_gpu else 0
        elif stage == "finetune":
            cores, gpus = machine.finetune.threads, int(torch is not None and torch.cuda.is_available())
        job, amount = found[0], found[0].flops or found[0].units
        line = {
            "stage": stage,
            "seconds": round(seconds, 3),
            "compile_seconds": round(compiling, 3),
            "rate": amount / seconds,
            "unit": "FLOP/s" if job.flops else f"{job.unit}/s",
            "cores": cores,
            "gpus": gpus,
            "job": asdict(job),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")
    except Exception as error:
        log.warning("this run's rate is not kept for `plan`: %s", error)


def _notes(jobs: Jobs, order: Iterable[str], rows: list[dict[str, Any]], devices: Devices) -> list[str]:
    notes = list(dict.fromkeys(jobs.corpus.notes))
    if unknown := [stage for stage in order if stage not in STAGES]:
        notes.append(f"stages without an estimate, counted as nothing: {', '.join(unknown)}")
    if jobs.unknown_tasks:
        notes.append(f"of unknown size, counted as nothing: {', '.join(jobs.unknown_tasks)}")
    if not jobs.study.finetune.model.startswith("models/pretrained/"):
        notes.append(f"{jobs.study.finetune.model} is counted as if it were as large as this study's own model")
    if devices.gpus and not any(row["runs"] for row in rows if row["gpu_hours"]):
        notes.append(f"each GPU is taken to reach {devices.teraflops:g} TFLOP/s, whatever it is: --teraflops")
    pretraining = [row for row in rows if row["stage"].startswith("pretrain")]
    tokens, real, slots = (sum(row[name] for row in pretraining) for name in ("tokens", "flops", "slot_flops"))
    notes.append(
        f"pretraining: {real:.2g} FLOPs of {tokens:.3g} tokens without padding; {slots:.2g} if every sequence were "
        "full, the way papers count"
    )
    return notes


def _table(plan: Mapping[str, Any]) -> str:
    devices = plan["devices"]
    gpus = f"{devices['gpus']} GPUs, " if devices["gpus"] else ""
    lines = [f"Plan of {plan['study']} on {gpus}{devices['cores']} CPU cores", "", _line(HEADS)]
    for row in plan["stages"]:
        rates = f"{row['runs']} run{'s' * (row['runs'] > 1)}" if row["runs"] else "default"
        lines.append(_line((row["stage"], str(row["jobs"]), *_cells(row, amount(row["tokens"])), rates)))
    total = _line(("total", str(plan["totals"]["jobs"]), *_cells(plan["totals"], ""), ""))
    about = (
        "time: as many jobs of a stage at once as fit; in total, one stage after another. rates: how many runs of "
        "logs/rates.jsonl correct the expected time, else the project's own. disk: outputs twice (DVC's cache) and "
        "what is kept besides."
    )
    lines += ["-" * len(lines[2]), total, "", *textwrap.wrap(about, WIDTH)]
    for note in plan["notes"]:
        lines += textwrap.wrap(note, WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def _cells(row: Mapping[str, Any], tokens: str) -> tuple[str, ...]:
    times = (duration(row["seconds"]), amount(row["disk"], "B"), money(row["cost"]))
    return (amount(row["written"], "B"), tokens, scientific(row["flops"]), *times)


def _line(cells: tuple[str, ...]) -> str:
    texts = zip(cells, COLUMNS, strict=True)
    return " ".join(f"{cell:{'>' if place else '<'}{width}}" for place, (cell, width) in enumerate(texts)).rstrip()


def amount(value: float, unit: str = "") -> str:
    """Return ``1.7 MB``, ``32.7 G``; ``-`` for 0."""
    if not value:
        return "-"
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5 or prefix == "T":
            break
        value /= 1000
    digits = 0 if value >= 99.5 or (not prefix and unit) else 1
    return f"{value:,.{digits}f} {prefix}{unit}".rstrip()


def scientific(value: float) -> str:
    """Return ``1.8e19``; ``-`` for 0."""
    return f"{value:.1e}".replace("e+", "e") if value else "-"


def duration(seconds: float) -> str:
    """Return ``59 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    for start, length, name in ((86_400 * 2, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min")):
        if seconds >= start:
            value = seconds / length
            return f"{value:,.{0 if value >= 99.5 or name == 'min' else 1}f} {name}"
    return f"{seconds:,.0f} s"


def money(value: float | None) -> str:
    """Return ``999.50``, ``12,345``, ``1.2 M``; ``-`` without a price."""
    if value is None:
        return "-"
    return amount(value) if value >= 999_999.5 else f"{value:,.{2 if value < 1000 else 0}f}"
