"""Tool ``export``: write a model for sentence-transformers, or pretraining examples as Parquet."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, read_json, write_json
from pipeline_src.base.paths import DEFAULT_MODEL, VOCABULARY
from pipeline_src.base.progress import Progress
from pipeline_src.examples.token_store import SPLITS
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.model.bert import BertConfig
from pipeline_src.model.hub import CARD, MAX_LENGTH
from pipeline_src.model.losses import IGNORE_INDEX
from pipeline_src.model.model_card import POOLED, imported_card, sentence_card
from pipeline_src.model.tokenizer_config import state_inputs
from pipeline_src.study.study import load_study
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tools.show_examples import open_study_examples

# Pooling mode of this tool -> its name in sentence-transformers.
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
# Options of each format, with their defaults.
MODEL_OPTIONS: dict[str, Any] = {"model": DEFAULT_MODEL, "pooling": "mean", "normalise": False}
EXAMPLE_OPTIONS: dict[str, Any] = {"phase": "phase1", "split": "train"}
OPTIONS = {"sentence-transformers": MODEL_OPTIONS, "parquet": EXAMPLE_OPTIONS}
# What other libraries do not read (moments of the optimizer, models kept on the way, ELECTRA's generator), and the
# checksums of a release.
IGNORED_FILES = shutil.ignore_patterns("training_state", "steps", "generator", "SHA256SUMS")
MAX_EXAMPLES_PER_FILE = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # Options of a format have no default here, so that `main` can tell which options the user gave.
    parser.add_argument("output", type=Path, help="folder to write; must not exist")
    parser.add_argument(
        "--format",
        choices=OPTIONS,
        required=True,
        help="sentence-transformers: a model's folder for that library and transformers; parquet: the examples of a "
        "phase",
    )
    model = parser.add_argument_group("model")
    model.add_argument("--model", type=Path, help=f"folder of the model (default: {DEFAULT_MODEL})")
    model.add_argument("--pooling", choices=POOLED, help="how token vectors become a text's (default: mean)")
    model.add_argument("--normalise", action="store_true", default=None, help="divide each vector by its length")
    examples = parser.add_argument_group("examples")
    examples.add_argument("--phase", help="default: phase1")
    examples.add_argument("--split", choices=SPLITS, help="default: train")


def main(arguments: argparse.Namespace) -> None:
    output, kind = arguments.output, arguments.format
    options = dict(OPTIONS[kind])
    for name in (*MODEL_OPTIONS, *EXAMPLE_OPTIONS):
        value = getattr(arguments, name)
        if value is not None and name not in options:
            what = "option does not apply to this format"
            raise PipelineError(what, f"--{name}", where=f"--format {kind}", hint="remove the option")
        if value is not None:
            options[name] = value
    check_new(output)
    WRITERS[kind](output, **options)


def check_new(output: Path) -> None:
    if output.exists():
        raise PipelineError("output folder already exists", output, hint="name a new folder, or remove this one")


def export_examples(output: Path, phase: str, split: str, per_file: int = MAX_EXAMPLES_PER_FILE) -> None:
    """Write masked pretraining examples as Parquet files.

    The training split has the study's own masks. The validation split has the masks of the validation loss, which do
    not depend on the study's ``mask_prob`` and ``seed``.

    The columns are named as in transformers: ``input_ids`` and ``token_type_ids`` (without padding), ``labels`` (-100
    for tokens that are not predicted), and ``next_sentence_label`` if examples are sentence pairs.

    Args:
        per_file: maximum number of examples per file.
    """
    study = load_study()
    if split == "train" and study.pretrain.masking.dynamic:
        raise PipelineError(
            "dynamic masking cannot be exported",
            "pretrain.masking.dynamic: true",
            where="params.yaml",
            hint="set it to false; examples.dupe_factor then masks each text in several ways",
        )
    examples = open_study_examples(study, phase, split, load_tokenizer(VOCABULARY))
    with atomic_directory(output) as folder, Progress("exporting", len(examples), "example") as progress:
        for start in range(0, len(examples), per_file):
            stop = min(start + per_file, len(examples))
            batch = examples.batch(np.arange(start, stop))
            labels = np.full_like(batch.ids, IGNORE_INDEX)
            labels[batch.predicted + examples.collator.label_shift] = batch.labels
            flat = {"input_ids": batch.ids, "token_type_ids": batch.segments, "labels": labels}
            bounds = batch.cu_seqlens[1:-1]
            table = pd.DataFrame({name: np.split(values, bounds) for name, values in flat.items()})
            if examples.has_pairs:
                table["next_sentence_label"] = batch.pair_label
            table.to_parquet(folder / f"examples-{start // per_file:05d}.parquet", index=False)
            progress.advance(len(table))
    print(f"{len(examples):,} examples in {output}")


def export_model(output: Path, model: Path, pooling: str, normalise: bool) -> None:
    steps = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    paths = ["", *(f"{number}_{step}" for number, step in enumerate(steps[1:], 1))]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{step}"}
        for number, (step, path) in enumerate(zip(steps, paths, strict=True))
    ]
    modes = {f"pooling_mode_{mode}": name == pooling for name, mode in MODES.items()}
    with atomic_directory(output) as folder:
        config = write_model(model, folder)
        write_json(folder / "modules.json", modules)
        max_length = read_json(model / "config.json").get(MAX_LENGTH, config.longest_input)
        write_json(
            folder / "sentence_bert_config.json",
            {"max_seq_length": max_length, "do_lower_case": False},
        )
        # They are there if the model is such an export.
        for path in paths[1:]:
            (folder / path).mkdir(exist_ok=True)
        write_json(
            folder / paths[1] / "config.json",
            {"word_embedding_dimension": config.hidden_size, **modes},
        )
        card = folder / CARD
        text = sentence_card(card.read_text(encoding="utf-8"), pooling, normalise)
        card.write_text(text, encoding="utf-8")


def write_model(model: Path, folder: Path) -> BertConfig:
    """Copy what other libraries read, and write a card if the model has none."""
    probed = ProbedModel.open(model)
    config = probed.config
    if not config.names.in_transformers:
        raise PipelineError(
            "architecture is not in transformers",
            config.names.model_type,
            where=model,
            hint="export another model; this one works with `python -m pipeline_src fill-mask`, `attention`, `inspect`",
        )
    shutil.copytree(model, folder, ignore=IGNORED_FILES, copy_function=shutil.copyfile, dirs_exist_ok=True)
    state_inputs(folder, config.longest_input, config.type_vocab_size)
    card = folder / CARD
    if not card.exists():
        count = sum(parameter.numel() for parameter in probed.encoder.parameters())
        card.write_text(imported_card(config, count, config.names.classes["encoder"]), encoding="utf-8")
    return config


WRITERS: dict[str, Callable[..., None]] = {
    "sentence-transformers": export_model,
    "parquet": export_examples,
}
