"""Tool ``predict``: print a fine-tuned model's predictions for the examples of a file, as JSON Lines."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file
from pipeline_src.base.paths import FINETUNED, KEPT_MODEL, finetuned_model
from pipeline_src.finetune.predict import load
from pipeline_src.study.machine import load_machine
from pipeline_src.study.task_spec import task_names

STDIN = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help="name of a task that was fine-tuned, such as sst2")
    parser.add_argument(
        "file",
        type=Path,
        help="examples in the format of the task's files, labels not needed; for classification and multilabel also "
        "texts: one a line in a .txt, two with a tab between them, or lines of JSON, or Parquet; - reads such lines of "
        "text from standard input",
    )
    parser.add_argument("--seed", default="1", help="seed of the fine-tuning (default 1)")
    parser.add_argument("--model", type=Path, help=f"folder (default {finetuned_model('TASK', 'SEED')})")
    parser.add_argument("--output", type=Path, help="file to write; without it, the terminal")


def main(arguments: argparse.Namespace) -> None:
    # The predictor logs which examples were truncated or skipped.
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    machine = load_machine()
    torch.set_num_threads(machine.finetune.threads)
    folder = arguments.model or find_model(arguments.task, arguments.seed)
    predictor = load(folder, machine)
    task = predictor.settings.task.name
    if task != arguments.task:
        hint = f"give {task} as the task, or another --model"
        raise PipelineError("the model was fine-tuned on another task", task, where=folder, hint=hint)
    with on_disk(arguments.file) as path:
        examples = predictor.read(path)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in predictor(examples)]
    if arguments.output is None:
        sys.stdout.writelines(lines)
        return
    with atomic_file(arguments.output) as file:
        file.writelines(lines)


def find_model(task: str, seed: str) -> Path:
    folder = finetuned_model(task, seed)
    if folder.is_dir():
        return folder
    if task not in task_names():
        raise PipelineError("no such task", task, hint=f"use one of {', '.join(task_names())}")
    seeds = sorted(path.parent.name for path in (FINETUNED / task).glob(f"*/{KEPT_MODEL}"))
    hint = f"list it in `tasks` and {seed} in `finetune.seeds` of params.yaml, then run `snakemake --cores 2 all`"
    if seeds:
        hint = f"give --seed {' or '.join(seeds)}"
    raise PipelineError("no fine-tuned model", f"{task} with seed {seed}", where=folder, hint=hint)


@contextmanager
def on_disk(file: Path) -> Iterator[Path]:
    """Yield the path of the file to read. For ``-``, save standard input to a temporary text file first."""
    if str(file) != STDIN:
        if not file.is_file():
            raise PipelineError("no such file", file, hint=f"name a file of examples, or {STDIN} for standard input")
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stdin.txt"
        copy.write_bytes(sys.stdin.buffer.read())
        yield copy
