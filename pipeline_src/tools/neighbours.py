"""Tool ``neighbours``: which uses of a word are most alike to each other in a layer."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.interpretation.senses import words_of
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, word_vectors
from pipeline_src.tools.open_model import DEFAULT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("word", help="as it stands in the texts, in capitals or not")
    parser.add_argument("--file", type=Path, required=True, help="a text a line, UTF-8")
    parser.add_argument("--layer", type=int, help="0 for the embeddings; the last unless given")
    parser.add_argument("--top", type=int, default=5, help="neighbours of each use (default 5)")
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")


def main(arguments: argparse.Namespace) -> None:
    """Print each line with the word, and the lines in which it is most alike, with the cosine.

    Raises:
        PipelineError: no model, no readable file, no such layer, or the word stands in fewer than two lines.
    """
    model = StudiedModel.open(arguments.model)
    try:
        lines = arguments.file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        remedy = "give a file in UTF-8"
        raise PipelineError("texts cannot be read", error, where=arguments.file, remedy=remedy) from None
    if arguments.top < 1:
        raise PipelineError("no neighbours asked for", arguments.top, where="--top", remedy="give 1 or more")
    sentences = [Sentence(words_of(line), line) for line in lines]
    kept = [each for each in sentences if arguments.word.lower() in map(str.lower, each.words)]
    if len(kept) < 2:
        raise PipelineError(
            "the word stands in fewer than two lines", arguments.word, where=arguments.file, remedy="give more text"
        )
    words = word_vectors(model, kept)
    layers = len(words.vectors) - 1
    layer = layers if arguments.layer is None else arguments.layer
    if not 0 <= layer <= layers:
        raise PipelineError("no such layer", layer, where="--layer", remedy=f"give 0 to {layers}")
    rows: dict[int, int] = {}
    for row, (number, place) in enumerate(zip(words.sentence.tolist(), words.place.tolist(), strict=True)):
        if kept[number].words[place].lower() == arguments.word.lower():
            rows.setdefault(number, row)
    unit = torch.nn.functional.normalize(words.vectors[layer, list(rows.values())], dim=-1)
    cosines = (unit @ unit.T).fill_diagonal_(-2.0)
    nearest = cosines.topk(min(arguments.top, len(rows) - 1))
    numbers = list(rows)
    for own, values, places in zip(numbers, nearest.values.tolist(), nearest.indices.tolist(), strict=True):
        print(kept[own].document)
        for value, place in zip(values, places, strict=True):
            print(f"  {value:.3f}  {kept[numbers[place]].document}")
