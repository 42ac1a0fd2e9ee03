"""How long a job takes: rates measured by the project, for GPUs the roofline model; corrected by this checkout's runs.

Every run of a stage adds a line to ``logs/rates.jsonl``: the job with its amount of work, what it had to itself, and
the seconds. A plan compares each with what the rates below expect, and multiplies its own expectation by the median of
the last runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pipeline_src.common.paths import LOGS
from pipeline_src.params.machine import USUAL
from pipeline_src.pretraining.compile_choice import COMPILING, EARNED_BACK, uncompiled_seconds
from pipeline_src.tools.planning.hardware import Allocation
from pipeline_src.tools.planning.job_estimate import JobEstimate
from pipeline_src.tools.planning.model_sizes import ModelSizes
from pipeline_src.tools.planning.roofline import StepTime, Work, by_size, step_time

MEASURED = LOGS / "rates.jsonl"
LAST = 20  # runs of a stage that count
MOSTLY_WORK = 3  # times its start a run must take to say something of any job,
ABOUT_AS_SHORT = 10  # or else of jobs up to so many times as long

# Seconds before the work begins (imports, opening files), and units per second: of one core, or of a connection.
STARTS = {
    "download_wikipedia": 2.0,
    "download_books": 2.0,
    "download_tasks": 3.0,
    "clean_wikipedia": 2.0,
    "clean_books": 1.0,
    "train_tokenizer": 1.0,
    "tokenize": 1.0,
    "build_examples": 1.0,
    "pretrain": 6.0,
    "finetune": 5.0,
    "train_word_vectors": 2.0,
    "corpus_statistics": 2.0,
    "interpret": 4.0,
    "evaluate": 3.0,
    "report": 2.0,
}
CONNECTION = 5e6  # bytes per second; assumed
PER_CORE = {  # [1]: docs/measurements.md
    "clean_wikipedia": 2.7e6,  # bytes of .bz2; [1]: 11.8 MB of XML per CPU-second, of which bz2 makes 23 %
    "clean_books": 6.8e6,  # bytes; 100 novels of 78 MB in 6.8 s on two shared cores
    "train_tokenizer": 11.6e6,  # bytes of text; [1]
    "tokenize": 8.9e6,  # bytes of text; [1]: encoding 11.9 MB and sentences 36 MB per CPU-second
    "build_examples": 8.5e6,  # tokens x passes, both lengths; [1]: 117,000 and 86,600 examples per CPU-second
    "corpus_statistics": 2.0e6,  # bytes of text, searched for passages of the tasks
}
ONE_CORE = {  # stages that run in one process
    "train_word_vectors": 1.0e6,  # tokens x epochs, 300 wide, skip-gram's; CBOW takes a third less
    "evaluate": 1.0e4,  # predicted examples; of SQuAD 11,000, of other tasks 100,000 in a CPU-second, errors included
    "report": 1e9,  # bytes
}
# FLOP/s of one thread that trains, by width of the model. The 11,400, 2,720 and 232 tokens per CPU-second in
# docs/measurements.md are 71, 74 and 126 GFLOP of BERT-Tiny, -Mini and -base; whole trainings on a shared machine
# reached 49 with BERT-Tiny.
THREAD = {128: 45e9, 256: 60e9, 768: 110e9}
THREADS_TOGETHER = 0.7  # n threads do n^0.7 as much: two 1.6 times
POSITIONS = 512  # of a model; too few weights to be counted better


def _download(job: JobEstimate, _: Allocation) -> float:
    return job.units / CONNECTION


def _on_cores(job: JobEstimate, allocation: Allocation) -> float:
    return job.units / (PER_CORE[job.stage] * allocation.cores)


def _on_one_core(job: JobEstimate, _: Allocation) -> float:
    return job.units / ONE_CORE[job.stage]


def _training(job: JobEstimate, allocation: Allocation) -> float:
    if not allocation.gpus:
        return job.flops / (by_size(THREAD, job.width) * allocation.cores**THREADS_TOGETHER)
    return job.steps * gpu_step(job, allocation)[1].seconds if job.steps else 0.0


def gpu_step(
    job: JobEstimate, allocation: Allocation, max_tokens: int = USUAL.pretrain.max_tokens
) -> tuple[Work, StepTime]:
    """What each GPU does in a step of a training, in pieces of at most ``max_tokens``, and the time that it takes."""
    tokens = job.tokens / job.steps / allocation.gpus
    work = Work(
        ModelSizes(job.width, job.layers, job.inner, job.entries, POSITIONS),
        tokens,
        job.length,
        job.predictions / job.steps / allocation.gpus,
        rows=job.rows / job.steps / allocation.gpus if job.rows else None,
        pieces=math.ceil(tokens / max_tokens),
        compiled=_compiled(job, allocation),
        parameters=job.parameters,
        over_bert=job.over_bert,
    )
    return work, step_time(work, allocation.chip, allocation.gpus, sharding=allocation.sharding)


def _compiled(job: JobEstimate, allocation: Allocation) -> bool:
    """Whether a training is compiled, as ``compile: auto`` decides it."""
    seconds = uncompiled_seconds(job.flops, allocation.peak * allocation.gpus) if allocation.gpus else 0.0
    return job.stage == "pretrain" and seconds >= EARNED_BACK


def compile_seconds(job: JobEstimate, allocation: Allocation) -> float:
    """What the compiler takes beside :func:`expected_seconds`."""
    return COMPILING if _compiled(job, allocation) else 0.0


def _interpreting(job: JobEstimate, _: Allocation) -> float:
    return job.flops / by_size(THREAD, job.width)


SECONDS: dict[str, Callable[[JobEstimate, Allocation], float]] = {
    "download_wikipedia": _download,
    "download_books": _download,
    "download_tasks": _download,
    **dict.fromkeys(PER_CORE, _on_cores),
    **dict.fromkeys(ONE_CORE, _on_one_core),
    "interpret": _interpreting,
    "pretrain": _training,
    "finetune": _training,
}


def expected_seconds(job: JobEstimate, allocation: Allocation) -> float:
    """What a job takes at the rates above."""
    return STARTS[job.stage] + SECONDS[job.stage](job, allocation)


def job_seconds(job: JobEstimate, allocation: Allocation, factor: float = 1.0) -> float:
    """What a job takes from start to end: ``factor`` times what is expected, and the compiler's share."""
    return factor * expected_seconds(job, allocation) + compile_seconds(job, allocation)


