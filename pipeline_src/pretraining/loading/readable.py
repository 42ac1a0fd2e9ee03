"""A pretraining example as words that a person reads: what the model sees, and what it is to predict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.pretraining.loading.batches import PretrainingBatch, PretrainingExamples
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.load import kind_of

SHOWN = 5  # examples in the report


# examples.pairs -> what a pair's label 0 and 1 say.
PAIR_LABELS = {
    "next_sentence": ("B follows A", "B is a random text"),
    "sentence_order": ("A and B in order", "A and B swapped, or B a random text"),
}


@dataclass(frozen=True)
class ReadablePiece:
    """One piece of a segment.

    Attributes:
        text: what the model sees, without the mark of an inner piece.
        inner: whether it belongs to the word before it.
        was: the piece to predict; None where nothing is predicted.
        fate: what the model sees in place of the predicted piece: ``mask``, ``random`` (another piece) or ``keep``
            (the piece itself); ``next`` where it is predicted from those before it, and seen only afterwards; None
            where nothing is predicted.
    """

    text: str
    inner: bool
    was: str | None = None
    fate: str | None = None


def readable_pieces(batch: PretrainingBatch, tokenizer: Tokenizer, label_shift: int) -> list[list[ReadablePiece]]:
    """The pieces of each segment of a batch's first example, without marks.

    Args:
        batch: of one example or more.
        tokenizer: its vocabulary.
        label_shift: of the corruption: how far behind the place that predicts it the predicted piece stands.
    """
    kind, marks = kind_of(tokenizer), read_frames(tokenizer).marks
    pieces = {number: piece for piece, number in tokenizer.get_vocab().items()}
    labels = dict(zip((batch.predicted + label_shift).tolist(), batch.labels.tolist(), strict=True))
    segments: list[list[ReadablePiece]] = [[], []]
    for place in range(int(batch.cu_seqlens[1])):
        seen, label = int(batch.ids[place]), labels.get(place)
        if (seen if label is None else label) in marks:
            continue
        text, segment = pieces[seen], segments[int(batch.segments[place])]
        if label is None:
            segment.append(ReadablePiece(kind.spelt(text), kind.continues_word(text)))
            continue
        was = pieces[label]
        fate = "next" if label_shift else "mask" if text == kind.mask else "keep" if text == was else "random"
        segment.append(ReadablePiece(kind.spelt(text), kind.continues_word(was), kind.spelt(was), fate))
    return segments if segments[1] else segments[:1]


def shown_examples(examples: PretrainingExamples, tokenizer: Tokenizer, seed: int) -> list[dict[str, Any]]:
    """A few examples as training sees them, for the report; which ones is keyed by the seed.

    Returns:
        ``example`` (its number), ``pair`` (what its label says of the two segments; None without pairs) and
        ``segments``, lists of :class:`ReadablePiece` as blocks.
    """
    numbers = permuted(derive_seed(seed, "shown"), np.arange(min(SHOWN, len(examples))), len(examples))
    shown = []
    for number in numbers.tolist():
        batch = examples.batch(np.asarray([number]))
        pieces = readable_pieces(batch, tokenizer, examples.corruption.label_shift)
        segments = [[asdict(piece) for piece in segment] for segment in pieces]
        shown.append({"example": number, "pair": pair_label(examples, batch), "segments": segments})
    return shown


def pair_label(examples: PretrainingExamples, batch: PretrainingBatch) -> str | None:
    """What the label of a batch's first example says of its segments; None without pairs."""
    return PAIR_LABELS[examples.pairs][int(batch.pair_label[0])] if examples.has_pairs else None
