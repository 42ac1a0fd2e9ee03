"""Tools on a trained model: ``inspect``, ``attention``, ``neighbours`` and ``score``."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file, read_json
from pipeline_src.config.study import load_study
from pipeline_src.interpretation.data import InterpretationContext, words_of
from pipeline_src.interpretation.heads import head_roles
from pipeline_src.interpretation.interpret import write_measures
from pipeline_src.interpretation.model import (
    ProbedModel,
    Sentence,
    SkipMeasure,
    pseudo_log_likelihoods,
    tokenize_words,
    word_vectors,
)
from pipeline_src.interpretation.sentences import shown_sentences
from pipeline_src.report.interpretation import FILES, most_attended, render_interpretation
from pipeline_src.tools.open_model import DEFAULT
from pipeline_src.tools.texts import read_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``inspect``."""
    parser.add_argument("output", type=Path, help="the HTML page to write")
    _add_model(parser)


def main(arguments: argparse.Namespace) -> None:
    """Measure a model on the text and tasks of the study in params.yaml, and write the page."""
    study = load_study()
    context = InterpretationContext(
        study.seed, study.interpretation, tuple(study.corpus.sources), study.corpus.validation, study.tasks,
        arguments.model, study.model.position_init,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "interpretation"
        write_measures(context, folder)
        parts = {name: read_json(folder / f"{name}.json") for name in FILES}
    with atomic_file(arguments.output) as file:
        file.write(render_interpretation(parts))


def add_attention_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``attention``."""
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="a sentence")
    _add_model(parser)
    parser.add_argument("--output", type=Path, help="an HTML page of it; without it, a table on the terminal")


def attention(arguments: argparse.Namespace) -> None:
    """Print for each head the word that each word attends to most, or write the page that shows all probabilities."""
    model, sentences = ProbedModel.open(arguments.model), _sentences(arguments.texts)
    try:
        shown, roles = shown_sentences(model, sentences), head_roles(model, sentences)["roles"]
    except SkipMeasure as skipped:
        hint = "give another model"
        raise PipelineError("no attention weights", skipped, where=arguments.model, hint=hint) from None
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


def add_neighbours_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``neighbours``."""
    parser.add_argument("word", help="as it is in the texts; case is ignored")
    parser.add_argument("--file", type=Path, required=True, help="a text a line, UTF-8")
    parser.add_argument("--layer", type=int, help="0 for the embeddings; the last unless given")
    parser.add_argument("--top", type=int, default=5, help="neighbours of each use (default 5)")
    _add_model(parser)


def neighbours(arguments: argparse.Namespace) -> None:
    """Print each line with the word, and the lines in which it is most similar, with the cosine."""
    model = ProbedModel.open(arguments.model)
    lines = list(read_lines(arguments.file))
    if arguments.top < 1:
        raise PipelineError("no neighbours asked for", arguments.top, where="--top", hint="give 1 or more")
    sentences, word = [Sentence(words_of(line), line) for line in lines], arguments.word.lower()
    kept = [each for each in sentences if word in map(str.lower, each.words)]
    if len(kept) < 2:
        raise PipelineError(
            "fewer than two lines have the word", arguments.word, where=arguments.file, hint="give more text"
        )
    words = word_vectors(model, kept)
    layers = len(words.vectors) - 1
    layer = layers if arguments.layer is None else arguments.layer
    if not 0 <= layer <= layers:
        raise PipelineError("no such layer", layer, where="--layer", hint=f"give 0 to {layers}")
    rows: dict[int, int] = {}
    for row, (number, place) in enumerate(zip(words.sentence.tolist(), words.position.tolist(), strict=True)):
        if kept[number].words[place].lower() == word:
            rows.setdefault(number, row)
    unit = torch.nn.functional.normalize(words.vectors[layer, list(rows.values())], dim=-1)
    cosines = (unit @ unit.T).fill_diagonal_(-2.0)
    nearest = cosines.topk(min(arguments.top, len(rows) - 1))
    numbers = list(rows)
    for own, values, places in zip(numbers, nearest.values.tolist(), nearest.indices.tolist(), strict=True):
        print(kept[own].document)
        for value, place in zip(values, places, strict=True):
            print(f"  {value:.3f}  {kept[numbers[place]].document}")


def add_score_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``score``."""
    parser.add_argument("texts", nargs="+", metavar="TEXT", help='such as "The man is here." "The man are here."')
    _add_model(parser)


def score(arguments: argparse.Namespace) -> None:
    """Print each text's pseudo-log-likelihood (nats) and that of each of its tokens."""
    model, sentences = open_masked_lm(arguments.model), _sentences(arguments.texts)
    subwords = tokenize_words(model, sentences)
    log_probs = pseudo_log_likelihoods(model, subwords.ids, subwords.words)
    for sentence, ids, scores in zip(sentences, subwords.ids, log_probs, strict=True):
        print(f"{sum(scores):9.2f}  {sentence.document}")
        tokens = [str(model.tokenizer.id_to_token(number)) for number in ids]
        print("           " + "  ".join(f"{token} {score:.2f}" for token, score in zip(tokens, scores, strict=True)))


def open_masked_lm(folder: Path) -> ProbedModel:
    """Open a model that fills masks."""
    model = ProbedModel.open(folder)
    if model.lacks:
        hint = "give --model one that was pretrained here with pretrain.objective: mlm"
        raise PipelineError("the model does not predict masked words", model.lacks, where=folder, hint=hint)
    return model


def _sentences(texts: Iterable[str]) -> list[Sentence]:
    sentences = [Sentence(words_of(text), text) for text in texts]
    for sentence in sentences:
        if not sentence.words:
            raise PipelineError("a text without words", repr(sentence.document), hint="give a sentence")
    return sentences


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")
