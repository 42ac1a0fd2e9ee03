"""Tool ``import``: a Hugging Face folder or a checkpoint of Google's as a model folder of this project."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, atomic_file, read_json
from pipeline_src.common.names import shown
from pipeline_src.common.progress import log
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.card import write_card
from pipeline_src.models.card_kinds import imported_card
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.hub import CARD, load_config, save_tensors
from pipeline_src.models.names import ENCODER, MASKED_WORDS, NEXT_SENTENCE, POOLER
from pipeline_src.models.tensors import check_fits, read_tensors, refuse_unbounded
from pipeline_src.models.undrawn import undrawn
from pipeline_src.tokenizer.wordpiece import save_tokenizer
from pipeline_src.tools.foreign_tokenizer import read_foreign, save_foreign
from pipeline_src.tools.tensorflow_checkpoint import find_prefix, is_checkpoint, load_google

PARTS = {"pooler": POOLER, "masked words": MASKED_WORDS, "next sentence": NEXT_SENTENCE}  # beside the encoder
USES = {  # has the head of masked words, that of next sentences -> use of the model (``models.names``)
    (True, True): "pretraining",
    (True, False): "masked_words",
    (False, True): "next_sentence",
    (False, False): "encoder",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("source", type=Path, help="a Hugging Face folder, Google's folder, or one checkpoint's prefix")
    parser.add_argument("destination", type=Path, help="folder to make")
    case = parser.add_mutually_exclusive_group()
    case.add_argument("--uncased", dest="lowercase", action="store_true", default=None, help="text is lower-cased")
    case.add_argument("--cased", dest="lowercase", action="store_false", help="it is not; by default found out")


def main(arguments: argparse.Namespace) -> None:
    """Write the model folder, and say what it holds.

    Raises:
        PipelineError: the destination exists, or the source is no BERT model or lacks a vocabulary.
    """
    source, destination = arguments.source, arguments.destination
    if destination.exists():
        raise PipelineError("the destination exists already", destination, remedy="remove it, or name another")
    if is_checkpoint(source):
        config, tensors = load_google(source)
        folder = find_prefix(source).parent
    elif source.is_dir():
        config = load_config(source)
        tensors = read_tensors(source, config.names)
        folder = source
    else:
        raise PipelineError("no model here", source, remedy="give a folder, or a checkpoint's path without .index")
    kept, parts = complete(tensors, config, source)
    for name, tensor in kept.items():
        refuse_unbounded(name, tensor, source)
    foreign = read_foreign(folder, config.names.model_type)
    vocabulary = read_vocabulary(folder) if foreign is None else sorted(foreign.get_vocab())
    if len(vocabulary) > config.vocab_size:
        raise PipelineError(
            "the vocabulary has more entries than the model", f"{len(vocabulary)} > {config.vocab_size}", where=folder,
            remedy="put the vocab.txt there that the model was trained with",
        )  # fmt: skip
    how = type(foreign.model).__name__ if foreign else ""
    if foreign is None:
        lowercase = find_case(folder, vocabulary) if arguments.lowercase is None else arguments.lowercase
        how = "uncased" if lowercase else "cased"
    huggingface_class = config.names.classes[USES["masked words" in parts, "next sentence" in parts]]
    with atomic_directory(destination) as output:
        save_tensors(output, kept, config, huggingface_class)
        if foreign is None:
            save_tokenizer(output, vocabulary, lowercase)
        else:
            save_foreign(output, foreign)
        if (folder / CARD).exists():
            shutil.copyfile(folder / CARD, output / CARD)  # what its makers say of it
        else:
            count = sum(tensor.numel() for tensor in kept.values())
            with atomic_file(output / CARD) as file:
                file.write(write_card(imported_card(config, count, huggingface_class)))
    print(
        f"{destination}: {config.num_hidden_layers} layers, {config.hidden_size} wide, {len(vocabulary)} entries "
        f"({how}); encoder{''.join(f', {part}' for part in parts)}"
    )


def complete(tensors: Mapping[str, Tensor], config: BertConfig, where: object) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors that a ``BertForPretraining`` can hold, as float32, and which parts beside the encoder they make.

    Raises:
        PipelineError: a tensor of the encoder, or of a part that is there, is missing or has another shape.
    """
    with undrawn():  # names and shapes without memory
        shapes = {name: parameter.shape for name, parameter in BertForPretraining(config).named_parameters()}
    parts = [part for part, start in PARTS.items() if any(name.startswith(start) for name in tensors)]
    starts = (*ENCODER, *(PARTS[part] for part in parts))
    kept = {}
    for name, shape in shapes.items():
        if not name.startswith(starts):
            continue
        kept[name] = check_fits(name, tensors.get(name), shape, where).float()
    if left := sorted(set(tensors) - set(kept)):
        log.warning("left out, no part of pretraining: %s", ", ".join(left))
    return kept, parts


