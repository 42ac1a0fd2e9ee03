"""Model inputs of a task: token sequences laid end to end, without padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.progress import log
from pipeline_src.tokenizer.special_tokens import Templates

# Label of a token that is not scored: torch's cross-entropy ignores it.
NO_TAG = -100


@dataclass(frozen=True)
class Features:
    """Sequences of one data file, in the order of its examples.

    Attributes:
        ids: token ids of all sequences end to end, int32 [tokens].
        segments: token type ids: 0 for the first segment with [CLS] and its [SEP], 1 for the second, int8 [tokens].
        cu_seqlens: start of each sequence, and the end of the last one, int64 [sequences + 1].
        labels: int64 [items] for classes, float32 [items] for a regression, int64 [items, 2] for the first and last
            token of a span, counted from the start of its sequence (0, 0: no answer).
        example: index of each item's example, int64 [items] (the windows of a long context are separate items).
        per_item: sequences per item; an item gets one answer (1, but the number of choices in SWAG).
        counts: reason -> number of truncated sequences, missing answers and so on.
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
        # Tokens of each item.
        return np.diff(self.cu_seqlens[:: self.per_item])

    def sequences_of(self, items: np.ndarray) -> np.ndarray:
        return (items[:, None] * self.per_item + np.arange(self.per_item)).ravel()

    def tokens_of(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Positions in `ids` of all tokens of the items, and cu_seqlens of their sequences, int64.
        sequences = self.sequences_of(items)
        first = self.cu_seqlens[sequences]
        lengths = self.cu_seqlens[sequences + 1] - first
        return ranges(first, lengths), np.concatenate([[0], np.cumsum(lengths)])

    def labels_of(self, items: np.ndarray) -> np.ndarray:
        return self.labels[items]

    def loss_count(self, labels: np.ndarray) -> int:
        # The number of terms in the mean that is the loss of these labels.
        return len(labels)


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Features of questions about a context, with the offsets of its tokens.

    Attributes:
        offsets: where each token begins and ends (exclusive) in the context's characters, int32 [tokens, 2]; (0, 0)
            for tokens that are not of the context.
        may_start: whether an answer may begin at the token, for each token of this window, bool [tokens].
    """

    offsets: np.ndarray
    may_start: np.ndarray


@dataclass(frozen=True, kw_only=True)
class TokenFeatures(Features):
    """Features with token labels: ``labels`` is int64 [tokens], ``NO_TAG`` for a token without a label.

    Attributes:
        word: index, over all examples, of the word whose tag is predicted at the token, int64 [tokens]; -1 for no word.
    """

    word: np.ndarray

    def labels_of(self, items: np.ndarray) -> np.ndarray:
        return self.labels[self.tokens_of(items)[0]]

    def loss_count(self, labels: np.ndarray) -> int:
        return int(np.count_nonzero(labels != NO_TAG))


@dataclass(frozen=True, kw_only=True)
class RankingFeatures(Features):
    """Features of queries and passages: each text is one sequence, the corpus first, and may be in several items.

    ``labels`` has the sequences of each item: query, passage and hard negatives, int64 [items, texts].
    """

    @property
    def items(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.cu_seqlens)[self.labels].sum(1)

    def sequences_of(self, items: np.ndarray) -> np.ndarray:
        return self.labels[items].ravel()

    def as_texts(self) -> Features:
        # Every text is an item.
        numbers = np.arange(len(self.cu_seqlens) - 1)
        return Features(self.ids, self.segments, self.cu_seqlens, labels=numbers, example=numbers)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate the ranges from ``starts[i]`` to ``starts[i] + lengths[i]`` (exclusive), int64."""
    # Starts [5, 9] and lengths [2, 3]: [0, 1, 2, 3, 4] + [5, 5, 7, 7, 7] = [5, 6, 9, 10, 11].
    ends = np.cumsum(lengths)
    total = ends[-1] if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    # Without special tokens.
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def truncate_pair(first: int, second: int, room: int) -> tuple[int, int]:
    # The longer segment loses a token at a time until both fit; of equally long ones, the second (google-research/bert,
    # `_truncate_seq_pair`).
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
    """Make the features of pairs of segments, given as token ids; the second segment may be None.

    Args:
        pairs: one pair per sequence; ``per_item`` consecutive pairs make an item.
        labels: one label per item.
        max_length: maximum number of tokens in a sequence, special tokens included.
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
