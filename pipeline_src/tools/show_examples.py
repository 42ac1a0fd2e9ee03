"""Tools ``show-examples`` (print pretraining examples as text) and ``corpus-stats`` (statistics as JSON)."""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.counter_rng import permuted
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.paths import VOCABULARY
from pipeline_src.examples.token_store import SPLITS
from pipeline_src.pretrain.data import (
    PretrainingBatch,
    PretrainingExamples,
    ReadablePiece,
    open_examples,
    pair_label,
    readable_pieces,
)
from pipeline_src.pretrain.validation import open_validation_examples
from pipeline_src.study.study import Study, load_study
from pipeline_src.tokenizer.load import kind_of, load_tokenizer

STYLES = {"mask": "\033[1;31m", "random": "\033[1;33m", "keep": "\033[1;32m"}
RESET = "\033[0m"
KEY = "what is predicted is in braces: {{{mask} word}}, {{other word}} in place of a word, {{word=}} left as it is"
NEXT_KEY = "every word is predicted from those before it; none is masked or replaced"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--phase", default="phase1", help="default: phase1")
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument("--count", type=int, default=3, help="how many, from all over the phase (default 3)")
    parser.add_argument("--example", type=int, help="only this one, by its number")
    parser.add_argument("--epoch", type=int, default=0, help="whose masks, if masking is dynamic")


def main(arguments: argparse.Namespace) -> None:
    study = load_study()
    tokenizer = load_tokenizer(VOCABULARY)
    phase, split = arguments.phase, arguments.split
    examples = open_study_examples(study, phase, split, tokenizer)
    if arguments.example is None:
        count = min(max(arguments.count, 1), len(examples))
        numbers = permuted(study.seed, np.arange(count), len(examples))
    elif 0 <= arguments.example < len(examples):
        numbers = np.asarray([arguments.example])
    else:
        raise PipelineError("no such example", arguments.example, hint=f"give a number from 0 to {len(examples) - 1}")
    label_shift = examples.collator.label_shift
    print(NEXT_KEY if label_shift else KEY.format(mask=kind_of(tokenizer).mask))
    for number in numbers:
        batch = examples.batch(np.asarray([number]), arguments.epoch)
        counts = f"{len(batch.ids)} tokens, {len(batch.predicted)} predicted"
        label = pair_label(examples, batch)
        if label:
            counts += f"; {label}"
        print(f"\nexample {number} ({phase}, {split}): {counts}")
        lines = as_text(batch, tokenizer, label_shift, colour=sys.stdout.isatty())
        for name, line in zip("AB", lines, strict=False):
            print(f"  {name}: {line}")


def open_study_examples(study: Study, phase: str, split: str, tokenizer: Tokenizer) -> PretrainingExamples:
    """Open the examples of a split, with the masks that training or validation uses."""
    pretrain, architecture = study.pretrain, study.model.architecture
    if split == "validation":
        return open_validation_examples(phase, tokenizer, pretrain.objective, architecture)
    masks = (study.mask_prob, pretrain.masking, study.seed, pretrain.objective, architecture)
    return open_examples(phase, split, tokenizer, *masks)


def as_text(batch: PretrainingBatch, tokenizer: Tokenizer, label_shift: int, colour: bool = False) -> list[str]:
    lines = []
    for segment in readable_pieces(batch, tokenizer, label_shift):
        words = [("" if piece.inner else " ") + _marked(piece, colour) for piece in segment]
        lines.append("".join(words).strip())
    return lines


def _marked(piece: ReadablePiece, colour: bool) -> str:
    if piece.fate in (None, "next"):
        return piece.text
    text = f"{{{piece.text}=}}" if piece.fate == "keep" else f"{{{piece.text} {piece.was}}}"
    return f"{STYLES[piece.fate]}{text}{RESET}" if colour else text


def add_statistics_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def statistics(arguments: argparse.Namespace) -> None:
    from pipeline_src.examples.corpus_statistics import corpus_statistics

    study = load_study()
    print(json.dumps(corpus_statistics(study.corpus.sources, study.tasks), indent=2, ensure_ascii=False))
