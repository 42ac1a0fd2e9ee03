"""Model inputs of a task: token sequences laid end to end, without padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.progress import log
from pipeline_src.tokenizer.special_tokens import Templates

NO_TAG = -100  # label of a token that is not scored; torch's cross-entropy ignores it


@dataclass(frozen=True)
class Features:
    """Sequences of one data file, in the order of its examples.

    Attributes:
        ids: token ids of all sequences end to end, int32 [tokens].
        segments: token type ids: 0 for the first segment with [CLS] and its [SEP], 1 for the second, int8 [tokens].
        cu_seqlens: start of each sequence, and the end of the last one, int64 [sequences + 1].
        labels: int64 [items] for classes, float32 [items] for a regression, int64 [items, 2] for the first and last
            token of a span, counted from the start of its sequence (0, 0: no answer).
        example: index of the example of each item, int64 [items] (a long context makes several items).
        per_item: sequences per item, which gets one answer (1; the number of choices in SWAG).
        counts: number of truncated sequences, missing answers and so on, by reason.
    """

    ids: np.ndarray
    segments: np.ndarray
    cu_seqlens: np.ndarray
    labels: np.ndarray
    example: np.ndarray
    per_item: int = 1
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def items(self) -> int:
        return (len(self.cu_seqlens) - 1) // self.per_item

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each item, int64 [items]."""
        return np.diff(self.cu_seqlens[:: self.per_item])

    def tokens_of(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions in ``ids`` of the tokens of ``items`` (indices, int64), item by item, and cu_seqlens."""
        sequences = (items[:, None] * self.per_item + np.arange(self.per_item)).ravel()
        first, lengths = self.cu_seqlens[sequences], self.cu_seqlens[sequences + 1] - self.cu_seqlens[sequences]
        return ranges(first, lengths), np.concatenate([[0], np.cumsum(lengths)])

    def labels_of(self, items: np.ndarray) -> np.ndarray:
        return self.labels[items]

    def loss_count(self, labels: np.ndarray) -> int:
        """Return the number of losses whose mean is the loss of these labels."""
        return len(labels)


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Features of questions about a context, with the offsets of its tokens.

    Attributes:
        offsets: first character of each token in its context and the one after its last, int32 [tokens, 2];
            (0, 0) outside the context.
        may_start: whether an answer may begin at the token in this window, bool [tokens].
    """

    offsets: np.ndarray
    may_start: np.ndarray


@dataclass(frozen=True, kw_only=True)
class TokenFeatures(Features):
    """Features with token labels: ``labels`` is int64 [tokens], ``NO_TAG`` for a token without a label.

    Attributes:
        word: index of the word whose tag is predicted at the token, over all examples, int64 [tokens]; -1 for none.
    """

    word: np.ndarray

    def labels_of(self, items: np.ndarray) -> np.ndarray:
        return self.labels[self.tokens_of(items)[0]]

    def loss_count(self, labels: np.ndarray) -> int:
        return int(np.count_nonzero(labels != NO_TAG))


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate the ranges of ``lengths[i]`` numbers from ``starts[i]``, int64."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text, without special tokens."""
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def truncate_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the lengths that remain if the longer segment loses one token at a time until both fit into ``room``.

    Of two equally long segments the second loses it, as in google-research/bert (``_truncate_seq_pair``).
    """
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def pair_features(
    task: str,
    pairs: Iterable[tuple[Sequence[int], Sequence[int] | None]],
    labels: np.ndarray,
    templates: Templates,
    max_length: int,
    per_item: int = 1,
) -> Features:
    """Make the features of token pairs, or of single segments if the second is None.

    Args:
        pairs: one per sequence; ``per_item`` consecutive ones make an item.
        labels: one per item.
        max_length: of a sequence, with special tokens.
    """
    ids: list[int] = []
    segments: list[int] = []
    cu_seqlens = [0]
    truncated = 0
    for first, second in pairs:
        template = templates.single if second is None else templates.pair
        before = len(first) + len(second or ())
        first_length, second_length = truncate_pair(len(first), len(second or ()), max_length - template.size)
        truncated += first_length + second_length < before
        texts = (first[:first_length],) if second is None else (first[:first_length], second[:second_length])
        sequence_ids, sequence_segments = template.apply(*texts)
        ids += sequence_ids
        segments += sequence_segments
        cu_seqlens.append(len(ids))
    if truncated:
        log.info("%s: %d of %d sequences cut to %d tokens", task, truncated, len(cu_seqlens) - 1, max_length)
    return Features(
        ids=np.array(ids, np.int32),
        segments=np.array(segments, np.int8),
        cu_seqlens=np.array(cu_seqlens, np.int64),
        labels=labels,
        example=np.arange(len(labels), dtype=np.int64),
        per_item=per_item,
        counts={f"sequences cut to {max_length} tokens": truncated} if truncated else {},
    )
