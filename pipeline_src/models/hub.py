"""Model folders in Hugging Face's layout: ``config.json``, ``model.safetensors`` and the tokenizer's files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file, read_json, write_json
from pipeline_src.common.members import member_names
from pipeline_src.models.architecture import file_of, load_architecture
from pipeline_src.models.bert import INITIAL_STD, NOT_SAVED, Bert, BertConfig
from pipeline_src.models.names import ACTIVATIONS, BERT, SAVED_ACTIVATIONS
from pipeline_src.models.tensors import read_tensors

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
LISTED = "vocab.txt"  # of a WordPiece vocabulary alone
MAY_BE_ZERO = ("pad_token_id", "type_vocab_size", "conv_kernel_size")  # of the whole numbers in a config
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
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


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
        if name in values and not (type(values[name]) is int and values[name] >= least):
            raise _not_bert(f"{name} is {values[name]!r}", where)
    try:
        config = kind(**values)
    except TypeError as error:
        raise _not_bert(str(error).partition(") ")[2] or str(error), where) from None
    if config.hidden_size % config.num_attention_heads:
        raise _not_bert(f"hidden_size {config.hidden_size} over {config.num_attention_heads} heads", where)
    return config


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


def fill(model: nn.Module, tensors: Mapping[str, Tensor], where: object, only: str | tuple[str, ...] = "") -> None:
    """Fill ``model``, which may be an encoder alone, with tensors by our names; errors as :func:`load_weights`."""
    prefix = "bert." if isinstance(model, Bert) else ""
    with torch.no_grad():
        for own_name, parameter in model.named_parameters():
            name = f"{prefix}{own_name}"
            if name.startswith(only):
                _copy(parameter, tensors.get(name), name, where)


def _copy(parameter: Tensor, stored: Tensor | None, name: str, where: object) -> None:
    if stored is None or stored.shape != parameter.shape:
        has = "missing" if stored is None else f"shape {tuple(stored.shape)}"
        raise PipelineError(
            "weights do not fit the model",
            f"{name}: {has}, {tuple(parameter.shape)} expected",
            where=where,
            remedy="use the config.json that was saved beside them, and a model that has this part",
        )
    parameter.copy_(stored)
