"""Tool ``import``: convert a Hugging Face model into a model folder of this project.

The model may be a local folder, a model on Hugging Face's hub (``hub:OWNER/NAME@REVISION``), or an entry of
``catalogue/models``.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, atomic_file, read_json
from pipeline_src.base.names import shown
from pipeline_src.base.progress import log
from pipeline_src.base.yaml_files import MODELS
from pipeline_src.model.adapter import ENCODER, MLM_HEAD, NEXT_SENTENCE, POOLER
from pipeline_src.model.bert import BertConfig, BertForPretraining, uninitialised
from pipeline_src.model.hub import (
    CARD,
    check_finite,
    check_fits,
    load_config,
    read_tensors,
    save_tensors,
)
from pipeline_src.model.model_card import imported_card
from pipeline_src.model.tokenizer_config import state_inputs
from pipeline_src.sources.catalogue import Source, SourceFile, load_source, resolve
from pipeline_src.sources.fetch import fill_folder, obtain
from pipeline_src.study.schema import HUB, HUB_MODEL
from pipeline_src.tokenizer.foreign_tokenizer import read_foreign, save_foreign
from pipeline_src.tokenizer.wordpiece import MAX_WORD_LENGTH, save_tokenizer

# Part of a model that a checkpoint may lack -> prefix of its parameter names.
PARTS = {"pooler": POOLER, "masked words": MLM_HEAD, "next sentence": NEXT_SENTENCE}
# (has the MLM head, has the NSP head) -> use of the model, a key of StateDictAdapter.classes.
USES = {
    (True, True): "pretraining",
    (True, False): "masked_lm",
    (False, True): "next_sentence",
    (False, False): "encoder",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a Hugging Face folder, hub:OWNER/NAME@REVISION, or an entry of catalogue/models"
    parser.add_argument("source", type=Path, help=text)
    parser.add_argument("destination", type=Path, help="folder to make")
    case = parser.add_mutually_exclusive_group()
    case.add_argument("--uncased", dest="lowercase", action="store_true", default=None, help="text is lower-cased")
    case.add_argument("--cased", dest="lowercase", action="store_false", help="it is not (default: detected)")


def main(arguments: argparse.Namespace) -> None:
    source = arguments.source
    destination = arguments.destination
    if destination.exists():
        raise PipelineError("the destination exists already", destination, hint="name another folder, or remove it")
    with atomic_directory(destination) as output:
        made = fetch_and_import(source, output, arguments.lowercase)
    print(
        f"{destination}: {made.config.num_hidden_layers} layers, {made.config.hidden_size} wide, {made.entries} "
        f"entries ({made.tokenizer}); encoder{''.join(f', {part}' for part in made.parts)}"
    )


@dataclass(frozen=True)
class Imported:
    config: BertConfig
    # The keys of PARTS that the model has.
    parts: list[str]
    # Number of entries in the vocabulary.
    entries: int
    # The tokenizer's kind ("BPE"). For WordPiece, "cased" or "uncased".
    tokenizer: str


def fetch_and_import(source: Path, output: Path, lowercase: bool | None = None) -> Imported:
    """Import a model into the folder ``output``, and download it first if necessary.

    Args:
        source: local folder, ``hub:OWNER/NAME@REVISION``, or an entry of ``catalogue/models`` (a YAML file).
        lowercase: whether a WordPiece tokenizer lower-cases text. None: detect it.
    """
    name = str(source)
    if source.suffix == ".yaml":
        name = source.stem
        entry = load_source(MODELS, source.stem)
    elif name.startswith(HUB) and not source.exists():
        if not HUB_MODEL.fullmatch(name):
            raise PipelineError(
                "invalid name of a model on the hub", name, hint="write hub:OWNER/NAME@REVISION, such as @main"
            )
        files = (SourceFile(path=".", url=name),)
        entry = Source(description=name, licence="see its card", citation=name, files=files)
    else:
        return import_model(source, output, lowercase)
    with TemporaryDirectory(dir=output) as folder:
        fill_folder(name, entry, obtain(name, resolve(name, entry)), Path(folder))
        return import_model(Path(folder), output, lowercase)


def _max_word_length(source: Path) -> int:
    # A longer word becomes [UNK]. For a folder without tokenizer.json, transformers' BertTokenizer has a fixed limit.
    path = source / "tokenizer.json"
    model = read_json(path, dict).get("model", {}) if path.exists() else {}
    return int(model.get("max_input_chars_per_word", MAX_WORD_LENGTH))


def import_model(source: Path, output: Path, lowercase: bool | None = None) -> Imported:
    if not source.is_dir():
        raise PipelineError("the model folder does not exist", source, hint="give the path of a model folder")
    if any(source.glob("*.ckpt.index")):
        hint = "import the same model from Hugging Face's hub, for example hub:google-bert/bert-base-uncased@main"
        raise PipelineError("TensorFlow checkpoints are not supported", source, hint=hint)
    config = load_config(source)
    tensors = read_tensors(source, config.names)
    tensors, parts = select_tensors(tensors, config, source)
    for name, tensor in tensors.items():
        check_finite(name, tensor, source)
    foreign = read_foreign(source, config.names.model_type)
    vocabulary = read_vocabulary(source) if foreign is None else sorted(foreign.get_vocab())
    if len(vocabulary) > config.vocab_size:
        raise PipelineError(
            "the vocabulary has more entries than the model",
            f"{len(vocabulary)} > {config.vocab_size}",
            where=source,
            hint="replace vocab.txt by the file with which the model was trained",
        )
    huggingface_class = config.names.classes[USES["masked words" in parts, "next sentence" in parts]]
    save_tensors(output, tensors, config, huggingface_class)
    if foreign is None:
        lowercase = find_case(source, vocabulary) if lowercase is None else lowercase
        tokenizer = "uncased" if lowercase else "cased"
        save_tokenizer(output, vocabulary, lowercase, _max_word_length(source))
    else:
        tokenizer = type(foreign.model).__name__
        save_foreign(output, foreign)
    state_inputs(output, config.longest_input, config.type_vocab_size)
    if (source / CARD).exists():
        # Keep the model card of the model's authors.
        shutil.copyfile(source / CARD, output / CARD)
    else:
        count = sum(tensor.numel() for tensor in tensors.values())
        with atomic_file(output / CARD) as file:
            file.write(imported_card(config, count, huggingface_class))
    return Imported(config, parts, len(vocabulary), tokenizer)


def select_tensors(
    tensors: Mapping[str, Tensor], config: BertConfig, where: object
) -> tuple[dict[str, Tensor], list[str]]:
    starts = [*ENCODER]
    parts = []
    for part, start in PARTS.items():
        if any(name.startswith(start) for name in tensors):
            parts.append(part)
            starts.append(start)
    # The model has parameter names and shapes, but no memory for values.
    with uninitialised():
        model = BertForPretraining(config)
    wanted = tuple(starts)
    selected = {}
    for name, parameter in model.named_parameters():
        if name.startswith(wanted):
            selected[name] = check_fits(name, tensors.get(name), parameter.shape, where).float()
    ignored = sorted(tensors.keys() - selected.keys())
    if ignored:
        log.warning("not imported, since pretraining does not use these weights: %s", ", ".join(ignored))
    return selected, parts


def read_vocabulary(folder: Path) -> list[str]:
    path = folder / "vocab.txt"
    if path.exists():
        try:
            # Do not use splitlines(): entries may contain other Unicode line separators.
            lines = path.read_bytes().decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise PipelineError("not UTF-8", path, where=f"byte {error.start:,}", hint="download it again") from None
        vocabulary = [line.removesuffix("\r") for line in lines]
        vocabulary = vocabulary[:-1] if vocabulary[-1] == "" else vocabulary
    else:
        path = folder / "tokenizer.json"
        written = read_json(path)
        model = written.get("model") if isinstance(written, dict) else None
        ids = model.get("vocab") if isinstance(model, dict) and model.get("type", "WordPiece") == "WordPiece" else None
        if not (isinstance(ids, dict) and ids and all(type(number) is int for number in ids.values())):
            kind = model.get("type") if isinstance(model, dict) else None
            raise PipelineError("not a WordPiece vocabulary", kind, where=path, hint="use a model with a vocab.txt")
        vocabulary = sorted(ids, key=ids.__getitem__)
        if sorted(ids.values()) != list(range(len(vocabulary))):
            raise PipelineError("vocabulary ids are not 0, 1, 2, ...", path, hint="use a model with a vocab.txt")
    twice = [entry for entry, count in Counter(vocabulary).items() if count > 1]
    if twice:
        entry = repr(twice[0])
        raise PipelineError("duplicate entry in the vocabulary", entry, where=path, hint="download the model again")
    return vocabulary


def find_case(folder: Path, vocabulary: list[str]) -> bool:
    # Returns whether the tokenizer lower-cases text, from ``tokenizer_config.json``, or guessed from the vocabulary.
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.exists() else {}
    if not isinstance(config, dict):
        raise PipelineError("not a JSON object", shown(config), where=path, hint="download the model again")
    lowercase = config.get("do_lower_case")
    if lowercase is not None and not isinstance(lowercase, bool):
        raise PipelineError(
            "do_lower_case is not true or false",
            shown(lowercase),
            where=path,
            hint="correct the value, or download the model again",
        )
    if lowercase is None:
        words = (entry for entry in vocabulary if not (entry.startswith("[") and entry.endswith("]")))
        lowercase = all(word == word.lower() for word in words)
        log.warning(
            "%s does not say whether text is lower-cased; by its vocabulary it is %s (--cased, --uncased)",
            folder,
            "uncased" if lowercase else "cased",
        )
    supported = {"strip_accents": (None, lowercase), "tokenize_chinese_chars": (None, True)}
    for key, allowed in supported.items():
        if config.get(key) not in allowed:
            raise PipelineError(
                "unsupported tokenizer setting",
                f"{key}: {json.dumps(config[key])}",
                where=path,
                hint="use a model whose tokenizer splits text like google-research/bert's",
            )
    return bool(lowercase)
