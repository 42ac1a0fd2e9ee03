"""Load the teacher, the trained model that a student learns from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import Tokenizer
from torch import nn

from pipeline_src.base.errors import PipelineError
from pipeline_src.model.adapter import BERT
from pipeline_src.model.bert import BertConfig
from pipeline_src.model.hub import load_config, load_weights
from pipeline_src.tokenizer.load import load_tokenizer

Model = TypeVar("Model", bound=nn.Module)


def load_teacher(
    folder: Path,
    make: Callable[[BertConfig], Model],
    student: BertConfig,
    tokenizer: Tokenizer,
    device: torch.device,
    key: str,
) -> Model:
    """Load a teacher for ``student``, in evaluation mode, without dropout and gradients.

    Args:
        folder: model folder of the teacher.
        make: function that builds the teacher from its config.
        tokenizer: the student's tokenizer, whose vocabulary the teacher must have.
        key: name of the setting that gives ``folder``, for errors.
    """
    if not (folder / "config.json").exists():
        raise PipelineError(
            "the teacher's folder has no config.json",
            folder,
            where=key,
            hint="set it to the folder of a trained model with the same vocabulary",
        )
    config = replace(load_config(folder, dropout=0.0), attention=student.attention)
    known = {BERT.model_type, student.names.model_type}
    if config.names.model_type not in known:
        raise PipelineError(
            "unsupported architecture of the teacher",
            config.names.model_type,
            where=folder,
            hint=f"use a teacher of the architecture {' or '.join(sorted(known))}",
        )
    if config.is_decoder:
        raise PipelineError(
            "the teacher is a causal model",
            folder,
            where=key,
            hint="set it to a model that was pretrained on masked words",
        )
    if load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
        raise PipelineError(
            "teacher and student have different vocabularies",
            folder,
            where=key,
            hint="use a teacher pretrained with this study's vocabulary, or the teacher's tokenizer in this study",
        )
    if config.longest_input < student.longest_input:
        raise PipelineError(
            "the teacher's maximum length is shorter than the student's",
            f"{config.longest_input} tokens",
            where=folder,
            hint=f"set model.max_position_embeddings to at most {config.longest_input}, or use another teacher",
        )
    model = make(config)
    load_weights(model, folder)
    return model.to(device).eval().requires_grad_(False)
