"""Piece ``pretraining`` of benchmark ``gpu``: the study's own stages take as many steps as fit.

The study's two phases must have examples of one length. The first phase takes ``PROBE_STEPS`` and tells the rate, from
which follows how many steps the second one can take; params.yaml decides everything else. Models are kept by the tokens
that they have read. Fine-tuning and BLiMP need no GPU, and come later.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from benchmarks._gpu_session import Session
from benchmarks._gpu_steps import VARIANTS
from pipeline_src.base.files import read_json
from pipeline_src.base.paths import EXAMPLES, START_MODEL, TOKENS, VOCABULARY

PROBE_STEPS = 200
# A study is packed within an hour.
PACKING_SECONDS = 3600.0
# The second phase is planned for this share of the remaining time.
SAFETY = 0.93
MICROBATCH_TOKENS = 65_536
# A rehearsal takes a few small steps. The schedule has to fit into them.
REHEARSED_STEPS = 2
REHEARSED = {"train_batch_size": 2, "warmup_steps": 1, "decay_steps": None}
# Models are kept after about this many million tokens, and at the end.
KEPT_MILLION_TOKENS = (50, 100, 200, 500, 1_000, 2_000)


def copy_study(study: Path, folder: Path) -> None:
    if folder.exists():
        return
    unfinished = folder.with_suffix(".partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    shutil.copy(study / "params.yaml", unfinished)
    for path in (VOCABULARY, TOKENS, EXAMPLES, START_MODEL):
        if (study / path).exists():
            shutil.copytree(study / path, unfinished / path)
    unfinished.rename(folder)


def pack(study: Path, folder: Path) -> None:
    """Copy what a study needs on the GPU's machine, and train a copy of the copy for a few steps on this CPU.

    Raises:
        RuntimeError: the copy does not train.
    """
    copy_study(study, folder)
    with TemporaryDirectory() as out:
        session = Session("pretraining", Path(out), rehearsal=True, deadline=time.monotonic() + PACKING_SECONDS)
        copy_study(folder, session.study)
        pretraining(session, next(iter(VARIANTS)))
        errors = [f"{name}: {cell['error']}" for name, cell in session.cells().items() if "error" in cell]
    if errors:
        raise RuntimeError("\n".join(errors))


def pretraining(session: Session, variant: str) -> None:
    _write_machine(session.study, variant, session.rehearsal)
    if "phase1" not in session.cells():
        probe = REHEARSED_STEPS if session.rehearsal else PROBE_STEPS
        _set_pretrain(session, steps={"phase1": probe, "phase2": 100 * probe}, keep_checkpoint_steps=[])
    phase1 = session.cell("phase1", partial(_run_phase, session, "phase1"), variant=variant)
    if "error" in phase1:
        return
    if "plan" not in session.cells():
        first = phase1["steps"]
        steps = REHEARSED_STEPS if session.rehearsal else planned_steps(phase1, session.seconds_left)
        to_keep = kept_steps(phase1["tokens"] / first, first, first + steps)
        _set_pretrain(session, steps={"phase1": first, "phase2": steps}, keep_checkpoint_steps=to_keep)
        session.cell("plan", lambda: {"steps": steps, "kept": to_keep})
    session.cell("phase2", partial(_run_phase, session, "phase2"), variant=variant)


def kept_steps(tokens_per_step: float, first: int, last: int) -> list[int]:
    """Return the steps between ``first`` and ``last`` after which a model has read a number of tokens to keep it at."""
    steps = [round(1e6 * millions / tokens_per_step) for millions in KEPT_MILLION_TOKENS]
    return [step for step in steps if first < step < last]


def planned_steps(phase1: Mapping[str, Any], seconds: float) -> int:
    """Return the number of steps that fit into ``seconds``, by the speed of the first phase.

    Starting, validating and saving take the second phase half as long again.
    """
    besides = 1.5 * (phase1["wall_seconds"] - phase1["training_seconds"])
    return max(2, round(SAFETY * (seconds - besides) * phase1["steps_per_s"]))


def _run_phase(session: Session, phase: str) -> dict[str, Any]:
    # The rate is without the steps that compiled.
    session.run("pipeline_src", "pretrain", "--phase", phase, cwd=session.study)
    cost = read_json(session.study / f"logs/pretrain/{phase}.cost.json", dict)
    run = read_json(session.study / f"logs/pretrain/{phase}.run.json", dict)
    results = read_json(session.study / f"results/pretrain/{phase}.json", dict)
    copied = ("tokens_per_second", "mfu", "training_seconds", "compile_seconds", "peak_memory")
    return {
        "steps": results["steps"],
        "steps_per_s": round((results["steps"] - cost["compile_steps"]) / cost["training_seconds"], 3),
        "wall_seconds": run["seconds"],
        **{key: cost[key] for key in copied},
        "parameters": results["parameters"],
        "tokens": results["cost"]["tokens"],
        "validation": results["validation"],
    }


def _set_pretrain(session: Session, steps: Mapping[str, int], **changes: Any) -> None:
    path = session.study / "params.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values["pretrain"] |= {"steps": dict(steps), "eval_steps": max(1, steps["phase2"] // 4), **changes}
    if session.rehearsal:
        values["pretrain"] |= REHEARSED
    _write_yaml(path, values)


def _write_machine(study: Path, variant: str, rehearsal: bool) -> None:
    threads = {"threads": 1 if rehearsal else 4}
    settings = VARIANTS[variant].machine
    # A CPU refuses the settings for a GPU.
    gpu_settings = {} if rehearsal else settings["pretrain"]
    settings["pretrain"] = threads | {"microbatch_tokens": MICROBATCH_TOKENS} | gpu_settings
    _write_yaml(study / "machine.yaml", {**settings, "finetune": threads})


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(values), sort_keys=False), encoding="utf-8")
