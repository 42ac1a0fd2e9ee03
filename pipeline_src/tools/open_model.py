"""Open a model folder for the tools: model, tokenizer, and the ids of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.parallel import usable_cores
from pipeline_src.common.paths import PRETRAINED
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.hub import filled, load_config, read_tensors
from pipeline_src.tokenizer.load import check_vocab_size, load_tokenizer
from pipeline_src.tokenizer.special_tokens import Template, read_templates

DEFAULT = PRETRAINED / "phase2"
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Opened(Generic[Model]):
    """A model in evaluation mode, on a GPU if there is one."""

    model: Model
    config: BertConfig
    tokenizer: Tokenizer
    device: torch.device

    @cached_property
    def template(self) -> Template:
        """The special tokens around a text."""
        return read_templates(self.tokenizer).single

    @property
    def max_seqlen(self) -> int:
        """Number of tokens that fit, without the special tokens."""
        return self.config.longest_input - self.template.size

    def pack(self, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Add special tokens to texts given as ids; return input_ids [T], token_type_ids [T], cu_seqlens [B + 1]."""
        lengths = np.array([len(text) for text in texts], np.int64)
        flat = np.concatenate([np.asarray(text, np.int64) for text in texts])
        ids, token_type_ids = map(torch.from_numpy, self.template.apply_batch(flat, lengths[:, None]))
        cu_seqlens = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths + self.template.size)]))
        return ids.to(self.device), token_type_ids.to(self.device), cu_seqlens.to(self.device)


def open_model(folder: Path, make: Callable[[BertConfig], Model], only: tuple[str, ...], without: str) -> Opened[Model]:
    """Open a model folder of this project.

    Args:
        folder: of the model.
        make: returns the model of a config; its weights are overwritten.
        only: prefixes of the parameters that are loaded; the others keep their initial values.
        without: error message if a prefix has no parameter.
    """
    if not folder.is_dir():
        raise PipelineError(
            "no model here", folder, hint="give --model FOLDER, or make it: run the study, or see the tool `import`"
        )
    torch.set_num_threads(usable_cores())
    config, tokenizer = load_config(folder), load_tokenizer(folder)
    tokenizer.no_truncation()  # some tokenizers come with a length at which texts would be truncated silently
    tokenizer.no_padding()
    check_vocab_size(tokenizer, config.vocab_size, folder)
    tensors = read_tensors(folder, config.names)
    for start in only:
        if not any(name.startswith(start) for name in tensors):
            raise PipelineError(without, start, where=folder, hint="give --model one that was pretrained here")
    model = filled(make, config, tensors, folder, only)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Opened(model.to(device).eval(), config, tokenizer, device)
