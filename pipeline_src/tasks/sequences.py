"""Token sequences of one text or two, cut to length and framed by the tokenizer's marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.progress import log
from pipeline_src.tasks.features import Features
from pipeline_src.tokenizer.frame import Frames


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, without special tokens."""
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


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
    frames: Frames,
    max_length: int,
    per_item: int = 1,
) -> Features:
    """Features of token pairs (or of single segments, where the second is None), each cut to ``max_length`` tokens.

    Args:
        task: named in the log line that says how many sequences were cut, which ``counts`` says too.
        pairs: one per sequence; ``per_item`` of them in a row make an item.
        labels: one per item.
        frames: where the tokenizer puts its marks.
        max_length: tokens of a sequence at most, marks included.
        per_item: see :class:`Features`.
    """
    ids: list[int] = []
    segments: list[int] = []
    cu_seqlens = [0]
    shortened = 0
    for first, second in pairs:
        frame = frames.single if second is None else frames.pair
        room = max_length - frame.size
        keep_first, keep_second = cut(len(first), len(second or ()), room)
        shortened += keep_first + keep_second < len(first) + len(second or ())
        texts = (first[:keep_first],) if second is None else (first[:keep_first], second[:keep_second])
        framed = frame.around(*texts)
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