@dataclass(frozen=True)
class Correction:
    """What measured runs say of a stage: their time over the expected one, and how many they are."""

    factor: float = 1.0
    runs: int = 0


def append(
    job: JobEstimate, allocation: Allocation, seconds: float, compiling: float = 0.0, path: Path = MEASURED
) -> None:
    """Add one run; what torch spent ``compiling`` is not in ``seconds``.

    Lines of jobs side by side do not mix: each is one write to the file's end.
    """
    amount = job.flops or job.units
    line = {
        "stage": job.stage,
        "seconds": round(seconds, 3),
        "compile_seconds": round(compiling, 3),
        "rate": amount / seconds,
        "unit": "FLOP/s" if job.flops else f"{job.unit}/s",
        "job": asdict(job),
        "allocation": asdict(allocation),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")


def corrections(path: Path = MEASURED) -> Callable[[JobEstimate, Allocation], Correction]:
    """What the runs in ``path`` say of a job, by its stage and by whether it trains on a GPU.

    A run that was mostly its start says something of jobs about as short, but not of long ones. A line that a full disk
    or a killed process cut, or that another release wrote with other fields, is passed over.
    """
    runs: dict[tuple[str, bool], list[tuple[float, float]]] = {}  # expected seconds, ratio
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            run: dict[str, Any] = json.loads(line)
            job, allocation = JobEstimate(**run["job"]), Allocation(**run["allocation"])
            expected = expected_seconds(job, allocation)
            runs.setdefault((job.stage, allocation.gpus > 0), []).append((expected, run["seconds"] / expected))
        except (ValueError, KeyError, TypeError):
            continue

    def correction(job: JobEstimate, allocation: Allocation) -> Correction:
        wanted, start = expected_seconds(job, allocation), STARTS[job.stage]
        ratios = [
            ratio
            for expected, ratio in runs.get((job.stage, allocation.gpus > 0), [])
            if expected >= MOSTLY_WORK * start or wanted <= ABOUT_AS_SHORT * expected
        ][-LAST:]
        return Correction(median(ratios), len(ratios)) if ratios else Correction()

    return correction
