"""Tool ``export``: the examples of one phase as files for other trainers, TFRecord or Parquet.

Fields, padding and file names are those of google-research/bert's ``create_pretraining_data.py``, so that its
``run_pretraining.py`` reads them. The study itself never needs these files.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import EXAMPLES, VOCABULARY
from pipeline_src.common.progress import Progress
from pipeline_src.params.study import load_study
from pipeline_src.pretraining.loading.batches import PretrainingExamples, open_examples
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.token_store import SPLITS
from pipeline_src.tools.tfrecord import serialise_example, write_record

PER_FILE = 1 << 16  # examples; 128 MB of TFRecord at 128 tokens
AT_ONCE = 1 << 10  # examples in memory
EXPORTED = ("masked",)  # objectives whose examples these fields can hold
Fields = dict[str, np.ndarray]


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a whole number of 1 or more: {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("output", type=Path, help="folder to write; must not exist")
    parser.add_argument("--format", choices=sorted(WRITERS), default="tfrecord")
    parser.add_argument("--phase", choices=("short", "long"), default="short")
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument(
        "--per-file", type=positive, default=PER_FILE, help=f"examples in a file (default: {PER_FILE:,})"
    )


def main(arguments: argparse.Namespace) -> None:
    """Write every example of a phase and split, masked as the study in params.yaml masks them.

    Raises:
        PipelineError: the folder exists, the stages before have not run, masking is dynamic, or nothing is masked.
    """
    study = load_study()
    if arguments.output.exists():
        raise PipelineError("the folder exists already", arguments.output, remedy="name another, or remove it")
    if study.pretrain.objective not in EXPORTED:
        raise PipelineError(
            "the fields of these files are for masked words", f"pretrain.objective: {study.pretrain.objective}",
            where="params.yaml", remedy=f"export a study whose objective is {' or '.join(EXPORTED)}",
        )  # fmt: skip
    if study.pretrain.masking.dynamic:
        raise PipelineError(
            "dynamic masks cannot be written to files", "pretrain.masking.dynamic: true", where="params.yaml",
            remedy="set it to false; examples.duplicates gives several masks of each text",
        )  # fmt: skip
    opened = (
        arguments.phase,
        arguments.split,
        study.mask_prob,
        study.pretrain.masking,
        study.seed,
        study.pretrain.objective,
    )
    length = read_json(EXAMPLES / "manifest.json", {arguments.phase: {"length": int}})[arguments.phase]["length"]
    predictions = study.pretrain.masking.max_predictions or math.ceil(study.mask_prob * length)
    total = len(_open(*opened))
    starts = range(0, total, arguments.per_file)
    with atomic_directory(arguments.output) as folder, Progress("exporting", total, "example") as progress:
        write = partial(_write_file, opened, folder, arguments.format, total, length, predictions, arguments.per_file)
        for written in map_in_order(write, starts, 1 if len(starts) == 1 else None):
            progress.advance(written)
    print(f"{total} examples of {length} tokens, up to {predictions} predicted, in {arguments.output}")


@lru_cache(maxsize=1)
def _open(phase: str, split: str, mask_prob: float, masking: Any, seed: int, objective: str) -> PretrainingExamples:
    return open_examples(phase, split, load_tokenizer(VOCABULARY), mask_prob, masking, seed, objective)


def _write_file(
    opened: tuple[Any, ...],
    folder: Path,
    kind: str,
    total: int,
    length: int,
    predictions: int,
    per_file: int,
    start: int,
) -> int:
    """Write the examples from ``start`` on into one file; returns their number."""
    examples = _open(*opened)
    stop = min(start + per_file, total)
    name = f"examples-{start // per_file:05d}-of-{math.ceil(total / per_file):05d}.{kind}"
    chunks = (np.arange(first, min(first + AT_ONCE, stop)) for first in range(start, stop, AT_ONCE))
    WRITERS[kind](folder / name, (padded(examples, chunk, length, predictions) for chunk in chunks))
    return stop - start


def padded(examples: PretrainingExamples, numbers: np.ndarray, length: int, predictions: int) -> Fields:
    """The fields of google-research/bert for some examples, each an array [examples, width].

    ``input_ids``, ``input_mask``, ``segment_ids`` are ``length`` wide; ``masked_lm_positions``, ``masked_lm_ids``,
    ``masked_lm_weights`` (float32) are ``predictions`` wide; ``next_sentence_labels`` is 1 wide and missing without
    pairs. All but the weights are int64.
    """
    batch = examples.batch(numbers)
    count = len(numbers)
    row = np.repeat(np.arange(count), np.diff(batch.cu_seqlens))
    place = np.arange(len(batch.ids)) - batch.cu_seqlens[row]
    wide = {name: np.zeros((count, length), np.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    for name, values in zip(wide, (batch.ids, np.ones_like(row), batch.segments), strict=True):
        wide[name][row, place] = values
    row_of = row[batch.predicted]
    slot = np.arange(len(row_of)) - np.searchsorted(row_of, row_of)
    names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    narrow = {name: np.zeros((count, predictions), np.float32 if name == names[2] else np.int64) for name in names}
    for name, values in zip(names, (place[batch.predicted], batch.labels, np.ones_like(slot)), strict=True):
        narrow[name][row_of, slot] = values
    label = {"next_sentence_labels": batch.pair_label[:, None]} if examples.has_pairs else {}
    return wide | narrow | label


def _write_tfrecord(path: Path, chunks: Iterator[Fields]) -> None:
    with open(path, "wb") as file:
        for fields in chunks:
            lists = {name: values.tolist() for name, values in fields.items()}
            for row in zip(*lists.values(), strict=True):
                write_record(file, serialise_example(dict(zip(lists, row, strict=True))))


def _write_parquet(path: Path, chunks: Iterator[Fields]) -> None:
    writer = None
    for fields in chunks:
        columns = {
            name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
            for name, values in fields.items()
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()


WRITERS: dict[str, Callable[[Path, Iterator[Fields]], None]] = {"tfrecord": _write_tfrecord, "parquet": _write_parquet}
