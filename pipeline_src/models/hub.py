"""Model folders in Hugging Face's layout: ``config.json``, ``model.safetensors`` and the tokenizer's files."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file, read_json, write_json
from pipeline_src.common.members import member_names
from pipeline_src.common.names import shown
from pipeline_src.models.architecture import file_of, load_architecture
from pipeline_src.models.bert import INITIAL_STD, NOT_SAVED, Bert, BertConfig
from pipeline_src.models.names import ACTIVATIONS, BERT, SAVED_ACTIVATIONS
from pipeline_src.models.tensors import check_fits, read_tensors, refuse_unbounded, write_tensors
from pipeline_src.models.undrawn import undrawn

Model = TypeVar("Model", bound=nn.Module)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
LISTED = "vocab.txt"  # of a WordPiece vocabulary alone
MAY_BE_ZERO = ("pad_token_id", "type_vocab_size", "conv_kernel_size")  # of the whole numbers in a config
LARGEST = 1 << 24  # of the whole numbers in a config; some have a bound of their own
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
MOST = {"num_hidden_layers": 1_000}
PLAIN: dict[str, Any] = {
    "bool": bool,
    "str": str,
    "float": (int, float),
    "float | None": (int, float, type(None)),
}  # a field's type
CARD = "README.md"  # where people and Hugging Face's hub look for it


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
        model: what is saved, or its ``state_dict``.
        config: its sizes, and what its parts are called there.
        huggingface_class: with which transformers loads it ("BertForPreTraining").
        vocabulary: folder the tokenizer's files are copied from.
        card: text of its README.md (``models.card``).
    """
    tensors = model.state_dict() if isinstance(model, nn.Module) else model
    save_tensors(folder, tensors, config, huggingface_class)
    for name in (*TOKENIZER_FILES, *([LISTED] if (vocabulary / LISTED).exists() else [])):
        shutil.copyfile(vocabulary / name, folder / name)
    if card is not None:
        with atomic_file(folder / CARD) as file:
            file.write(card)


def save_tensors(folder: Path, tensors: Mapping[str, Tensor], config: BertConfig, huggingface_class: str) -> None:
    """Write ``config.json`` and ``model.safetensors``, arguments as in :func:`save_model`."""
    names = config.names
    values = {
        "pad_token_id": 0,
        **config.as_dict(),
        "hidden_act": SAVED_ACTIVATIONS[config.hidden_act],
        "layer_norm_eps": config.layer_norm_eps,
        "initializer_range": INITIAL_STD,
        "model_type": names.model_type,
        "architectures": [huggingface_class],
        **names.written,
    }
    write_json(folder / "config.json", {names.keys.get(key, key): value for key, value in values.items()})
    kept = {
        names.in_folder(name, huggingface_class): tensor.contiguous()
        for name, tensor in tensors.items()
        if name != names.tied[0]
    }
    write_tensors(folder / "model.safetensors", kept, {"format": "pt"})


def load_config(folder: Path, dropout: float | None = None) -> BertConfig:
    """Read ``config.json``, whose ``model_type`` says of which architecture it is; BERT's where it says nothing.

    ``dropout`` overrides both that are written there.

    Raises:
        PipelineError: there is none, or it is that of another kind of model.
    """
    raw = read_json(folder / "config.json")
    if not isinstance(raw, dict):
        raise _not_bert(f"a {type(raw).__name__} in config.json", folder)
    model_type = str(raw.get("model_type", BERT.model_type))
    if file_of(model_type) not in member_names("architectures"):
        raise _not_bert(f"model_type is {model_type}, not {' or '.join(member_names('architectures'))}", folder)
    kind = load_architecture(file_of(model_type)).config
    ours = {theirs: key for key, theirs in kind.names.keys.items()}
    raw = kind.understood({ours.get(str(key), str(key)): value for key, value in raw.items()})
    fixed = {**kind.names.fixed, "layer_norm_eps": (kind.layer_norm_eps,), "hidden_act": tuple(ACTIVATIONS)}
    for key, allowed in fixed.items():
        if raw.get(key, allowed[0]) not in allowed:
            raise _not_bert(f"{key} is {raw[key]}, not {allowed[0]}", folder)
    own = [field.name for field in fields(kind) if field.name not in NOT_SAVED]
    known = {name: raw[name] for name in own if name in raw}
    if "hidden_act" in known:
        known["hidden_act"] = ACTIVATIONS[known["hidden_act"]]
    if dropout is not None:
        known["hidden_dropout_prob"] = known["attention_probs_dropout_prob"] = dropout
    return checked_config(kind, known, folder)