def read_vocabulary(folder: Path) -> list[str]:
    """The entries of ``vocab.txt``, or else of a WordPiece ``tokenizer.json``, in the order of their ids.

    Raises:
        PipelineError: neither is there, or an entry stands there twice.
    """
    path = folder / "vocab.txt"
    if path.exists():
        try:
            lines = path.read_bytes().decode("utf-8").split("\n")  # entries may hold other line ends of Unicode
        except UnicodeDecodeError as error:
            raise PipelineError("not UTF-8", path, where=f"byte {error.start:,}", remedy="fetch it again") from None
        vocabulary = [line.removesuffix("\r") for line in lines]
        vocabulary = vocabulary[:-1] if vocabulary[-1] == "" else vocabulary
    else:
        path = folder / "tokenizer.json"
        written = read_json(path)
        model = written.get("model") if isinstance(written, dict) else None
        ids = model.get("vocab") if isinstance(model, dict) and model.get("type", "WordPiece") == "WordPiece" else None
        if not (isinstance(ids, dict) and ids and all(type(number) is int for number in ids.values())):
            kind = model.get("type") if isinstance(model, dict) else None
            raise PipelineError("not a WordPiece vocabulary", kind, where=path, remedy="give a folder with a vocab.txt")
        vocabulary = sorted(ids, key=ids.__getitem__)
        if sorted(ids.values()) != list(range(len(vocabulary))):
            raise PipelineError("ids are not 0, 1, 2, ...", path, remedy="give a folder with a vocab.txt")
    if len(set(vocabulary)) != len(vocabulary):
        seen: set[str] = set()
        twice = next(entry for entry in vocabulary if entry in seen or seen.add(entry))  # type: ignore[func-returns-value]
        raise PipelineError("an entry stands in the vocabulary twice", repr(twice), where=path, remedy="fetch it again")
    return vocabulary


def find_case(folder: Path, vocabulary: list[str]) -> bool:
    """Whether text is lower-cased: as ``tokenizer_config.json`` says, else guessed from the vocabulary, and logged.

    Raises:
        PipelineError: the file says neither yes nor no, or accents or Chinese characters are treated otherwise than in
            google-research/bert.
    """
    path = folder / "tokenizer_config.json"
    said = read_json(path) if path.exists() else {}
    if not isinstance(said, dict):
        raise PipelineError("not a tokenizer's config", shown(said), where=path, remedy="fetch the model again")
    lowercase = said.get("do_lower_case")
    if lowercase is not None and not isinstance(lowercase, bool):
        raise PipelineError(
            "neither true nor false", f"do_lower_case: {shown(lowercase)}", where=path,
            remedy="mend it there, or fetch the model again",
        )  # fmt: skip
    if lowercase is None:
        words = (entry for entry in vocabulary if not (entry.startswith("[") and entry.endswith("]")))
        lowercase = all(word == word.lower() for word in words)
        log.warning(
            "%s does not say whether text is lower-cased; by its vocabulary it is %s (--cased, --uncased)",
            folder, "uncased" if lowercase else "cased",
        )  # fmt: skip
    ours = {"strip_accents": (None, lowercase), "tokenize_chinese_chars": (None, True)}
    for key, allowed in ours.items():
        if said.get(key) not in allowed:
            raise PipelineError(
                "the tokenizer splits text in another way", f"{key}: {json.dumps(said[key])}", where=path,
                remedy="give a model whose tokenizer is that of google-research/bert",
            )  # fmt: skip
    return bool(lowercase)
