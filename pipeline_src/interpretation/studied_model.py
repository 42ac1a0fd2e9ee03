"""The model that is looked into: its encoder, its head of masked words where it has one, its tokenizer, its control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import Bert, BertConfig, GivesWeights, initialise
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.hub import filled, load_config
from pipeline_src.models.names import ENCODER, MASKED_WORDS
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.models.tensors import read_tensors
from pipeline_src.tokenizer.frame import Frame, read_frames
from pipeline_src.tokenizer.kind import Kind
from pipeline_src.tokenizer.load import check_entries, kind_of, load_tokenizer

BATCH_TOKENS = 8_192  # of one pass of the encoder
TRANSFORM = f"{MASKED_WORDS}transform."  # what a head that predicts the next word alone has not


@dataclass(frozen=True)
class StudiedModel:
    """A model without dropout.

    Attributes:
        encoder: gives the states of every layer.
        head: hidden states [P, H] -> scores [P, entries]; None where the folder has none.
        config: of the encoder.
        tokenizer: of the folder.
    """

    encoder: Bert
    head: nn.Module | None
    config: BertConfig
    tokenizer: Tokenizer

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a model folder.

        Raises:
            PipelineError: no model is there, or not all of it.
        """
        if not folder.is_dir():
            raise PipelineError("no model here", folder, remedy="run the study, or give --model FOLDER")
        config, tokenizer = load_config(folder), load_tokenizer(folder)
        check_entries(tokenizer, config.vocab_size, folder)
        tensors = read_tensors(folder, config.names)
        if any(name.startswith(TRANSFORM) for name in tensors):
            model = filled(BertForPretraining, config, tensors, folder, (*ENCODER, MASKED_WORDS))
            return cls(model.bert.eval(), model.cls["predictions"].eval(), config, tokenizer)
        encoder = filled(make_encoder, config, tensors, folder, ENCODER)
        return cls(encoder.eval(), None, config, tokenizer)

    def with_random_weights(self, seed: int, **of_run: Any) -> Self:
        """The same architecture and head from weights drawn anew: the control of every measure.

        ``of_run`` are fields of the config that are not saved and say how weights start.
        """
        config = replace(self.config, **of_run)
        generator = torch.Generator().manual_seed(derive_seed(seed, "random control") % 2**63)
        if self.head is None:
            encoder = make_encoder(config)
            initialise(encoder, generator)
            return replace(self, encoder=encoder.eval())
        model = BertForPretraining(config)
        initialise(model, generator)
        return replace(self, encoder=model.bert.eval(), head=model.cls["predictions"].eval())

    @cached_property
    def frame(self) -> Frame:
        """The marks around one text."""
        return read_frames(self.tokenizer).single

    @cached_property
    def kind(self) -> Kind:
        """What the vocabulary spells in a way of its own."""
        return kind_of(self.tokenizer)

    @cached_property
    def mask(self) -> int:
        """Id of the mask."""
        return self.kind.id_of(self.tokenizer, self.kind.mask)

    @property
    def room(self) -> int:
        """Tokens of a text that fit beside its marks."""
        return self.config.longest_input - self.frame.size

    @property
    def lead(self) -> int:
        """Marks before a text."""
        return len(self.frame.marks[0])

    def pack(self, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, PackedLayout]:
        """Ids and segments [T] of texts given as ids, the marks added, and where each lies."""
        lengths = np.array([len(text) for text in texts], np.int64)
        flat = np.concatenate([np.asarray(text, np.int64) for text in texts])
        ids, segments = map(torch.from_numpy, self.frame.lay_out(flat, lengths[:, None]))
        cu_seqlens = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths + self.frame.size)]))
        return ids, segments, PackedLayout.of(cu_seqlens, len(ids))

    def ids(self, text: str) -> list[int]:
        """Tokens of a text without marks, cut to what fits."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids[: self.room]

    @torch.no_grad()
    def states(self, texts: Sequence[Sequence[int]]) -> tuple[list[Tensor], PackedLayout]:
        """Embeddings and every layer, [T, H] each, of texts given as ids, and where each lies."""
        ids, segments, layout = self.pack(texts)
        return self.encoder.states(ids, segments, layout), layout

    @torch.no_grad()
    def log_probabilities(self, texts: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> list[Tensor]:
        """Of every entry at the given places of each text, counted without its marks: [places, entries] each.

        Raises:
            PipelineError: the model has no head of masked words, or sees only what stands before a place.
        """
        assert self.head is not None, "ask `lacks` first"
        found: list[Tensor | None] = [None] * len(texts)
        for batch in batches([len(text) + self.frame.size for text in texts]):
            ids, segments, layout = self.pack([texts[number] for number in batch])
            hidden = self.encoder.decode(ids, segments, layout)
            starts = layout.first.tolist()
            wanted = [
                start + self.lead + place
                for start, number in zip(starts, batch, strict=True)
                for place in places[number]
            ]
            scores = self.head(hidden[torch.tensor(wanted, dtype=torch.int64)])
            scores = scores[:, : self.tokenizer.get_vocab_size()].log_softmax(-1)
            for number, part in zip(batch, scores.split([len(places[number]) for number in batch]), strict=True):
                found[number] = part
        return [part for part in found if part is not None]

    @property
    def attends(self) -> bool:
        """Whether it has attention whose weights can be looked at."""
        return any(isinstance(part, GivesWeights) for part in self.encoder.modules())

    @property
    def lacks(self) -> str | None:
        """Why it cannot fill a mask; None where it can."""
        if self.head is None:
            return "the model has no head of masked words"
        return "the model reads left to right and fills no mask" if self.config.is_decoder else None


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of texts by length, the shortest first, up to BATCH_TOKENS in a batch."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if batch and lengths[number] * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
