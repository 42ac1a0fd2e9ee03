"""Model folders in Hugging Face's layout: ``config.json``, ``model.safetensors`` and the tokenizer's files."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pipeline_src.errors import PipelineError
from pipeline_src.files import read_json, write_json
from pipeline_src.models.bert import HOW_IT_RUNS, INITIAL_STD, LAYER_NORM_EPS, BertConfig

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
TIED = "cls.predictions.decoder.weight"  # is the word embedding; stored once


def save_model(folder: Path, model: nn.Module, config: BertConfig, architecture: str, vocabulary: Path) -> None:
    """Write a model folder that ``transformers.AutoModel.from_pretrained`` loads.

    Args:
        folder: an existing, empty folder.
        model: its parameters bear Hugging Face's names.
        config: its sizes.
        architecture: Hugging Face's name of the class ("BertForPreTraining").
        vocabulary: folder the tokenizer's files are copied from.
    """
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
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != TIED}
    if "cls.predictions.decoder.bias" in tensors:
        tensors["cls.predictions.bias"] = tensors.pop("cls.predictions.decoder.bias")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        shutil.copyfile(vocabulary / name, folder / name)


def load_config(folder: Path, dropout: float | None = None) -> BertConfig:
    """Read ``config.json``; ``dropout`` overrides both that are written there."""
    raw = read_json(folder / "config.json")
    known = {name: raw[name] for name in BertConfig.__dataclass_fields__ if name in raw and name not in HOW_IT_RUNS}
    if known.get("hidden_act") in ("gelu_new", "gelu_pytorch_tanh"):
        known["hidden_act"] = "gelu_tanh"
    if dropout is not None:
        known["hidden_dropout_prob"] = known["attention_probs_dropout_prob"] = dropout
    try:
        return BertConfig(**known)
    except TypeError as error:
        raise PipelineError(
            "not a BERT model", error, where=folder, remedy="give a folder with a BERT config"
        ) from None


def load_weights(model: nn.Module, folder: Path, only: str = "") -> None:
    """Fill ``model`` from a model folder; with ``only`` the parameters whose names start with it.

    Raises:
        PipelineError: the file is missing, damaged, or lacks a parameter or has one of another shape.
    """
    path = folder / "model.safetensors"
    remedy = "run the stage that makes it again, or `dvc pull` it"
    try:
        stored = load_file(path)
    except (FileNotFoundError, SafetensorError) as error:
        raise PipelineError("no weights to read", error, where=path, remedy=remedy) from None
    if "cls.predictions.bias" in stored:
        stored["cls.predictions.decoder.bias"] = stored.pop("cls.predictions.bias")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(only):
                _copy(parameter, stored.get(name), name, path)


def _copy(parameter: Tensor, stored: Tensor | None, name: str, path: Path) -> None:
    if stored is None or stored.shape != parameter.shape:
        found = "missing" if stored is None else f"shape {tuple(stored.shape)}"
        raise PipelineError(
            "weights do not fit the model",
            f"{name}: {found}, {tuple(parameter.shape)} expected",
            where=path,
            remedy="use the config.json that was saved beside them",
        )
    parameter.copy_(stored)
