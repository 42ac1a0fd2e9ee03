"""Word senses in the vectors of each layer: nearest neighbours, and self-similarity of words across sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline_src.base.counter_rng import derive_seed, integers
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.interpret.bootstrap import interval, intervals, rounded, rounded_list
from pipeline_src.interpret.model import ProbedModel, Sentence, SkipMeasure, WordVectors, word_vectors

TWO_CONTEXTS = Path(__file__).with_name("two_contexts.yaml")
# If the corpus has less than this fraction of the words in TWO_CONTEXTS, it counts as text in another language. For
# English text, the fraction is 0.8.
MIN_SHARED_WORDS = 0.5
# Number of neighbours that the report's page shows.
NUM_NEIGHBOURS = 5
# Value that replaces the cosine of two occurrences that must not be neighbours. It is lower than any cosine.
EXCLUDED = -2.0
# Minimum number of sentences in which a word must occur (Ethayarajh 2019).
MIN_SENTENCES = 5
# Maximum number of random words, one per sentence, for the mean cosine of any two words.
MAX_BASELINE_WORDS = 1000


class WordSenses(NamedTuple):
    sentences: list[Sentence]
    # Word -> index of a sentence -> sense of the word in this sentence.
    senses: dict[str, dict[int, str]]


@dataclass(frozen=True)
class Occurrences:
    # Occurrences of one word, with the sense, sentence and document of each. `index`: index of its word vector.
    senses: tuple[str, ...]
    sentence: tuple[int, ...]
    documents: tuple[str, ...]
    index: tuple[int, ...]


def two_contexts() -> WordSenses:
    # Each sentence counts as its own document.
    by_word: dict[str, dict[str, list[str]]] = parse_yaml(TWO_CONTEXTS.read_text(encoding="utf-8"))
    sentences: list[Sentence] = []
    senses: dict[str, dict[int, str]] = {}
    for word, by_sense in by_word.items():
        senses[word] = {}
        for sense, texts in by_sense.items():
            for text in texts:
                number = len(sentences)
                senses[word][number] = sense
                sentences.append(Sentence.of_text(text, str(number)))
    return WordSenses(sentences, senses)


def same_language(sentences: Sequence[Sentence], text: Sequence[Sentence]) -> bool:
    known = {word.lower() for sentence in text for word in sentence.words}
    shared = [word.lower() in known for sentence in sentences for word in sentence.words]
    return sum(shared) >= MIN_SHARED_WORDS * len(shared)


def in_two_contexts(model: ProbedModel, control: ProbedModel, word_senses: WordSenses, seed: int) -> dict[str, Any]:
    """Compute how often an occurrence's nearest neighbour in another document has the same sense.

    In the result, ``gain`` is the interval of the last layer's accuracy minus the accuracy of the last layer of
    ``control``. ``words`` has the scores of each word, with the sentences and neighbours that the report shows.
    """
    sentences, senses = word_senses
    vectors = word_vectors(model, sentences)
    control_vectors = word_vectors(control, sentences).vectors
    words: dict[str, dict[str, Any]] = {}
    # For each word, whether each occurrence's nearest neighbour has the same sense, bool [L + 1, O].
    model_correct: list[np.ndarray] = []
    control_correct: list[np.ndarray] = []
    documents: list[str] = []
    for word, sense_by_sentence in senses.items():
        # The control has the same occurrences, since it has the same tokenizer.
        occurrences = _occurrences(vectors, sentences, word, sense_by_sentence)
        documents += occurrences.documents
        similarities = _similarities(vectors.vectors, occurrences)
        by_model = _nearest_correct(similarities, occurrences)
        by_control = _nearest_correct(_similarities(control_vectors, occurrences), occurrences)
        model_correct.append(by_model)
        control_correct.append(by_control)
        # An occurrence has fewer possible neighbours if other occurrences are in its own document.
        candidates = int((similarities > EXCLUDED).sum(-1).min())
        words[word] = {
            "senses": list(occurrences.senses),
            "texts": [" ".join(sentences[number].words) for number in occurrences.sentence],
            "neighbours": similarities.topk(min(NUM_NEIGHBOURS, candidates)).indices.tolist(),
            "accuracy": rounded_list(by_model.mean(1)),
            "random": rounded_list(by_control.mean(1)),
        }
    of_model = np.concatenate(model_correct, 1)
    of_control = np.concatenate(control_correct, 1)
    return {
        "words": words,
        "accuracy": rounded_list(of_model.mean(1)),
        "random": rounded_list(of_control.mean(1)),
        "between": intervals(of_model, documents, seed),
        "random_between": intervals(of_control, documents, seed),
        "gain": interval(of_model[-1], of_control[-1], documents, seed),
        "sentences": len(sentences),
    }


def _occurrences(words: WordVectors, sentences: Sequence[Sentence], word: str, senses: dict[int, str]) -> Occurrences:
    # Returns the first occurrence of the word in each sentence for which `senses` has its sense.

    # Sentence -> index of the word's vector.
    first: dict[int, int] = {}
    for index, (number, position) in enumerate(zip(words.sentence.tolist(), words.position.tolist(), strict=True)):
        if number in senses and sentences[number].words[position].lower() == word:
            first.setdefault(number, index)
    return Occurrences(
        senses=tuple(senses[number] for number in first),
        sentence=tuple(first),
        documents=tuple(sentences[number].document for number in first),
        index=tuple(first.values()),
    )


def _similarities(vectors: Tensor, occurrences: Occurrences) -> Tensor:
    # Returns the cosines between occurrences, [L + 1, O, O]; EXCLUDED for occurrences in the same document.
    unit = torch.nn.functional.normalize(vectors[:, list(occurrences.index)], dim=-1)
    _, document = np.unique(occurrences.documents, return_inverse=True)
    same_document = torch.from_numpy(document[:, None] == document[None])
    return (unit @ unit.transpose(1, 2)).masked_fill(same_document, EXCLUDED)


def _nearest_correct(similarities: Tensor, occurrences: Occurrences) -> np.ndarray:
    # Returns whether each occurrence's nearest neighbour has the same sense, bool [L + 1, O].
    senses = np.array(occurrences.senses)
    return senses[similarities.argmax(-1).numpy()] == senses


def self_similarity(model: ProbedModel, sentences: Sequence[Sentence], seed: int) -> dict[str, Any]:
    """Compute the mean cosine of a word's vectors in different sentences, minus the mean cosine of any two words.

    Only the decrease from layer 0 is meaningful (Ethayarajh 2019). The level is not: random weights have a low value
    already in layer 0, because their word and position embeddings are equally large.

    In the result, ``adjusted`` is the value of each layer, ``between`` its interval over words, and ``fall`` the
    largest decrease from layer 0.
    """
    words = word_vectors(model, sentences)
    # Word -> sentence -> index of the word's first vector in this sentence.
    by_type: dict[str, dict[int, int]] = defaultdict(dict)
    by_sentence: dict[int, list[int]] = defaultdict(list)
    for index, (number, position) in enumerate(zip(words.sentence.tolist(), words.position.tolist(), strict=True)):
        word = sentences[number].words[position].lower()
        by_type[word].setdefault(number, index)
        by_sentence[number].append(index)
    frequent = [list(uses.values()) for uses in by_type.values() if len(uses) >= MIN_SENTENCES]
    if not frequent:
        raise SkipMeasure(f"no word occurs in {MIN_SENTENCES} sentences")

    # For the cosine of any two words, take a random word of each sentence.
    numbers = sorted(by_sentence)[:MAX_BASELINE_WORDS]
    sizes = np.array([len(by_sentence[number]) for number in numbers])
    sampled = integers(derive_seed(seed, "any two words"), np.array(numbers), 0, sizes).tolist()
    any_words = [by_sentence[number][position] for number, position in zip(numbers, sampled, strict=True)]

    adjusted = []
    baseline = []
    for layer in words.vectors:
        unit = torch.nn.functional.normalize(layer, dim=-1)
        of_any_words = _mean_cosine(unit[any_words])
        of_words = np.array([_mean_cosine(unit[uses]) for uses in frequent])
        baseline.append(of_any_words)
        adjusted.append(of_words - of_any_words)
    by_layer = [float(layer.mean()) for layer in adjusted]
    # Each word counts as its own document, so that the bootstrap resamples words.
    documents = [str(number) for number in range(len(frequent))]
    return {
        "words": len(frequent),
        "baseline": rounded_list(baseline),
        "adjusted": rounded_list(by_layer),
        "between": intervals(np.stack(adjusted), documents, seed),
        "fall": rounded(by_layer[0] - min(by_layer)),
    }


def _mean_cosine(unit: Tensor) -> float:
    # Returns the mean cosine of all pairs of unit vectors. The squared sum of the vectors has each pair twice, plus 1
    # for each vector: (a + b)² = 2 a·b + 1 + 1.
    count = len(unit)
    return (float(unit.sum(0).square().sum()) - count) / (count * (count - 1))
