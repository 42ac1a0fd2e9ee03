"""Read and write model folders in Hugging Face's layout (config.json, model.safetensors and tokenizer files)."""

from __future__ import annotations

import math
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file, read_json, system_errors, write_json
from pipeline_src.base.names import check_file_name, shown
from pipeline_src.base.registry import member_names
from pipeline_src.model.adapter import ACTIVATIONS, BERT, SAVED_ACTIVATIONS, StateDictAdapter
from pipeline_src.model.bert import (
    INITIAL_STD,
    NOT_SAVED,
    Bert,
    BertConfig,
    architecture_name,
    load_architecture,
    uninitialised,
)
from pipeline_src.model.tokenizer_config import state_inputs


def read_tensors(folder: Path, names: StateDictAdapter) -> dict[str, Tensor]:
    """Read all parameters of a model folder, under this project's names.

    The tensors are memory-mapped if the file format allows it.
    """
    huggingface_class = _class_of(folder / "config.json")
    tensors = {}
    for name, tensor in _read_files(folder).items():
        if not re.search(names.buffers, name):
            tensors[names.from_hf_name(name, huggingface_class)] = tensor
    decoder_name, embedding_name = names.tied
    decoder = tensors.pop(decoder_name, None)
    embedding = tensors.get(embedding_name)
    if decoder is not None and embedding is not None and not torch.equal(decoder, embedding):
        raise PipelineError(
            "the decoder weight differs from the embedding matrix",
            decoder_name,
            where=folder,
            hint="use a model with tied embeddings (tie_word_embeddings in its config.json)",
        )
    return tensors


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file. Raises OSError if the disk is full."""
    with system_errors(path):
        save_file(tensors, path, metadata)


def model_files(folder: Path) -> list[Path]:
    names = ("config.json", *(f"{name}.index.json" for name in FORMATS))
    suffixes = {Path(name).suffix for name in FORMATS}
    return sorted(path for path in folder.glob("*") if path.name in names or path.suffix in suffixes)


def check_fits(name: str, tensor: Tensor | None, shape: torch.Size, where: object) -> Tensor:
    has = "missing" if tensor is None else f"shape {tuple(tensor.shape)}"
    if tensor is not None and tensor.shape == shape:
        if tensor.is_floating_point():
            return tensor
        has = f"non-floating dtype {str(tensor.dtype).removeprefix('torch.')}"
    raise PipelineError(
        "weights do not fit the config",
        f"{name}: {has}, {tuple(shape)} expected",
        where=where,
        hint="use the config.json that was saved with these weights; if the weight is missing, use a model that has it",
    )


def check_finite(name: str, tensor: Tensor, where: object) -> None:
    if not bool(torch.isfinite(tensor).all()):
        raise PipelineError("weights are NaN or infinite", name, where=where, hint="download or train the model again")


def _class_of(path: Path) -> str | None:
    config = read_json(path) if path.exists() else None
    classes = config.get("architectures") if isinstance(config, dict) else None
    return classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else None


def _read_files(folder: Path) -> dict[str, Tensor]:
    for name, read in FORMATS.items():
        if (folder / name).exists():
            return _read([folder / name], read)
        index = folder / f"{name}.index.json"
        if index.exists():
            return _read([folder / shard for shard in _shards(index)], read)
    raise PipelineError(
        "no weights to read",
        " or ".join(FORMATS),
        where=folder,
        hint="run the stage that writes this folder, or `dvc pull` it; of a TensorFlow checkpoint, use the same model "
        "on Hugging Face's hub, such as hub:google-bert/bert-base-uncased@main",
    )


def _shards(index: Path) -> list[str]:
    hint = "download the model again"
    try:
        return [check_file_name(name) for name in sorted(set(read_json(index)["weight_map"].values()))]
    except (TypeError, KeyError, AttributeError):
        raise PipelineError("invalid index of weight shards", index, hint=hint) from None
    except ValueError as error:
        raise PipelineError("invalid index of weight shards", error, where=index, hint=hint) from None


def _read(paths: Iterable[Path], read: Callable[[Path], dict[str, Tensor]]) -> dict[str, Tensor]:
    tensors = {}
    for path in paths:
        try:
            tensors.update(read(path))
        except (SafetensorError, OSError, RuntimeError, TypeError) as error:
            raise PipelineError(
                "no weights to read",
                str(error).partition("\n")[0],
                where=path,
                hint="run the stage that writes it again, `dvc pull` it, or download it again",
            ) from None
    return tensors


def _read_pickle(path: Path) -> dict[str, Tensor]:
    # torch before 1.6 wrote pickles that are not zip files and cannot be memory-mapped.
    mapped = zipfile.is_zipfile(path)
    try:
        # torch warns about pickles that it did not write. With weights_only, it runs no code from the file.
        with warnings.catch_warnings(action="ignore"):
            stored = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except OSError:
        raise
    except Exception:
        # torch's reader can raise any exception on damaged bytes.
        raise TypeError("the file is damaged, or torch.save wrote more than tensors into it") from None
    if not (isinstance(stored, dict) and all(isinstance(name, str) and _is_dense(stored[name]) for name in stored)):
        raise TypeError("not a state dict of plain tensors")
    return stored


def _is_dense(value: object) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.is_quantized or value.is_nested)
    )


FORMATS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    "model.safetensors": load_file,
    "pytorch_model.bin": _read_pickle,
}

Model = TypeVar("Model", bound=nn.Module)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
# Only WordPiece tokenizers have this file.
LISTED = "vocab.txt"
# Integers in config.json that may be below 1 -> their minimum.
MIN_VALUES = {
    **dict.fromkeys(("pad_token_id", "type_vocab_size", "conv_kernel_size"), 0),
    **dict.fromkeys(("max_relative_positions", "position_buckets"), -1),
}
# Maximum of any integer in config.json, and maximum number of layers.
MAX_VALUE = 1 << 24
MAX_LAYERS = 1_000
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
TYPES: dict[str, Any] = {"bool": bool, "str": str, "float": (int, float), "float | None": (int, float, type(None))}
# Key of config.json for the number of tokens to which texts were truncated when their vectors were trained.
MAX_LENGTH = "max_seq_length"
# Hugging Face's hub shows this file as the model card.
CARD = "README.md"


def save_model(
    folder: Path,
    model: nn.Module | Mapping[str, Tensor],
    config: BertConfig,
    huggingface_class: str,
    vocabulary: Path,
    card: str | None = None,
) -> None:
    """Write a model folder that ``transformers.AutoModel.from_pretrained`` loads.

    Args:
        folder: an existing, empty folder.
        model: the model or its ``state_dict``.
        huggingface_class: name of the transformers class that loads the folder ("BertForPreTraining").
        vocabulary: folder from which the tokenizer files are copied.
        card: text of the model card, README.md. None: no card is written.
    """
    tensors = model.state_dict() if isinstance(model, nn.Module) else model
    save_tensors(folder, tensors, config, huggingface_class)
    for name in (*TOKENIZER_FILES, LISTED):
        if name != LISTED or (vocabulary / name).exists():
            shutil.copyfile(vocabulary / name, folder / name)
    state_inputs(folder, config.longest_input, config.type_vocab_size)
    if card is not None:
        with atomic_file(folder / CARD) as file:
            file.write(card)


def save_tensors(folder: Path, tensors: Mapping[str, Tensor], config: BertConfig, huggingface_class: str) -> None:
    names = config.names
    values = {
        "pad_token_id": 0,
        **config.as_dict(),
        "hidden_act": SAVED_ACTIVATIONS[config.hidden_act],
        "initializer_range": INITIAL_STD,
        "model_type": names.model_type,
        "architectures": [huggingface_class],
        **names.written,
    }
    write_json(folder / "config.json", {names.keys.get(key, key): value for key, value in values.items()})
    stored = {
        names.to_hf_name(name, huggingface_class): tensor.contiguous()
        for name, tensor in tensors.items()
        if name != names.tied[0]
    }
    write_tensors(folder / "model.safetensors", stored, {"format": "pt"})


def load_config(folder: Path, dropout: float | None = None) -> BertConfig:
    """Read ``config.json``, whose ``model_type`` selects the architecture.

    ``dropout``, if given, replaces the dropout rates of hidden states and of attention.
    """
    raw = read_json(folder / "config.json")
    if not isinstance(raw, dict):
        raise _not_bert(f"a {type(raw).__name__} in config.json", folder)
    model_type = str(raw.get("model_type", BERT.model_type))
    if architecture_name(model_type) not in member_names("models"):
        raise _not_bert(f"model_type is {model_type}, not {' or '.join(member_names('models'))}", folder)
    kind = load_architecture(architecture_name(model_type)).config
    names = kind.names
    # Rename transformers' keys to this project's. Keys that the file lacks have transformers' defaults.
    our_keys = {hf_key: key for key, hf_key in names.keys.items()}
    values: dict[str, Any] = dict(names.absent)
    for hf_key, value in raw.items():
        values[our_keys.get(str(hf_key), str(hf_key))] = value
    try:
        values = kind.from_hf_config(values)
    except ValueError as error:
        raise _not_bert(str(error), folder) from None
    for key, allowed in {**names.fixed, "hidden_act": tuple(ACTIVATIONS)}.items():
        if values.get(key, allowed[0]) not in allowed:
            raise _not_bert(f"{names.keys.get(key, key)} is {values[key]}, not {allowed[0]}", folder)

    # Keys that the config does not have are ignored: only transformers uses them.
    saved = [field.name for field in fields(kind) if field.name not in NOT_SAVED]
    known: dict[str, Any] = {name: values[name] for name in saved if name in values}
    if "hidden_act" in known:
        known["hidden_act"] = ACTIVATIONS[known["hidden_act"]]
    if dropout is not None:
        known["hidden_dropout_prob"] = known["attention_probs_dropout_prob"] = dropout
    return checked_config(kind, known, folder)


def checked_config(kind: type[BertConfig], values: Mapping[str, Any], where: object) -> BertConfig:
    for field in fields(kind):
        name = field.name
        if field.type != "int" or name not in values:
            continue
        low = MIN_VALUES.get(name, 1)
        high = MAX_LAYERS if name == "num_hidden_layers" else MAX_VALUE
        value = values[name]
        if type(value) is not int or not low <= value <= high:
            raise _not_bert(f"{name} is {shown(value)}, not a whole number from {low:,} to {high:,}", where)
    # Check the fields of other types. A field that `values` lacks has its default.
    for field in fields(kind):
        types = TYPES.get(str(field.type))
        value = values.get(field.name, field.default)
        if types is not None and not (isinstance(value, types) and _is_bounded(field.name, value)):
            raise _not_bert(f"{field.name} is {shown(value)}", where)
    try:
        config = kind(**values)
    except (TypeError, ValueError) as error:
        raise _not_bert(str(error).partition(") ")[2] or str(error), where) from None
    if config.hidden_size % config.num_attention_heads:
        raise _not_bert(
            f"hidden_size {config.hidden_size} is not divisible by {config.num_attention_heads} attention heads", where
        )
    return config


def _is_bounded(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return 0 <= value <= 1 if name in DROPOUTS else math.isfinite(value)


def _not_bert(why: str, where: object) -> PipelineError:
    hint = "use a supported model with supported options (docs/family.md lists both)"
    return PipelineError("not a supported BERT model", why, where=where, hint=hint)


def load_weights(model: nn.Module, folder: Path, only: str | tuple[str, ...] = "") -> None:
    """Load weights from a model folder that was saved from any Hugging Face class.

    Args:
        folder: model folder. Tensors that ``model`` does not have are ignored.
        only: prefixes of the parameter names to load. If ``model`` is a ``Bert``, its names start with ``bert.``.
    """
    fill(model, read_tensors(folder, load_config(folder).names), folder, only)


def filled(
    make: Callable[[BertConfig], Model],
    config: BertConfig,
    tensors: Mapping[str, Tensor],
    where: object,
    only: str | tuple[str, ...] = "",
) -> Model:
    # Check shapes before any memory is allocated: a wrong config could ask for terabytes.
    with uninitialised():
        for name, parameter in _stored_parameters(make(config), only):
            check_fits(name, tensors.get(name), parameter.shape, where)
    model = make(config)
    fill(model, tensors, where, only)
    return model


def fill(model: nn.Module, tensors: Mapping[str, Tensor], where: object, only: str | tuple[str, ...] = "") -> None:
    with torch.no_grad():
        for name, parameter in _stored_parameters(model, only):
            parameter.copy_(check_fits(name, tensors.get(name), parameter.shape, where))
            check_finite(name, parameter, where)


def _stored_parameters(model: nn.Module, only: str | tuple[str, ...]) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in model.named_parameters(prefix="bert" if isinstance(model, Bert) else ""):
        if name.startswith(only):
            yield name, parameter
