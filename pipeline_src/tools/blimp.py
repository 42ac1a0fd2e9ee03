"""Tool ``blimp``: compute a model's accuracy on BLiMP's minimal pairs, comparable to published scores."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, write_json
from pipeline_src.base.paths import DEFAULT_MODEL, TASKS
from pipeline_src.base.yaml_files import TASK_SOURCES
from pipeline_src.interpret.minimal_pairs import judge_sentence_pairs, read_pair_set
from pipeline_src.sources.catalogue import load_source, resolve
from pipeline_src.sources.fetch import fill_folder, obtain
from pipeline_src.study.machine import Precision
from pipeline_src.tools.inspect import open_masked_lm
from pipeline_src.training.distributed import choose_precision

NAME = "blimp"
# On a CPU, a batch that fits into a core's cache is 5 % faster.
BATCH_TOKENS = {"cpu": 2_048, "cuda": 65_536}
# Where BLiMP is downloaded to if it is not one of the study's own tasks.
DOWNLOADED = Path("data") / NAME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help=f"folder (default {DEFAULT_MODEL})")
    parser.add_argument("--folder", type=Path, help="JSON Lines in BLiMP's format (default: BLiMP, fetched if missing)")
    parser.add_argument("--pairs", type=int, help="pairs of each of the 67 sets (default: all, as published figures)")
    parser.add_argument("--seed", type=int, default=1, help="of the pairs chosen (default 1)")
    parser.add_argument(
        "--precision",
        choices=get_args(Precision),
        default="float32",
        help="of matmuls (default float32; auto: bfloat16 on a GPU that has it). bfloat16 may judge close pairs "
        "differently, and saves a third of the time on a CPU with instructions for it",
    )
    parser.add_argument("--output", type=Path, help="JSON file of the figures")


def main(arguments: argparse.Namespace) -> None:
    if arguments.pairs is not None and arguments.pairs < 1:
        raise PipelineError("number of pairs is below 1", arguments.pairs, where="--pairs", hint="give 1 or more")
    _keep_freed_memory()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = replace(open_masked_lm(arguments.model).to(device), batch_tokens=BATCH_TOKENS[device.type])
    pairs = read_pair_set(arguments.folder or _blimp(), arguments.seed, arguments.pairs)
    title = arguments.folder.name if arguments.folder else "BLiMP"
    use_bfloat16 = choose_precision(arguments.precision, device) == torch.bfloat16
    with torch.autocast(device.type, torch.bfloat16, enabled=use_bfloat16):
        figures = judge_sentence_pairs(model, None, pairs, title)
    if not figures:
        hint = (
            "use another model: this tokenizer gives both sentences of each pair the same tokens, or they are too long"
        )
        raise PipelineError("all pairs were skipped", f"{len(pairs)} pairs", where=arguments.model, hint=hint)
    rows = list(figures.values())
    width = max(len(row["title"]) for row in rows)
    print(f"{'':{width}}  accuracy  95 % interval    pairs")
    for row in rows:
        low, high = row["between"]
        interval = f"{100 * low:5.1f} to {100 * high:5.1f}"
        print(f"{row['title']:{width}}  {100 * row['accuracy']:6.1f} %  {interval} {row['pairs']:8,}")
    left_out = rows[0]["left_out"]
    if left_out:
        print(f"{left_out} pairs left out: the tokenizer reads both sentences alike, or one is too long")
    if arguments.output:
        write_json(arguments.output, figures)


def _keep_freed_memory() -> None:
    # Make the C library keep freed memory for reuse. Returning it to the system takes a sixth of the CPU time.
    # The two numbers are M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in glibc's malloc.h.
    trim_threshold, mmap_threshold = -1, -3
    # C libraries other than glibc may have no mallopt.
    with contextlib.suppress(OSError, AttributeError):
        for option in (trim_threshold, mmap_threshold):
            ctypes.CDLL(None).mallopt(option, 1 << 30)


def _blimp() -> Path:
    for folder in (TASKS / NAME, DOWNLOADED):
        if folder.is_dir():
            return folder
    source = resolve(NAME, load_source(TASK_SOURCES, NAME))
    obtained = obtain(NAME, source)
    with atomic_directory(DOWNLOADED) as folder:
        fill_folder(NAME, source, obtained, folder)
    return DOWNLOADED
