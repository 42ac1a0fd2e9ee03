"""Loading the trained model that a student learns from."""

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
    """Load a model that can teach ``student``.

    It is in evaluation mode, without dropout and gradients. ``make`` builds the model from its config; errors name
    ``key``, the parameter that is set to ``folder``.
    """
    if not (folder / "config.json").exists():
        raise PipelineError(
            "no teacher here",
            folder,
            where=key,
            hint="name one that holds a trained model with the same vocabulary",
        )
    config = replace(load_config(folder, dropout=0.0), attention=student.attention)
    known = {BERT.model_type, student.names.model_type}
    if config.names.model_type not in known:
        raise PipelineError(
            "a teacher of another architecture",
            config.names.model_type,
            where=folder,
            hint=f"give one of {' or '.join(sorted(known))}: the stage depends on no other one's code",
        )
    if config.is_decoder:
        raise PipelineError(
            "the teacher is a causal model",
            folder,
            where=key,
            hint="teach with a model that was pretrained on masked words",
        )
    if load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
        raise PipelineError(
            "a teacher of another vocabulary",
            folder,
            where=key,
            hint="teach with a model that was pretrained on this study's vocabulary, or take its vocabulary",
        )
    if config.longest_input < student.longest_input:
        raise PipelineError(
            "the teacher takes shorter sequences",
            f"{config.longest_input} tokens",
            where=folder,
            hint=f"set model.max_position_embeddings to at most {config.longest_input}, or take another teacher",
        )
    model = make(config)
    load_weights(model, folder)
    return model.to(device).eval().requires_grad_(False)
