"""Pieces of benchmark ``gpu`` that run the stages of a study: as many pretraining steps as fit, then fine-tuning.

The study's two phases must have examples of one length. The first phase takes ``PROBE_STEPS`` and tells the rate, from
which follows how many steps the second one can take; params.yaml decides everything else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks._gpu_session import Session, TimeOver
from benchmarks._gpu_steps import VARIANTS, fastest
from pipeline_src.base.files import read_json
from pipeline_src.base.paths import EXAMPLES, START_MODEL, TASKS, TOKENS, VOCABULARY

PROBE_STEPS, REHEARSED_PROBE_STEPS, MAX_REHEARSED_STEPS = 200, 4, 20
# The second phase is planned for this share of the remaining time.
SAFETY = 0.93
MICROBATCH_TOKENS = 65_536
SEEDS = (1, 2, 3)
MODEL = Path("models/pretrained/phase2")
# The fastest variant at this shape is used for training.
SHAPE = "8x512"
BLIMP = "blimp"


def copy_study(study: Path, folder: Path) -> None:
    if folder.exists():
        return
    unfinished = folder.with_suffix(".partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    shutil.copy(study / "params.yaml", unfinished)
    for path in (VOCABULARY, TOKENS, EXAMPLES, START_MODEL, TASKS):
        if (study / path).exists():
            shutil.copytree(study / path, unfinished / path)
    unfinished.rename(folder)


def pretraining(session: Session) -> None:
    variant = fastest(session.cells("rates"), SHAPE)
    _write_machine(session.study, variant, session.rehearsal)
    if "phase1" not in session.cells():
        probe = REHEARSED_PROBE_STEPS if session.rehearsal else PROBE_STEPS
        _set_steps(session.study, {"phase1": probe, "phase2": 100 * probe})
    phase1 = session.cell("phase1", partial(_run_phase, session, "phase1"), variant=variant)
    if "error" in phase1:
        return
    if "plan" not in session.cells():
        steps = planned_steps(phase1, session.seconds_left)
        steps = min(steps, MAX_REHEARSED_STEPS) if session.rehearsal else steps
        _set_steps(session.study, {"phase1": phase1["steps"], "phase2": steps})
        session.cell("plan", lambda: {"steps": steps})
    session.cell("phase2", partial(_run_phase, session, "phase2"), variant=variant)


def planned_steps(phase1: Mapping[str, Any], seconds: float) -> int:
    """Return the number of steps that fit into ``seconds``, by the speed of the first phase.

    Starting, validating and saving take the second phase half as long again.
    """
    besides = 1.5 * (phase1["wall_seconds"] - phase1["training_seconds"])
    return max(2, round(SAFETY * (seconds - besides) * phase1["steps_per_s"]))


def finetuning(session: Session) -> None:
    if not (session.study / MODEL).exists():
        raise RuntimeError("no model was pretrained; run piece pretraining again")
    values = _read_params(session.study)
    values["finetune"] |= {"seeds": [*SEEDS], "model": str(MODEL)}
    _write_yaml(session.study / "params.yaml", values)
    jobs: dict[str, partial[dict[str, Any]]] = {}
    if (session.study / TASKS / BLIMP).is_dir():
        jobs[BLIMP] = partial(_run_blimp, session)
    for seed in SEEDS:
        for task in values["tasks"]:
            jobs[f"{task}, seed {seed}"] = partial(_run_task, session, task, seed)
    # A small model's run is limited by its host thread.
    workers = max(1, (os.cpu_count() or 1) - 2)
    time_over = False
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(job): name for name, job in jobs.items() if not session.is_measured(name)}
        for future in as_completed(running):
            if isinstance(future.exception(), TimeOver):
                time_over = True
            else:
                session.cell(running[future], future.result)
    if time_over:
        raise TimeOver
    session.cell("scores", partial(_run_evaluate, session))


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


def _run_task(session: Session, task: str, seed: int) -> dict[str, Any]:
    session.run("pipeline_src", "finetune", "--task", task, "--seed", str(seed), cwd=session.study)
    run = read_json(session.study / f"results/predictions/{task}/{seed}/predicted/run.json", dict)
    return {"recipe": run["recipe"], "runs": run["runs"]}


def _run_blimp(session: Session) -> dict[str, Any]:
    few = ["--pairs", "2"] if session.rehearsal else []
    options = ["--model", str(MODEL), "--precision", "bfloat16", "--output", "blimp.json", *few]
    session.run("pipeline_src", "blimp", *options, cwd=session.study)
    return {"sets": read_json(session.study / "blimp.json", dict)}


def _run_evaluate(session: Session) -> dict[str, Any]:
    session.run("pipeline_src", "evaluate", cwd=session.study)
    return {"scores": read_json(session.study / "results/scores.json")}


def _set_steps(study: Path, steps: Mapping[str, int]) -> None:
    values = _read_params(study)
    eval_steps = max(1, steps["phase2"] // 4)
    values["pretrain"] |= {"steps": dict(steps), "eval_steps": eval_steps, "keep_checkpoint_steps": []}
    _write_yaml(study / "params.yaml", values)


def _write_machine(study: Path, variant: str, rehearsal: bool) -> None:
    threads = {"threads": 1 if rehearsal else 4}
    settings = VARIANTS[variant].machine
    # A CPU refuses the settings for a GPU.
    gpu_settings = {} if rehearsal else settings["pretrain"]
    settings["pretrain"] = threads | {"microbatch_tokens": MICROBATCH_TOKENS} | gpu_settings
    _write_yaml(study / "machine.yaml", {**settings, "finetune": threads})


def _read_params(study: Path) -> dict[str, Any]:
    return yaml.safe_load((study / "params.yaml").read_text(encoding="utf-8"))


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(values), sort_keys=False), encoding="utf-8")
