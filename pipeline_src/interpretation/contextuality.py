"""How alike a word's vectors are from sentence to sentence (Ethayarajh 2019).

The level says nothing: random weights start as far down as trained ones end, because words and positions are equally
large there. What counts is the fall from layer 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pipeline_src.common.counter_rng import derive_seed, integers
from pipeline_src.interpretation.probes import intervals, rounded
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, word_vectors

SENTENCES = 5  # of a word, at least (Ethayarajh 2019)
BASELINE = 1000  # words, each of another sentence


def self_similarity(model: StudiedModel, sentences: Sequence[Sentence], seed: int) -> dict[str, Any]:
    """The mean cosine between a word's occurrences in different sentences, less that of any two words, by layer.

    ``between`` has the interval of each layer as words are drawn anew.

    Raises:
        Skipped: no word stands in so many sentences.
    """
    words = word_vectors(model, sentences)
    by_type: dict[str, dict[int, int]] = defaultdict(dict)
    by_sentence: dict[int, list[int]] = defaultdict(list)
    for row, (sentence, place) in enumerate(zip(words.sentence.tolist(), words.place.tolist(), strict=True)):
        by_type[sentences[sentence].words[place].lower()].setdefault(sentence, row)
        by_sentence[sentence].append(row)
    often = [list(rows.values()) for rows in by_type.values() if len(rows) >= SENTENCES]
    if not often:
        raise Skipped(f"no word stands in {SENTENCES} sentences")
    numbers = np.array(sorted(by_sentence)[:BASELINE])
    sizes = np.array([len(by_sentence[number]) for number in numbers])
    drawn = integers(derive_seed(seed, "any two words"), numbers, 0, sizes)
    any_words = [by_sentence[number][place] for number, place in zip(numbers.tolist(), drawn.tolist(), strict=True)]
    of_words, baseline = [], []
    for layer in words.vectors:
        unit = torch.nn.functional.normalize(layer, dim=-1)
        baseline.append(_mean_cosine(unit[any_words]))
        of_words.append(np.array([_mean_cosine(unit[rows]) for rows in often]) - baseline[-1])
    alike = [float(layer.mean()) for layer in of_words]
    return {
        "words": len(often),
        "baseline": [rounded(value) for value in baseline],
        "adjusted": [rounded(value) for value in alike],
        "between": intervals(np.stack(of_words), [str(number) for number in range(len(often))], seed),
        "fall": rounded(alike[0] - min(alike)),
    }


def _mean_cosine(unit: torch.Tensor) -> float:
    """Over all pairs of different rows of length 1."""
    count = len(unit)
    return (float(unit.sum(0).square().sum()) - count) / (count * (count - 1))
