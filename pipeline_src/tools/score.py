"""Tool ``score``: how likely texts are to a model of masked words, token by token."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.interpretation.scoring import pseudo_log_likelihoods
from pipeline_src.interpretation.senses import words_of
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, cut_words
from pipeline_src.tools.open_model import DEFAULT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("texts", nargs="+", metavar="TEXT", help='such as "The man is here." "The man are here."')
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")


def main(arguments: argparse.Namespace) -> None:
    """Print each text's pseudo-log-likelihood (nats) and that of each of its tokens.

    Raises:
        PipelineError: no model that fills masks, or a text without words.
    """
    model = open_for_masks(arguments.model)
    sentences = [Sentence(words_of(text), text) for text in arguments.texts]
    for sentence in sentences:
        if not sentence.words:
            raise PipelineError("a text without words", repr(sentence.document), remedy="give a sentence")
    cut = cut_words(model, sentences)
    for sentence, ids, scores in zip(sentences, cut.ids, pseudo_log_likelihoods(model, sentences), strict=True):
        print(f"{sum(scores):9.2f}  {sentence.document}")
        tokens = [str(model.tokenizer.id_to_token(number)) for number in ids]
        print("           " + "  ".join(f"{token} {score:.2f}" for token, score in zip(tokens, scores, strict=True)))


def open_for_masks(folder: Path) -> StudiedModel:
    """A model that fills masks.

    Raises:
        PipelineError: it does not, or there is none.
    """
    model = StudiedModel.open(folder)
    if model.lacks:
        raise PipelineError(
            "the model does not predict masked words", model.lacks, where=folder,
            remedy="give --model one that was pretrained here with pretrain.objective: masked",
        )  # fmt: skip
    return model
