"""Laying token sequences out as BERT reads them: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] (paper, section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import log
from pipeline_src.tasks.features import Features


@dataclass(frozen=True)
class Specials:
    """Ids of special tokens: those that frame a sequence, and that of a word without a token of its own."""

    cls: int
    sep: int
    unk: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Specials:
        """Look them up.

        Raises:
            PipelineError: the vocabulary lacks one.
        """
        ids = []
        for token in ("[CLS]", "[SEP]", "[UNK]"):
            token_id = tokenizer.token_to_id(token)
            if token_id is None:
                remedy = "use the tokenizer that the stage `train_tokenizer` writes"
                raise PipelineError("the vocabulary lacks a special token", token, remedy=remedy)
            ids.append(token_id)
        return cls(*ids)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, without special tokens."""
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def frame(first: Sequence[int], second: Sequence[int] | None, specials: Specials) -> tuple[list[int], list[int]]:
    """Ids and segments of one sequence, special tokens added; without ``second``, all is segment 0."""
    ids = [specials.cls, *first, specials.sep]
    if second is None:
        return ids, [0] * len(ids)
    return [*ids, *second, specials.sep], [0] * len(ids) + [1] * (len(second) + 1)


def cut(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths that fit into ``room`` when one token at a time is taken off the end of the longer segment.

    Of two equally long segments the second gives way, as in google-research/bert (``_truncate_seq_pair``).
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
    specials: Specials,
    max_length: int,
    per_item: int = 1,
) -> Features:
    """Features of token pairs (or of single segments, where the second is None), each cut to ``max_length`` tokens.

    Args:
        task: named in the log line that says how many sequences were cut, which ``counts`` says too.
        pairs: one per sequence; ``per_item`` of them in a row make an item.
        labels: one per item.
        specials: ids of [CLS] and [SEP].
        max_length: tokens of a sequence at most, special tokens included.
        per_item: see :class:`Features`.
    """
    ids: list[int] = []
    segments: list[int] = []
    cu_seqlens = [0]
    shortened = 0
    for first, second in pairs:
        room = max_length - (2 if second is None else 3)
        keep_first, keep_second = cut(len(first), len(second or ()), room)
        shortened += keep_first + keep_second < len(first) + len(second or ())
        framed = frame(first[:keep_first], None if second is None else second[:keep_second], specials)
        ids += framed[0]
        segments += framed[1]
        cu_seqlens.append(len(ids))
    if shortened:
        log.info("%s: %d of %d sequences cut to %d tokens", task, shortened, len(cu_seqlens) - 1, max_length)
    return Features(
        ids=np.array(ids, np.int32),
        segments=np.array(segments, np.int8),
        cu_seqlens=np.array(cu_seqlens, np.int64),
        labels=labels,
        example=np.arange(len(labels), dtype=np.int64),
        per_item=per_item,
        counts={f"sequences cut to {max_length} tokens": shortened} if shortened else {},
    )
