"""Tools ``inspect`` (all measures of a trained model as an HTML page) and ``attention`` (attention weights)."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file, read_json
from pipeline_src.base.paths import DEFAULT_MODEL
from pipeline_src.interpret.data import InterpretationContext
from pipeline_src.interpret.heads import head_roles
from pipeline_src.interpret.interpret import write_measures
from pipeline_src.interpret.model import ProbedModel, Sentence, SkipMeasure
from pipeline_src.interpret.sentences import shown_sentences
from pipeline_src.report.interpretation import FILES, most_attended, render_interpretation
from pipeline_src.study.study import load_study
from pipeline_src.tasks.made.synthetic import RULES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", type=Path, help="the HTML page to write")
    _add_model(parser)


def main(arguments: argparse.Namespace) -> None:
    study = load_study()
    context = InterpretationContext(
        study.seed,
        study.interpretation,
        tuple(study.corpus.sources),
        study.corpus.validation,
        study.tasks,
        arguments.model,
        study.model.position_init,
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "interpretation"
        write_measures(context, folder)
        parts = {name: read_json(folder / f"{name}.json") for name in FILES}
    with atomic_file(arguments.output) as file:
        file.write(render_interpretation(parts, RULES if study.task_source == "synthetic" else ()))


def add_attention_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="a sentence")
    _add_model(parser)
    parser.add_argument("--output", type=Path, help="an HTML page of it; without it, a table on the terminal")


def attention(arguments: argparse.Namespace) -> None:
    model, sentences = ProbedModel.open(arguments.model), [Sentence.of_text(text, text) for text in arguments.texts]
    for sentence in sentences:
        if not sentence.words:
            raise PipelineError("the text has no words", repr(sentence.document), hint="give a sentence")
    try:
        attentions, roles = shown_sentences(model, sentences), head_roles(model, sentences)["roles"]
    except SkipMeasure as skipped:
        hint = "use a model with attention layers"
        raise PipelineError("the model has no attention weights", skipped, where=arguments.model, hint=hint) from None
    config = model.config
    about = {
        "title": config.names.title,
        "layers": len(roles),
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
    }
    if arguments.output:
        parts = {"contents": {"model": about, "skipped": {}}, "sentences": {"attention": attentions}}
        with atomic_file(arguments.output) as file:
            file.write(render_interpretation(parts | {"heads": {"roles": {"roles": roles}}}))
        return
    for sentence_attention in attentions:
        table = most_attended(sentence_attention, about)
        width = max(map(len, table["words"])) + 2
        print("head   " + "".join(word.ljust(width) for word in table["words"]))
        for head in table["heads"]:
            print(head["name"].ljust(7) + "".join(word.ljust(width) for word in head["most"]))
        print()


def open_masked_lm(folder: Path) -> ProbedModel:
    """Open the model in a folder, and check that it has an MLM head."""
    model = ProbedModel.open(folder)
    if model.lacks:
        hint = "set --model to a model that was pretrained with pretrain.objective: mlm"
        raise PipelineError("the model does not predict masked tokens", model.lacks, where=folder, hint=hint)
    return model


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help=f"folder (default {DEFAULT_MODEL})")
