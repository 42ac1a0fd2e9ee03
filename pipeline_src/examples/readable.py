"""A pretraining example as words that a person reads: what the model sees, and what it is to predict."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Tokenizer

from pipeline_src.examples.loading import PretrainingBatch
from pipeline_src.vocabulary.wordpiece import MASK, SEP


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
    for place in range(1, int(batch.starts[1])):
        piece = pieces[int(batch.ids[place])]
        segment = segments[int(batch.segments[place])]
        if place in labels:
            was = pieces[labels[place]]
            fate = "mask" if piece == MASK else "keep" if piece == was else "random"
            segment.append(Shown(piece, was.startswith("##"), was, fate))
        elif piece != SEP:
            segment.append(Shown(piece.removeprefix("##"), piece.startswith("##")))
    return segments if segments[1] else segments[:1]