def checked_config(kind: type[BertConfig], values: Mapping[str, Any], where: object) -> BertConfig:
    """A config of ``values``, checked.

    Raises:
        PipelineError: a size is missing or impossible.
    """
    for name in (field.name for field in fields(kind) if field.type == "int"):
        least = 0 if name in MAY_BE_ZERO else 1
        most = MOST.get(name, LARGEST)
        if name in values and not (type(values[name]) is int and least <= values[name] <= most):
            raise _not_bert(f"{name} is {shown(values[name])}, not a whole number of {least:,} up to {most:,}", where)
    for field in fields(kind):
        value = values.get(field.name, field.default)
        if (plain := PLAIN.get(str(field.type))) and not (isinstance(value, plain) and _is_bounded(field.name, value)):
            raise _not_bert(f"{field.name} is {shown(value)}", where)
    try:
        config = kind(**values)
    except TypeError as error:
        raise _not_bert(str(error).partition(") ")[2] or str(error), where) from None
    if config.hidden_size % config.num_attention_heads:
        raise _not_bert(f"hidden_size {config.hidden_size} over {config.num_attention_heads} heads", where)
    return config


def _is_bounded(name: str, value: object) -> bool:
    """Whether a number is finite and, where it is a rate of dropout, one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return 0 <= value <= 1 if name in DROPOUTS else math.isfinite(value)


def _not_bert(why: str, where: object) -> PipelineError:
    return PipelineError("not a BERT model", why, where=where, remedy="give a folder with a BERT config")


def load_weights(model: nn.Module, folder: Path, only: str | tuple[str, ...] = "") -> None:
    """Fill ``model`` from a folder of any class; with ``only`` the parameters whose names start with it.

    A :class:`bert.Bert` is filled like the encoder of a model with heads, and named like it: ``bert.pooler.``. What the
    folder has beyond that is left.

    Raises:
        PipelineError: the file is missing, damaged, or lacks a parameter or has one of another shape.
    """
    fill(model, read_tensors(folder, load_config(folder).names), folder, only)


def filled(
    make: Callable[[BertConfig], Model],
    config: BertConfig,
    tensors: Mapping[str, Tensor],
    where: object,
    only: str | tuple[str, ...] = "",
) -> Model:
    """The model that ``make`` makes of a config, filled; made only when all of it is known to be there and to fit.

    A config that says more than the tensors hold would take memory without end. Errors as :func:`load_weights`.
    """
    with undrawn():
        for name, parameter in _stored_parameters(make(config), only):
            check_fits(name, tensors.get(name), parameter.shape, where)
    model = make(config)
    fill(model, tensors, where, only)
    return model


def fill(model: nn.Module, tensors: Mapping[str, Tensor], where: object, only: str | tuple[str, ...] = "") -> None:
    """Fill ``model``, which may be an encoder alone, with tensors by our names; errors as :func:`load_weights`."""
    with torch.no_grad():
        for name, parameter in _stored_parameters(model, only):
            parameter.copy_(check_fits(name, tensors.get(name), parameter.shape, where))
            refuse_unbounded(name, parameter, where)


def _stored_parameters(model: nn.Module, only: str | tuple[str, ...]) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters by the names that they have in a folder, those whose names start with ``only``."""
    prefix = "bert." if isinstance(model, Bert) else ""
    for own_name, parameter in model.named_parameters():
        if f"{prefix}{own_name}".startswith(only):
            yield f"{prefix}{own_name}", parameter
