"""The words of a task's texts, as runs of pieces: which of them may become others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.finetuning.stop_words import STOP_WORDS
from pipeline_src.tasks.features import Features
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.load import kind_of


@dataclass(frozen=True)
class Words:
    """The words of a task's texts that may change.

    Attributes:
        first: where its first piece lies among all tokens, int64 [words].
        pieces: how many it has, int64 [words].
        sequence: the sequence that it stands in, int64 [words].
        place: which of its texts, from 0, int64 [words].
        start, length: where its text lies among all tokens, int64 [words].
    """

    first: np.ndarray
    pieces: np.ndarray
    sequence: np.ndarray
    place: np.ndarray
    start: np.ndarray
    length: np.ndarray

    def some(self, chosen: np.ndarray) -> Words:
        """Those of the numbers or bits ``chosen``."""
        return Words(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def find_words(features: Features, tokenizer: Tokenizer) -> Words:
    """The words of letters alone that are no stop words, in their order."""
    kind, ids = kind_of(tokenizer), np.asarray(features.ids)
    inner, spelt, letters = kind.inner_pieces(tokenizer), spellings(tokenizer), of_letters(tokenizer)
    is_mark = np.isin(ids, read_frames(tokenizer).marks)
    lengths = np.diff(features.cu_seqlens)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    text_opens = ~is_mark & np.concatenate([[True], is_mark[:-1]])
    in_words = np.array([text.isalnum() for text in spelt])[ids]
    joined = inner[ids] & in_words & np.concatenate([[False], in_words[:-1]])
    # marks are runs of their own, so that every run ends where the next one opens
    runs = np.flatnonzero(is_mark | text_opens | ~joined)
    pieces = np.diff(np.concatenate([runs, [len(ids)]]))
    kept = ~is_mark[runs] & np.logical_and.reduceat(letters[ids], runs)
    known: dict[bytes, bool] = {}
    for number in np.flatnonzero(kept):
        own = ids[runs[number] : runs[number] + pieces[number]]
        if (key := own.tobytes()) not in known:
            known[key] = "".join(spelt[piece] for piece in own).lower() not in STOP_WORDS
        kept[number] = known[key]
    first = runs[kept]
    texts = np.flatnonzero(text_opens)
    text_of = np.searchsorted(texts, first, side="right") - 1
    ends = np.flatnonzero(is_mark)
    start = texts[text_of]
    first_text = np.searchsorted(texts, features.cu_seqlens[:-1])
    return Words(
        first=first,
        pieces=pieces[kept],
        sequence=sequence[first],
        place=text_of - first_text[sequence[first]],
        start=start,
        length=ends[np.searchsorted(ends, start)] - start,
    )


def spellings(tokenizer: Tokenizer) -> list[str]:
    """Each entry as it stands in a word."""
    spelt = kind_of(tokenizer).spelt
    return [spelt(tokenizer.id_to_token(number) or "") for number in range(tokenizer.get_vocab_size())]


def of_letters(tokenizer: Tokenizer) -> np.ndarray:
    """Which entries are letters alone, bool [entries]."""
    return np.array([text.isalpha() for text in spellings(tokenizer)])


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """``starts[i]``, ``starts[i] + 1``, ...: ``lengths[i]`` of each, int64."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
