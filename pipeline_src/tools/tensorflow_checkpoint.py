"""Google's checkpoints (google-research/bert): ``bert_config.json`` and ``bert_model.ckpt.*``, read by TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.hub import checked_config
from pipeline_src.models.names import BERT, rename

CONFIG, CHECKPOINT = "bert_config.json", "bert_model.ckpt"
TRANSPOSED = re.compile(r"/kernel$")  # tf.layers.dense holds [in, out], torch [out, in]
MODEL = re.compile(r"^(bert|cls)/")  # beside it lie the step and, of fine-tuned models, `output_weights`
OPTIMISER = re.compile(r"/(adam|lamb)_[mv]$|/Adam(_1)?$")
ACTIVATIONS = {"gelu": "gelu_tanh"}  # Google's gelu is the tanh form (modeling.py)


def is_checkpoint(source: Path) -> bool:
    """Whether ``source`` is the prefix of a checkpoint or a folder with Google's config."""
    return (source / CONFIG).exists() or Path(f"{source}.index").exists()


def load_google(source: Path) -> tuple[BertConfig, dict[str, Tensor]]:
    """Config and tensors by our names.

    Args:
        source: the folder as Google publishes it, or the prefix of one of its checkpoints (``.../model.ckpt-1000``).

    Raises:
        PipelineError: tensorflow is not installed, or this is no checkpoint of google-research/bert.
    """
    prefix = find_prefix(source)
    config = google_config(read_json(prefix.parent / CONFIG), prefix.parent / CONFIG)
    return config, translate(read_variables(prefix), prefix)


def find_prefix(source: Path) -> Path:
    """The path of a checkpoint without ``.index`` and ``.data-...``.

    Raises:
        PipelineError: there is none, or several and none has Google's name.
    """
    if not source.is_dir():
        return source
    prefixes = [path.with_suffix("") for path in sorted(source.glob("*.index"))]
    named = [path for path in prefixes if path.name == CHECKPOINT] or prefixes
    if len(named) != 1:
        names = ", ".join(path.name for path in prefixes) or "none"
        raise PipelineError(
            "not one checkpoint in the folder", names, where=source,
            remedy=f"give the path of one without its endings, such as FOLDER/{CHECKPOINT}",
        )  # fmt: skip
    return named[0]


def google_config(raw: Mapping[str, object], where: object = CONFIG) -> BertConfig:
    """A config of ``bert_config.json``'s values.

    Raises:
        PipelineError: a size is missing or impossible, or the activation is not gelu.
    """
    activation = raw.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise PipelineError(
            "not a BERT model", f"hidden_act is {activation}", where=where, remedy="give a checkpoint with gelu"
        )
    known = {field.name: raw[field.name] for field in fields(BertConfig) if field.name in raw}
    return checked_config(BertConfig, {**known, "hidden_act": ACTIVATIONS[str(activation)]}, where)


def read_variables(prefix: Path) -> dict[str, np.ndarray]:
    """The model's own variables of a checkpoint by TensorFlow's names.

    Raises:
        PipelineError: tensorflow is not installed, or there is no readable checkpoint.
    """
    try:
        import tensorflow
    except ImportError:
        raise PipelineError(
            "reading a TensorFlow checkpoint takes tensorflow", "not installed",
            remedy="python -m pip install tensorflow-cpu, then run the same command again",
        ) from None  # fmt: skip
    try:
        reader = tensorflow.train.load_checkpoint(str(prefix))
        return {name: reader.get_tensor(name) for name in model_names(reader.get_variable_to_shape_map())}
    except Exception as error:  # tensorflow raises errors of its own, and plain ones
        raise PipelineError(
            "not a readable checkpoint", str(error).partition("\n")[0], where=prefix, remedy="fetch it again"
        ) from None


def model_names(variables: Iterable[str]) -> list[str]:
    """Those that belong to the encoder and the pretraining heads."""
    return sorted(name for name in variables if MODEL.search(name) and not OPTIMISER.search(name))


def translate(variables: Mapping[str, np.ndarray], where: object) -> dict[str, Tensor]:
    """Tensors by our names of variables by Google's; kernels are transposed.

    Raises:
        PipelineError: there are none.
    """
    if not variables:
        raise PipelineError(
            "no variable of google-research/bert", "bert/... expected", where=where,
            remedy="give a checkpoint of its pretraining; those of TensorFlow 2's model garden have other names",
        )  # fmt: skip
    return {
        rename(name, BERT.tensorflow): torch.from_numpy(
            np.ascontiguousarray(array.T if TRANSPOSED.search(name) else array)
        )
        for name, array in variables.items()
    }
