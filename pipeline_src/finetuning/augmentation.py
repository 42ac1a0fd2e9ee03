"""TinyBERT's data augmentation (Jiao et al. 2020, algorithm 1): a task's texts with other words, for a student to read.

A word of one piece may become what a model of masked words puts in its place, one of several pieces a neighbour of its
vector; words that say little by themselves stay. All is as in huawei-noah/Pretrained-Language-Model,
data_augmentation.py, but for these: words change as pieces, so that no text is tokenised again; a word of several
pieces has the mean of their vectors; candidates begin a word and are letters alone; letters are those of any script;
and while one text of a pair changes, the other is as it was.
"""

from __future__ import annotations

import numpy as np

from pipeline_src.common.counter_rng import bits, derive_seed, integers, uniform
from pipeline_src.finetuning.substitutes import Substitutes, find_candidates
from pipeline_src.finetuning.words import Words, find_words, ranges
from pipeline_src.tasks.features import Features

CHANGED = 0.4  # share of words that become a candidate (huawei-noah/Pretrained-Language-Model, p)


def augment(features: Features, copies: int, seed: int, words: Substitutes) -> Features:
    """The sequences of ``features``, followed by up to ``copies`` of each of their texts with other words.

    Which words change, and into which of their candidates, depends on the seed, the example, the text and the copy
    alone. A copy like an earlier one is left out.
    """
    found = find_words(features, words.tokenizer)
    candidates, counts = find_candidates(features, found, words)
    keys = features.example[found.sequence] * 2 + found.place
    number = _number_within(found)
    before, segments = np.diff(features.cu_seqlens), np.asarray(features.segments)
    seen = [_row_sums(np.asarray(features.ids), before)]
    parts, origins = [(features.ids, segments, before)], [np.arange(features.items)]
    for copy in range(copies):
        changes = (uniform(derive_seed(seed, "which", copy), keys, number) < CHANGED) & (counts > 0)
        chosen = integers(derive_seed(seed, "what", copy), keys, number, np.maximum(counts, 1))
        for place in np.unique(found.place):
            here = changes & (found.place == place)
            ids, kept = np.array(features.ids), np.ones(len(features.ids), bool)
            ids[found.first[here]] = candidates[here, chosen[here]]
            longer = found.some(here & (found.pieces > 1))
            kept[ranges(longer.first + 1, longer.pieces - 1)] = False
            lengths = np.add.reduceat(kept, features.cu_seqlens[:-1], dtype=np.int64)
            own = _row_sums(ids[kept], lengths)
            new = ~np.any([own == earlier for earlier in seen], axis=0)
            seen.append(own)
            of_new = kept & np.repeat(new, before)
            parts.append((ids[of_new], segments[of_new], lengths[new]))
            origins.append(np.flatnonzero(new))
    ids, segments, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
    origin = np.concatenate(origins)
    return Features(
        ids=ids.astype(np.int32),
        segments=segments.astype(np.int8),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        labels=features.labels[origin],
        example=features.example[origin],
        counts=features.counts,
    )


def _number_within(found: Words) -> np.ndarray:
    """The number of each word within its text, int64 [words]."""
    places = np.arange(len(found.first))
    opens = np.concatenate([[True], found.start[1:] != found.start[:-1]])[: len(places)]
    return places - np.maximum.accumulate(np.where(opens, places, 0))


def _row_sums(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """64 bits for each row of ids, the same for equal rows and no others, by all odds, uint64 [rows]."""
    starts = np.cumsum(lengths) - lengths
    return np.add.reduceat(bits(0, ids, np.arange(len(ids)) - np.repeat(starts, lengths)), starts)
