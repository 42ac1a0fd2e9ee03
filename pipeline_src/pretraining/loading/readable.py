"""A pretraining example as words that a person reads: what the model sees, and what it is to predict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.pretraining.loading.batches import PretrainingBatch, PretrainingExamples
from pipeline_src.tokenizer.wordpiece import MASK, SEP

SHOWN = 5  # examples in the report


@dataclass(frozen=True)
class Shown:
    """One piece of a segment.

    Attributes:
        text: what the model sees, without the mark of an inner piece.
        inner: whether it belongs to the word before it.
        was: the piece to predict there; None where nothing is predicted.
        fate: ``mask``, ``random`` or ``keep``: what stands in place of the predicted piece; None as above.
    """

    text: str
    inner: bool
    was: str | None = None
    fate: str | None = None


def shown_pieces(batch: PretrainingBatch, tokenizer: Tokenizer) -> list[list[Shown]]:
    """The pieces of each segment of a batch's first example, without [CLS] and [SEP]."""
    pieces = {number: piece for piece, number in tokenizer.get_vocab().items()}
    labels = dict(zip(batch.predicted.tolist(), batch.labels.tolist(), strict=True))
    segments: list[list[Shown]] = [[], []]
    for place in range(1, int(batch.cu_seqlens[1])):
        piece = pieces[int(batch.ids[place])]
        segment = segments[int(batch.segments[place])]
        if place in labels:
            was = pieces[labels[place]]
            fate = "mask" if piece == MASK else "keep" if piece == was else "random"
            segment.append(Shown(piece, was.startswith("##"), was, fate))
        elif piece != SEP:
            segment.append(Shown(piece.removeprefix("##"), piece.startswith("##")))
    return segments if segments[1] else segments[:1]


def shown_examples(examples: PretrainingExamples, tokenizer: Tokenizer, seed: int) -> list[dict[str, Any]]:
    """A few examples as training sees them, for the report; which ones is keyed by the seed.

    Returns:
        ``example`` (its number), ``is_random`` (None without next sentences) and ``segments``, lists of :class:`Shown`
        as blocks.
    """
    numbers = permuted(derive_seed(seed, "shown"), np.arange(min(SHOWN, len(examples))), len(examples))
    shown = []
    for number in numbers.tolist():
        batch = examples.batch(np.asarray([number]))
        segments = [[asdict(piece) for piece in segment] for segment in shown_pieces(batch, tokenizer)]
        is_random = bool(batch.pair_label[0]) if examples.next_sentence else None
        shown.append({"example": number, "is_random": is_random, "segments": segments})
    return shown
