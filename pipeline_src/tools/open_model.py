"""A model folder opened for use: its encoder, its tokenizer, and the ids of a text."""

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
from pipeline_src.models.hub import filled, load_config
from pipeline_src.models.tensors import read_tensors
from pipeline_src.tokenizer.frame import Frame, read_frames
from pipeline_src.tokenizer.load import check_entries, load_tokenizer

DEFAULT = PRETRAINED / "long"
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Opened(Generic[Model]):
    """A model without dropout, on a GPU where there is one."""

    model: Model
    config: BertConfig
    tokenizer: Tokenizer
    device: torch.device

    @cached_property
    def frame(self) -> Frame:
        """The marks around a text."""
        return read_frames(self.tokenizer).single

    @property
    def max_seqlen(self) -> int:
        """Tokens that fit beside the marks around a text."""
        return self.config.longest_input - self.frame.size

    def pack(self, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, segments and starts, as the encoder takes them, of texts given as ids; adds the marks."""
        lengths = np.array([len(text) for text in texts], np.int64)
        flat = np.concatenate([np.asarray(text, np.int64) for text in texts])
        ids, segments = map(torch.from_numpy, self.frame.lay_out(flat, lengths[:, None]))
        cu_seqlens = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths + self.frame.size)]))
        return ids.to(self.device), segments.to(self.device), cu_seqlens.to(self.device)


def open_model(folder: Path, make: Callable[[BertConfig], Model], only: tuple[str, ...], without: str) -> Opened[Model]:
    """Open a folder that this project made or imported.

    Args:
        folder: of the model.
        make: makes the model of its config, with weights of any value.
        only: starts of our names of the parameters that are used; the others keep their initial values.
        without: what a folder lacks that has no parameter of one of these starts ("has no ... head").

    Raises:
        PipelineError: no model is there, or not of this kind, or its tokenizer has more entries than it.
    """
    if not folder.is_dir():
        raise PipelineError(
            "no model here", folder, remedy="give --model FOLDER, or make it: run the study, or see the tool `import`"
        )
    torch.set_num_threads(usable_cores())
    config, tokenizer = load_config(folder), load_tokenizer(folder)
    tokenizer.no_truncation()  # some models bring a length along at which texts would be cut unseen
    tokenizer.no_padding()
    check_entries(tokenizer, config.vocab_size, folder)
    tensors = read_tensors(folder, config.names)
    for start in only:
        if not any(name.startswith(start) for name in tensors):
            raise PipelineError(without, start, where=folder, remedy="give --model one that was pretrained here")
    model = filled(make, config, tensors, folder, only)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Opened(model.to(device).eval(), config, tokenizer, device)
