"""Where the marks of a sequence stand: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] (paper, section 3).

A tokenizer's own files say which marks there are (its post-processor does). They are read off once, here, and
sequences are framed in arrays from then on: another family's ``<s> A </s></s> B </s>`` needs no change elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding, Tokenizer

from pipeline_src.common.errors import PipelineError

REMEDY = "use the tokenizer that the stage `train_tokenizer` writes, or one made for two texts"


@dataclass(frozen=True)
class Frame:
    """The marks around one text, or around two.

    Attributes:
        marks: ids of the marks before the first text, of those between two texts, and of those after the last.
        segments: the segment of each run of marks and of each text in turn, such as (0, 0, 0, 1, 1) for
            [CLS] A [SEP] B [SEP].
    """

    marks: tuple[tuple[int, ...], ...]
    segments: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many marks there are."""
        return sum(map(len, self.marks))

    def around(self, *texts: Sequence[int]) -> tuple[list[int], list[int]]:
        """Ids and segments of one sequence of these texts."""
        runs: list[Sequence[int]] = [self.marks[0]]
        for text, marks in zip(texts, self.marks[1:], strict=True):
            runs += [text, marks]
        ids = [number for run in runs for number in run]
        return ids, [segment for run, segment in zip(runs, self.segments, strict=True) for _ in run]

    def lay_out(self, texts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Many sequences end to end.

        Args:
            texts: ids of all texts in order, [tokens of text].
            lengths: tokens of each text, int64 [sequences, texts of a sequence].

        Returns:
            Ids and segments, int64 [tokens].
        """
        runs = np.empty((len(lengths), len(self.segments)), np.int64)
        runs[:, 0::2] = [len(marks) for marks in self.marks]
        runs[:, 1::2] = lengths
        starts = (np.cumsum(runs) - runs.ravel()).reshape(runs.shape)
        ids = np.empty(runs.sum(), np.int64)
        of_text = np.ones(len(ids), bool)
        for run, marks in enumerate(self.marks):
            for place, mark in enumerate(marks):
                ids[starts[:, 2 * run] + place] = mark
                of_text[starts[:, 2 * run] + place] = False
        ids[of_text] = texts
        return ids, np.repeat(np.tile(np.asarray(self.segments), len(lengths)), runs.ravel())


@dataclass(frozen=True)
class Frames:
    """How a tokenizer frames one text and two."""

    single: Frame
    pair: Frame

    @property
    def marks(self) -> tuple[int, ...]:
        """The id of every mark, once, ascending."""
        return tuple(sorted({mark for frame in (self.single, self.pair) for run in frame.marks for mark in run}))


def read_frames(tokenizer: Tokenizer) -> Frames:
    """Read off a tokenizer where it puts its marks.

    Raises:
        PipelineError: it puts no mark before or after a text or none between two, or the vocabulary lacks a mark.
    """
    text = next((piece for piece in tokenizer.get_vocab() if tokenizer.encode(piece, add_special_tokens=False).ids), "")
    return Frames(_frame(tokenizer, tokenizer.encode(text), 1), _frame(tokenizer, tokenizer.encode(text, text), 2))


def _frame(tokenizer: Tokenizer, encoding: Encoding, texts: int) -> Frame:
    marks: list[list[int]] = [[] for _ in range(texts + 1)]
    segments = [0] * (2 * texts + 1)
    run = 0  # even for marks, odd for texts
    places = zip(encoding.ids, encoding.tokens, encoding.type_ids, encoding.sequence_ids, strict=True)
    for number, token, segment, text in places:
        if text is not None:
            run = 2 * text + 1
        else:
            run += run % 2
            marks[run // 2].append(number)
            if tokenizer.token_to_id(token) != number:
                raise PipelineError("the vocabulary lacks a special token", token, remedy=REMEDY)
        segments[run] = segment
    if not all(marks):
        raise PipelineError(
            "the tokenizer puts no marks around a text", f"{encoding.tokens} of {texts} texts",
            where="post_processor in tokenizer.json", remedy=REMEDY,
        )  # fmt: skip
    return Frame(tuple(map(tuple, marks)), tuple(segments))
