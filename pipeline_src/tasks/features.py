"""Model inputs of a task: token sequences concatenated without padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.progress import log
from pipeline_src.tokenizer.special_tokens import Templates

# Label of a token that has no tag. It is the default `ignore_index` of torch's cross-entropy.
NO_TAG = -100


@dataclass(frozen=True)
class Features:
    """Sequences of one data file, in the order of its examples.

    Attributes:
        ids: token ids of all sequences, concatenated, int32 [tokens].
        segments: token type ids, int8 [tokens]: 0 for the first segment with its [CLS] and [SEP], 1 for the second.
        cu_seqlens: start of each sequence, then the end of the last sequence, int64 [sequences + 1].
        labels: int64 [items] for classes, float32 [items] for a regression, float32 [items, labels] with 0 and 1 for
            sets of labels. For spans int64 [items, 2]: the first and
            last token, counted from the start of the sequence, or (0, 0) if there is no answer.
        example: index of each item's example, int64 [items]. The windows of a long context are separate items.
        per_item: number of sequences in an item, which gets one prediction. It is the number of choices for multiple
            choice, 2 if the texts of a pair are encoded separately, else 1.
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
        # Number of tokens in each item.
        return np.diff(self.cu_seqlens[:: self.per_item])

    def sequences_of(self, items: np.ndarray) -> np.ndarray:
        return (items[:, None] * self.per_item + np.arange(self.per_item)).ravel()

    def tokens_of(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Returns the positions in `ids` of all tokens of the items, and the cu_seqlens of their sequences, both int64.
        sequences = self.sequences_of(items)
        first = self.cu_seqlens[sequences]
        lengths = self.cu_seqlens[sequences + 1] - first
        return ranges(first, lengths), np.concatenate([[0], np.cumsum(lengths)])

    def labels_of(self, items: np.ndarray) -> np.ndarray:
        return self.labels[items]

    def windows_of(self, items: np.ndarray) -> np.ndarray | None:
        # Returns where the windows of each item begin among the items' sequences, with their number at the end, int64
        # [items + 1]. None: an item has no windows.
        return None

    def loss_count(self, labels: np.ndarray) -> int:
        # The loss is a mean over this many terms.
        return len(labels)


@dataclass(frozen=True, kw_only=True)
class WindowFeatures(Features):
    """Features of texts that are read in windows, each of which is a sequence.

    Attributes:
        windows: first sequence of each item, then the number of sequences, int64 [items + 1].
    """

    windows: np.ndarray

    @property
    def items(self) -> int:
        return len(self.windows) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.cu_seqlens[self.windows])

    def sequences_of(self, items: np.ndarray) -> np.ndarray:
        return ranges(self.windows[items], np.diff(self.windows)[items])

    def windows_of(self, items: np.ndarray) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(np.diff(self.windows)[items])])


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Features of questions about a context, with the character offsets of context tokens.

    Attributes:
        offsets: character offsets in the context where each token begins and ends (exclusive), int32 [tokens, 2];
            (0, 0) for tokens of the question and special tokens.
        may_start: whether an answer span may start at the token, bool [tokens]. Of the windows that contain a context
            token, only the window with the most context around the token allows it.
    """

    offsets: np.ndarray
    may_start: np.ndarray


@dataclass(frozen=True, kw_only=True)
class TokenFeatures(Features):
    """Features with a label for each token.

    Attributes:
        labels: index of the tag, int64 [tokens]; ``NO_TAG`` for a token without a tag.
        word: index of the word whose tag is predicted at the token, int64 [tokens], counted over all examples; -1 if
            no word's tag is predicted there.
    """

    word: np.ndarray

    def labels_of(self, items: np.ndarray) -> np.ndarray:
        return self.labels[self.tokens_of(items)[0]]

    def loss_count(self, labels: np.ndarray) -> int:
        return int(np.count_nonzero(labels != NO_TAG))


@dataclass(frozen=True, kw_only=True)
class RankingFeatures(Features):
    """Features of queries and passages, for retrieval.

    Each text is one sequence: first all passages of the corpus, then all queries. Several items may share a sequence.

    Attributes:
        labels: sequence indices of each item's query, passage and hard negatives, int64 [items, texts].
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
        # Returns features in which every text is an item.
        numbers = np.arange(len(self.cu_seqlens) - 1)
        return Features(self.ids, self.segments, self.cu_seqlens, labels=numbers, example=numbers)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate the ranges from ``starts[i]`` to ``starts[i] + lengths[i]`` (exclusive), int64."""
    # Example: starts [5, 9] and lengths [2, 3] give [0, 1, 2, 3, 4] + [5, 5, 7, 7, 7] = [5, 6, 9, 10, 11].
    ends = np.cumsum(lengths)
    total = ends[-1] if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    # Returns the token ids of each text, without special tokens.
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def truncate_pair(first: int, second: int, room: int) -> tuple[int, int]:
    # Returns the lengths to which two segments of `first` and `second` tokens are truncated. The longer segment loses
    # one token at a time until both fit. If both are equally long, the second loses it (google-research/bert,
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
    """Make features from segments of token ids.

    Args:
        pairs: for each sequence, the first segment and the second segment, or None if there is no second.
            ``per_item`` consecutive sequences make an item.
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
