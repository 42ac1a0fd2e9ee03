"""Tool ``attention``: where each head looks in a text, as a table or as a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file
from pipeline_src.interpretation.heads import head_roles
from pipeline_src.interpretation.senses import words_of
from pipeline_src.interpretation.shown_sentences import shown_sentences
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence
from pipeline_src.report.interpretation_page import most_attended, render_interpretation
from pipeline_src.tools.open_model import DEFAULT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="a sentence")
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")
    parser.add_argument("--output", type=Path, help="an HTML page of it; without it, a table on the terminal")


def main(arguments: argparse.Namespace) -> None:
    """Print for each head the word that each word attends to most, or write the page that shows all weights.

    Raises:
        PipelineError: no model, a text without words, or an attention that has no such weights.
    """
    model = StudiedModel.open(arguments.model)
    sentences = [Sentence(words_of(text), text) for text in arguments.texts]
    for sentence in sentences:
        if not sentence.words:
            raise PipelineError("a text without words", repr(sentence.document), remedy="give a sentence")
    try:
        shown, roles = shown_sentences(model, sentences), head_roles(model, sentences)["roles"]
    except Skipped as skipped:
        raise PipelineError(
            "no attention weights", skipped, where=arguments.model, remedy="give another model"
        ) from None
    config = model.config
    about = {
        "title": config.names.title,
        "layers": len(roles),
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
    }
    if arguments.output:
        parts = {"contents": {"model": about, "skipped": {}}, "sentences": {"attention": shown}}
        with atomic_file(arguments.output) as file:
            file.write(render_interpretation(parts | {"heads": {"roles": {"roles": roles}}}))
        return
    for each in shown:
        table = most_attended(each, about)
        width = max(map(len, table["words"])) + 2
        print("head   " + "".join(word.ljust(width) for word in table["words"]))
        for head in table["heads"]:
            print(head["name"].ljust(7) + "".join(word.ljust(width) for word in head["most"]))
        print()
