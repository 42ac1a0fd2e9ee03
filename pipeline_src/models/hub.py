"""Model folders in Hugging Face's layout: ``config.json``, ``model.safetensors`` and the tokenizer's files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file, read_json, write_json
from pipeline_src.models.bert import HOW_IT_RUNS, INITIAL_STD, LAYER_NORM_EPS, BertConfig
from pipeline_src.models.tensors import DECODER, canonical, read_tensors

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
CARD = "README.md"  # where people and Hugging Face's hub look for it
ACTIVATIONS = {  # transformers' names -> ours
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
FIXED: dict[str, tuple[Any, ...]] = {  # what a config may say of what this encoder does in one way only
    "model_type": ("bert",),
    "position_embedding_type": ("absolute", None),
    "layer_norm_eps": (LAYER_NORM_EPS,),
    "add_cross_attention": (False,),
    "hidden_act": tuple(ACTIVATIONS),
}


def save_model(
    folder: Path, model: nn.Module, config: BertConfig, architecture: str, vocabulary: Path, card: str | None = None
) -> None:
    """Write a model folder that ``transformers.AutoModel.from_pretrained`` loads.

    Args:
        folder: an existing, empty folder.
        model: its parameters bear Hugging Face's names.
        config: its sizes.
        architecture: Hugging Face's name of the class ("BertForPreTraining").
        vocabulary: folder the tokenizer's files are copied from.
        card: text of its README.md (``models.card``).
    """
    save_tensors(folder, model.state_dict(), config, architecture)
    for name in TOKENIZER_FILES:
        shutil.copyfile(vocabulary / name, folder / name)
    if card is not None:
        with atomic_file(folder / CARD) as file:
            file.write(card)


def save_tensors(folder: Path, tensors: Mapping[str, Tensor], config: BertConfig, architecture: str) -> None:
    """Write ``config.json`` and ``model.safetensors``, arguments as in :func:`save_model`."""
    activation = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}[config.hidden_act]
    write_json(
        folder / "config.json",
        {
            **config.as_dict(),
            "hidden_act": activation,
            "layer_norm_eps": LAYER_NORM_EPS,
            "initializer_range": INITIAL_STD,
            "pad_token_id": 0,
            "model_type": "bert",
            "architectures": [architecture],
        },
    )
    kept = {name: tensor.contiguous() for name, tensor in tensors.items() if name != DECODER}
    if "cls.predictions.decoder.bias" in kept:
        kept["cls.predictions.bias"] = kept.pop("cls.predictions.decoder.bias")
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def load_config(folder: Path, dropout: float | None = None) -> BertConfig:
    """Read ``config.json``; ``dropout`` overrides both that are written there.

    Raises:
        PipelineError: there is none, or it is that of another kind of model.
    """
    raw = read_json(folder / "config.json")
    if not isinstance(raw, dict):
        raise _not_bert(f"a {type(raw).__name__} in config.json", folder)
    for key, allowed in FIXED.items():
        if raw.get(key, allowed[0]) not in allowed:
            raise _not_bert(f"{key} is {raw[key]}, not {allowed[0]}", folder)
    known = {name: raw[name] for name in BertConfig.__dataclass_fields__ if name in raw and name not in HOW_IT_RUNS}
    if "hidden_act" in known:
        known["hidden_act"] = ACTIVATIONS[known["hidden_act"]]
    if dropout is not None:
        known["hidden_dropout_prob"] = known["attention_probs_dropout_prob"] = dropout
    return checked_config(known, folder)


def checked_config(values: Mapping[str, Any], where: object) -> BertConfig:
    """A config of ``values``, checked.

    Raises:
        PipelineError: a size is missing or impossible.
    """
    sizes = [name for name, field in BertConfig.__dataclass_fields__.items() if field.type == "int"]
    for name in sizes:
        if name in values and not (type(values[name]) is int and values[name] > 0):
            raise _not_bert(f"{name} is {values[name]!r}", where)
    try:
        config = BertConfig(**values)
    except TypeError as error:
        raise _not_bert(str(error).partition(") ")[2] or str(error), where) from None
    if config.hidden_size % config.num_attention_heads:
        raise _not_bert(f"hidden_size {config.hidden_size} over {config.num_attention_heads} heads", where)
    return config


def _not_bert(why: str, where: object) -> PipelineError:
    return PipelineError("not a BERT model", why, where=where, remedy="give a folder with a BERT config")


def load_weights(model: nn.Module, folder: Path, only: str | tuple[str, ...] = "") -> None:
    """Fill ``model`` from a folder of any BERT class; with ``only`` the parameters whose names start with it.

    A :class:`bert.Bert` is filled like the encoder of a model with heads. What the folder has beyond that is left.

    Raises:
        PipelineError: the file is missing, damaged, or lacks a parameter or has one of another shape.
    """
    fill(model, read_tensors(folder), folder, only)


def fill(model: nn.Module, tensors: Mapping[str, Tensor], where: object, only: str | tuple[str, ...] = "") -> None:
    """Fill ``model`` with tensors by their canonical names (``models.tensors``); errors as :func:`load_weights`."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(only):
                _copy(parameter, tensors.get(canonical(name)), name, where)


def _copy(parameter: Tensor, stored: Tensor | None, name: str, where: object) -> None:
    if stored is None or stored.shape != parameter.shape:
        found = "missing" if stored is None else f"shape {tuple(stored.shape)}"
        raise PipelineError(
            "weights do not fit the model",
            f"{name}: {found}, {tuple(parameter.shape)} expected",
            where=where,
            remedy="use the config.json that was saved beside them, and a model that has this part",
        )
    parameter.copy_(stored)
