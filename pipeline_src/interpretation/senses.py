"""Word senses in the vectors of each layer: nearest neighbours, and similarity of a word across sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, integers
from pipeline_src.interpretation.bootstrap import interval, intervals, rounded, rounded_list
from pipeline_src.interpretation.data import Skipped, WordSenses
from pipeline_src.interpretation.model import Sentence, StudiedModel, WordVectors, word_vectors

NEIGHBOURS = 5
EXCLUDED = -2.0  # replaces the cosine of two occurrences that must not be neighbours
MIN_SENTENCES = 5  # that a word occurs in (Ethayarajh 2019)
BASELINE_WORDS = 1000  # each from another sentence


@dataclass(frozen=True)
class Occurrences:
    """One word in several sentences, each with its sense.

    Attributes:
        word: in lower case.
        senses: of each occurrence.
        sentence: index of each occurrence's sentence.
        documents: of each occurrence; nearest neighbours are from another one.
        rows: of the vectors, one for each occurrence.
    """

    word: str
    senses: tuple[str, ...]
    sentence: tuple[int, ...]
    documents: tuple[str, ...]
    rows: tuple[int, ...]


def in_two_contexts(model: StudiedModel, control: StudiedModel, given: WordSenses, seed: int) -> dict[str, Any]:
    """Test how often an occurrence's nearest neighbour in another document has the same sense.

    ``gain`` is the interval of the last layer's advantage over that of random weights, over all words. ``words`` also
    holds the sentences and neighbours that the page shows.
    """
    sentences, senses = given
    correct, words, names = [], {}, []
    for each in (model, control):
        vectors = word_vectors(each, sentences)
        parts = [_occurrences(vectors, sentences, word, numbers) for word, numbers in senses.items()]
        of_words = [_nearest_correct(vectors.vectors, part) for part in parts]
        correct.append(np.concatenate(of_words, 1))
        if each is model:
            words = {part.word: _picture(vectors.vectors, part, sentences) for part in parts}
            names = [document for part in parts for document in part.documents]
        for part, of_word in zip(parts, of_words, strict=True):
            words[part.word]["accuracy" if each is model else "random"] = rounded_list(of_word.mean(1))
    return {
        "words": words,
        "accuracy": rounded_list(correct[0].mean(1)),
        "random": rounded_list(correct[1].mean(1)),
        "between": intervals(correct[0], names, seed),
        "random_between": intervals(correct[1], names, seed),
        "gain": interval(correct[0][-1], correct[1][-1], names, seed),
        "sentences": len(sentences),
    }


def _occurrences(words: WordVectors, sentences: Sequence[Sentence], word: str, senses: dict[int, str]) -> Occurrences:
    """Find the first occurrence of a word in each sentence with a sense."""
    rows: dict[int, int] = {}
    for row, (number, position) in enumerate(zip(words.sentence.tolist(), words.position.tolist(), strict=True)):
        if number in senses and number not in rows and sentences[number].words[position].lower() == word:
            rows[number] = row
    documents = tuple(sentences[number].document for number in rows)
    return Occurrences(word, tuple(senses[number] for number in rows), tuple(rows), documents, tuple(rows.values()))


def _similarities(vectors: Tensor, part: Occurrences) -> Tensor:
    """Cosines between occurrences in each layer, [L + 1, O, O]; EXCLUDED within a document."""
    unit = torch.nn.functional.normalize(vectors[:, list(part.rows)], dim=-1)
    document = torch.from_numpy(np.unique(part.documents, return_inverse=True)[1])
    return (unit @ unit.transpose(1, 2)).masked_fill(document[:, None] == document[None], EXCLUDED)


def _nearest_correct(vectors: Tensor, part: Occurrences) -> np.ndarray:
    """True where an occurrence's nearest neighbour has its sense, bool [L + 1, O]."""
    senses = np.array(part.senses)
    return senses[_similarities(vectors, part).argmax(-1).numpy()] == senses


def _picture(vectors: Tensor, part: Occurrences, sentences: Sequence[Sentence]) -> dict[str, Any]:
    similarities = _similarities(vectors, part)
    others = int((similarities > EXCLUDED).sum(-1).min())
    return {
        "senses": list(part.senses),
        "texts": [" ".join(sentences[number].words) for number in part.sentence],
        "neighbours": similarities.topk(min(NEIGHBOURS, others)).indices.tolist(),
    }


def self_similarity(model: StudiedModel, sentences: Sequence[Sentence], seed: int) -> dict[str, Any]:
    """Compute the mean cosine of a word in different sentences minus that of any two words (Ethayarajh 2019).

    Only the fall from layer 0 is meaningful: random weights start as low as trained ones end, because their word and
    position embeddings are equally large. ``between`` is the interval of each layer, resampling words.

    Raises:
        Skipped: no word occurs in MIN_SENTENCES sentences.
    """
    words = word_vectors(model, sentences)
    by_type: dict[str, dict[int, int]] = defaultdict(dict)
    by_sentence: dict[int, list[int]] = defaultdict(list)
    for row, (sentence, position) in enumerate(zip(words.sentence.tolist(), words.position.tolist(), strict=True)):
        by_type[sentences[sentence].words[position].lower()].setdefault(sentence, row)
        by_sentence[sentence].append(row)
    frequent = [list(rows.values()) for rows in by_type.values() if len(rows) >= MIN_SENTENCES]
    if not frequent:
        raise Skipped(f"no word stands in {MIN_SENTENCES} sentences")
    numbers = np.array(sorted(by_sentence)[:BASELINE_WORDS])
    sizes = np.array([len(by_sentence[number]) for number in numbers])
    sampled = integers(derive_seed(seed, "any two words"), numbers, 0, sizes)
    any_words = [by_sentence[number][place] for number, place in zip(numbers.tolist(), sampled.tolist(), strict=True)]
    adjusted, baseline = [], []
    for layer in words.vectors:
        unit = torch.nn.functional.normalize(layer, dim=-1)
        baseline.append(_mean_cosine(unit[any_words]))
        adjusted.append(np.array([_mean_cosine(unit[rows]) for rows in frequent]) - baseline[-1])
    by_layer = [float(layer.mean()) for layer in adjusted]
    return {
        "words": len(frequent),
        "baseline": rounded_list(baseline),
        "adjusted": rounded_list(by_layer),
        "between": intervals(np.stack(adjusted), [str(number) for number in range(len(frequent))], seed),
        "fall": rounded(by_layer[0] - min(by_layer)),
    }


def _mean_cosine(unit: Tensor) -> float:
    """Mean over all pairs of different rows, which have length 1."""
    count = len(unit)
    return (float(unit.sum(0).square().sum()) - count) / (count * (count - 1))
