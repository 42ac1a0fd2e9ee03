"""What fine-tuning learns on real tasks: a real pretrained encoder and random weights, through the stage ``finetune``.

``python -m benchmarks.learning mrpc rte --glue FOLDER`` wants GLUE's folders (``MRPC/train.tsv``, ...) as they are
published. The encoder is MiniLM (``_minilm``), which has seen none of these five tasks. Each run is the same command
twice, from its weights and from random ones; scores are of the development set, with the best learning rate of the
grid chosen on it as the paper does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stages do; read when torch is imported

import numpy as np

from benchmarks._minilm import minilm_folder
from benchmarks.material import CACHE, MORE
from benchmarks.measure import cpu_seconds
from pipeline_src.common.files import read_json
from pipeline_src.common.parallel import usable_cores
from pipeline_src.common.paths import task_predictions
from pipeline_src.finetuning.finetune import run
from pipeline_src.params.finetune import FinetuneParams, Recipe
from pipeline_src.params.machine import Machine, TrainingMachine
from pipeline_src.params.model import ModelParams
from pipeline_src.tasks.files.spec import load_spec

MODEL = ModelParams(layers=6, hidden=384)  # MiniLM's
FOLDERS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "rte": "RTE"}


def recipe(epochs: int, batch: int) -> Recipe:
    """One point; 1e-4 suits so small an encoder better than the paper's rates."""
    return Recipe(learning_rates=(1e-4,), epochs=(epochs,), batches=(batch,), max_length=128)


RECIPES = {  # of each task, and of how many training rows a sample is drawn
    "cola": (recipe(epochs=4, batch=32), None),
    "sst2": (recipe(epochs=1, batch=32), 12_000),
    "mrpc": (recipe(epochs=4, batch=32), None),
    "stsb": (recipe(epochs=3, batch=32), None),
    "rte": (recipe(epochs=3, batch=16), None),
}
BARS = {("mrpc", "accuracy"): 76.0, ("mrpc", "f1"): 83.0, ("sst2", "accuracy"): 86.0}  # median over restarts


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and print one line a task, then one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(FOLDERS)}; all where none is named")
    parser.add_argument("--glue", type=Path, default=MORE / "glue", help="folder of GLUE's folders")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args(arguments)
    if not asked.glue.is_dir():
        sys.exit(f"error: {asked.glue} is no folder; give GLUE's with --glue")
    encoder = minilm_folder().absolute()
    found = {task: measure(task, asked, encoder) for task in asked.tasks or FOLDERS}
    more = {"cpus": usable_cores(), "python": platform.python_version()}
    print(json.dumps({"name": "learning", "met": all(row["met"] for row in found.values()), "tasks": found, **more}))


def measure(task: str, asked: argparse.Namespace, encoder: Path) -> dict[str, Any]:
    """Fine-tune one task with every restart, from both kinds of weights."""
    wanted, sample = RECIPES[task]
    folder = (CACHE / "learning").absolute()
    for below in ("results/predictions", "models/finetuned", "data/tasks"):
        shutil.rmtree(folder / below / task, ignore_errors=True)
    place(asked.glue / FOLDERS[task], folder / "data/tasks" / task, sample)
    numbers = [str(number + 1) for number in range(asked.restarts)]
    params = FinetuneParams(model=str(encoder), default=wanted, random_baseline=True)
    machine = Machine(finetune=TrainingMachine(threads=asked.threads))
    busy, wall = cpu_seconds(), time.perf_counter()
    with contextlib.chdir(folder):
        for number in numbers:
            # random weights are trained once: they are what the others are read against, not a claim
            run(seed=1, model=MODEL, finetune=params, task=task, restart=number, machine=machine)
            params = params.model_copy(update={"random_baseline": False})
        busy, wall = cpu_seconds() - busy, time.perf_counter() - wall
        runs = [read_json(task_predictions(task, number) / "run.json")["runs"] for number in numbers]
    row: dict[str, Any] = {"rows": sample or "all", "recipe": wanted.model_dump(mode="json"), "met": True}
    for metric in load_spec(task).eval_set(None).metrics:
        values = [max(r["dev"][metric] for r in of if r["weights"] == "pretrained") for of in runs]
        median, random = statistics.median(values), runs[0][-1]["dev"][metric]
        row[metric] = {"values": values, "median": median, "random_weights": random}
        row["met"] &= median >= BARS.get((task, metric), -100.0)
        spread = ", ".join(f"{value:.1f}" for value in values)
        print(f"{task:<6}{metric:<10} median {median:.1f} ({spread}); random weights {random:.1f}", flush=True)
    print(f"{task:<6}{len(numbers)} restarts and one from random weights: {wall / 60:.1f} min, {busy / 60:.1f} CPU-min")
    return row | {"minutes": round(wall / 60, 2), "cpu_minutes": round(busy / 60, 2)}


def place(published: Path, folder: Path, sample: int | None) -> None:
    """Copy train.tsv and dev.tsv, of the first a sample of its rows where asked for; the header stays.

    A copy of STS-B goes round whose train.tsv has its first row once more where the header was; dev.tsv has that still.
    """
    folder.mkdir(parents=True)
    shutil.copy(published / "dev.tsv", folder)
    lines = (published / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    if lines[0] == lines[1]:
        lines[0] = (published / "dev.tsv").read_text(encoding="utf-8").splitlines(keepends=True)[0]
    if sample is not None:
        chosen = np.sort(np.random.default_rng(1).choice(len(lines) - 1, sample, replace=False)) + 1
        lines = [lines[0], *(lines[number] for number in chosen)]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
