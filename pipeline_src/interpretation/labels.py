"""What is read off word vectors: tags, capitals, and the random labels of a control task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pipeline_src.common.counter_rng import derive_seed, uniform
from pipeline_src.interpretation.word_vectors import Sentence

NO_LABEL = -1
CAPITALS = ("small", "capital")


def capitals(sentences: Sequence[Sentence]) -> list[list[int]]:
    """For each word whether it began with a capital in the text: 0 or 1 of CAPITALS.

    NO_LABEL for the first word of a sentence, which always has one, and for what has no letter at its beginning.
    """
    return [
        [
            NO_LABEL if not place or not word[0].isalpha() else int(word[0].isupper())
            for place, word in enumerate(sentence.words)
        ]
        for sentence in sentences
    ]


def control_labels(types: Sequence[str], labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """A random label for each word, the same for all words of a type (Hewitt and Liang 2019).

    Args:
        types: of each word, [W].
        labels: the real ones, from whose frequencies those of types are drawn, int64 [W].
        classes: how many labels there are.
        seed: a type's label is a function of it, the type and the frequencies alone.

    Returns:
        int64 [W].
    """
    shares = np.bincount(labels[labels != NO_LABEL], minlength=classes).cumsum()
    names = sorted(set(types))
    streams = np.array([derive_seed(seed, "control task", name) for name in names], np.uint64)
    drawn = uniform(streams, np.zeros(len(names), np.int64), 0) * shares[-1]
    label_of = dict(zip(names, np.searchsorted(shares, drawn, side="right").tolist(), strict=True))
    return np.array([label_of[name] for name in types], np.int64)


def type_majority(
    types: Sequence[str], labels: np.ndarray, tested: Sequence[str]
) -> tuple[np.ndarray, set[str], set[str]]:
    """The most frequent label of each word's type; that of all words where the type was not seen (Liu et al. 2019).

    Args:
        types, labels: of the words that are counted.
        tested: types of the words to label.

    Returns:
        int64 [tested]; the types that were seen; those seen with more than one label.
    """
    counts: dict[str, Counter[int]] = {}
    for name, label in zip(types, labels.tolist(), strict=True):
        counts.setdefault(name, Counter())[label] += 1
    fallback = min(Counter(labels.tolist()).items(), key=lambda item: (-item[1], item[0]))[0]
    best = {name: min(found.items(), key=lambda item: (-item[1], item[0]))[0] for name, found in counts.items()}
    ambiguous = {name for name, found in counts.items() if len(found) > 1}
    return np.array([best.get(name, fallback) for name in tested], np.int64), set(best), ambiguous
