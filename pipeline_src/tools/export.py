"""Tool ``export``: pretraining examples for other trainers, or a model for other libraries."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_src.common.errors import PipelineError
from pipeline_src.examples.token_store import SPLITS
from pipeline_src.tools.embed import POOLINGS
from pipeline_src.tools.open_model import DEFAULT

PER_FILE = 1 << 16  # examples; 128 MB of TFRecord at 128 tokens


class Exporter(NamedTuple):
    """The function that writes a format, ``MODULE:FUNCTION``, imported when needed, and its options' defaults."""

    function: str
    options: dict[str, Any]


EXAMPLES = Exporter(
    "pipeline_src.tools.export_examples:export_examples",
    {"phase": "phase1", "split": "train", "per_file": PER_FILE},
)
MODEL = Exporter(
    "pipeline_src.tools.export_model:export_model",
    {"model": DEFAULT, "pooling": "mean", "normalise": False, "onnx": None, "texts": None},
)
FORMATS = {"tfrecord": EXAMPLES, "parquet": EXAMPLES, "sentence-transformers": MODEL, "hub": MODEL}


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a whole number of 1 or more: {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments. Those of one kind of format have no default, to see which are given."""
    parser.add_argument("output", type=Path, help="folder to write; must not exist")
    parser.add_argument(
        "--format", choices=FORMATS, default="tfrecord",
        help="tfrecord, parquet: the examples of a phase; sentence-transformers: a model's folder for that library and "
        "transformers; hub: such a folder for the model (main) and for each model kept on the way (step-N)",
    )  # fmt: skip
    examples = parser.add_argument_group("examples")
    examples.add_argument("--phase", choices=("phase1", "phase2"), help="default: phase1")
    examples.add_argument("--split", choices=SPLITS, help="default: train")
    examples.add_argument("--per-file", type=positive, help=f"examples in a file (default: {PER_FILE:,})")
    model = parser.add_argument_group("model")
    model.add_argument("--model", type=Path, help=f"folder of the model (default: {DEFAULT})")
    model.add_argument("--pooling", choices=POOLINGS, help="how token vectors become a text's (default: mean)")
    model.add_argument("--normalise", action="store_true", default=None, help="divide each vector by its length")
    model.add_argument(
        "--onnx", choices=("float32", "int8"), help="add ONNX files; int8: one with weights of 8 bits too"
    )
    model.add_argument("--texts", type=Path, help="a text a line: show what 8 bits lose on these")


def main(arguments: argparse.Namespace) -> None:
    """Write a folder."""
    exporter = FORMATS[arguments.format]
    given = {name: value for each in (EXAMPLES, MODEL) for name in each.options if (value := getattr(arguments, name))}
    for name in given.keys() - exporter.options.keys():
        option = f"--{name.replace('_', '-')}"
        raise PipelineError(
            "an option of another format", option, where=f"--format {arguments.format}", hint="leave it out"
        )
    if arguments.output.exists():
        raise PipelineError("the folder exists already", arguments.output, hint="name another, or remove it")
    module, _, function = exporter.function.partition(":")
    getattr(importlib.import_module(module), function)(arguments.output, arguments.format, **exporter.options | given)
