"""Tools ``release`` and ``models``: a model as a folder for a hub, and a table of the study's models."""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path
from typing import Any

from pipeline_src.base.files import atomic_directory, hash_file, read_json, write_json
from pipeline_src.base.paths import FINETUNED, PRETRAINED
from pipeline_src.base.yaml_files import ROOT
from pipeline_src.engine.dvc_lock import LOCK, hashes, parse_entry, split_entries
from pipeline_src.model.hub import CARD
from pipeline_src.report.run_page import described_commit
from pipeline_src.tools.export import check_new, write_model

# Rows of a card: "| step | 1000 |" and "| validation text | mlm_loss | 4.625 |". A fine-tuned model's card has a row
# finetune_seed below the study's seed: the last one counts. Numbers of examples are no scores.
VALUE = re.compile(r"^\| (?:finetune_)?([\w.]+) \| ([^|\n]+) \|$", re.MULTILINE)
SCORE = re.compile(r"^\| (?!training text)(.+) \| (?!examples|predictions)(\w+) \| ([-+.e\d]+) \|$", re.MULTILINE)
# Heads of the tables that have these rows, as in model/model_card.md.j2. A card from elsewhere has other heads.
PARAMETERS = ("parameter", "value")
COST = ("what", "amount")
SCORES = ("on", "what", "value")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a pretrained, fine-tuned or exported model")
    parser.add_argument("output", type=Path, help="folder to write, which must not exist yet")


def main(arguments: argparse.Namespace) -> None:
    output = arguments.output
    check_new(output)
    with atomic_directory(output) as folder:
        write_model(arguments.model, folder)
        card = folder / CARD
        about_model = {
            "title": card.read_text(encoding="utf-8").partition("\n# ")[2].partition("\n")[0],
            "description": "README.md describes the model.",
            "upload_type": "other",
            # Without a licence, Zenodo would publish the weights under CC BY.
            "license": "notspecified",
        }
        shutil.copyfile(ROOT / "CITATION.cff", folder / "CITATION.cff")
        write_json(folder / ".zenodo.json", read_json(ROOT / ".zenodo.json") | about_model)
        write_json(folder / "release.json", describe(arguments.model, card))
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        sums = [f"{hash_file(path)}  {path.relative_to(folder)}\n" for path in files]
        (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    print(f"hf upload OWNER/NAME {output} .")


def describe(model: Path, card: Path) -> dict[str, Any]:
    """Return what a card says of a model's training and scores, and what dvc.lock says of its inputs.

    Returns:
        ``step``, ``tokens`` (of all phases, if dvc.lock has them), ``seed``, ``scores`` (evaluation set, name, value),
        ``commit`` and ``inputs`` (path -> hash). ``step`` and ``seed`` are None if the card does not say them.
    """
    text = card.read_text(encoding="utf-8")
    parameters = dict(VALUE.findall(table_rows(text, PARAMETERS)))
    cost = dict(VALUE.findall(table_rows(text, COST)))
    tokens = whole_number(cost.get("tokens", "")) or 0
    inputs = recorded_inputs(model)
    for path in map(Path, inputs):
        if path.is_relative_to(PRETRAINED):
            tokens += describe(path, path / CARD)["tokens"]
    return {
        "step": whole_number(parameters.get("step", "")),
        "tokens": tokens,
        "seed": whole_number(parameters.get("seed", "")),
        "scores": SCORE.findall(table_rows(text, SCORES)),
        "commit": described_commit(),
        "inputs": inputs,
    }


def table_rows(card: str, head: tuple[str, ...]) -> str:
    # Returns the rows of the table with this head, or nothing if the card has no such table.
    first_lines = f"\n| {' | '.join(head)} |\n|{' --- |' * len(head)}\n"
    after_head = card.partition(first_lines)[2]
    return after_head.partition("\n\n")[0]


def whole_number(text: str) -> int | None:
    # Reads "7", "2,195,426" or "1.234e+12". Other text, such as "n/a", gives None.
    digits = text.replace(",", "")
    if digits.isdecimal():
        return int(digits)
    try:
        return int(float(digits))
    except (ValueError, OverflowError):
        return None


def recorded_inputs(model: Path) -> dict[str, str]:
    # A kept model, models/pretrained/phase2/steps/1000, is in the output of its stage, models/pretrained/phase2.
    output = re.sub(r"(pretrained/[^/]+)/.*", r"\1", str(model))
    lock = LOCK.read_text(encoding="utf-8") if LOCK.exists() else ""
    for entry in split_entries(lock).values():
        if f"path: {output}\n" in entry.partition("outs:")[2]:
            return hashes(parse_entry(entry), "deps")
    return {}


def add_models_arguments(parser: argparse.ArgumentParser) -> None:
    # The tool has no arguments.
    pass


def models(arguments: argparse.Namespace) -> None:
    print("| model | step | tokens | scores | SHA-256 of the weights |\n| --- | ---: | ---: | --- | --- |")
    for folder in (PRETRAINED, FINETUNED):
        for weights in sorted(folder.rglob("model.safetensors")):
            model = weights.parent
            record = describe(model, model / CARD)
            scores = "; ".join(map(" ".join, record["scores"]))
            print(
                f"| {model} | {record['step'] or '–'} | {record['tokens']:,} | {scores} | {hash_file(weights)} |",
            )
