"""Word senses in the vectors of each layer: nearest neighbours, and similarity of a word's vectors in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, integers
from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.interpretation.bootstrap import interval, intervals, rounded, rounded_list
from pipeline_src.interpretation.data import words_of
from pipeline_src.interpretation.model import ProbedModel, Sentence, SkipMeasure, WordVectors, word_vectors

TWO_CONTEXTS = Path(__file__).with_name("two_contexts.yaml")
MIN_SHARED_WORDS = 0.5  # fraction of words that occur in the text too; for English sentences it is 0.8
MIN_OCCURRENCES = 6  # of a word in each source
MAX_PER_SOURCE = 12  # occurrences of a word in each source
MIN_DOCUMENTS = 2  # of each source in which a word must occur, since neighbours never share a document
NUM_WORDS = 5  # that are chosen from two sources
NUM_NEIGHBOURS = 5  # shown on the report's page
EXCLUDED = -2.0  # replaces the cosine of two occurrences that must not be neighbours
MIN_SENTENCES = 5  # in which a word must occur (Ethayarajh 2019)
MAX_BASELINE_WORDS = 1000  # from as many sentences


class WordSenses(NamedTuple):
    """Sentences, and word -> index of a sentence -> sense of the word there."""

    sentences: list[Sentence]
    senses: dict[str, dict[int, str]]


@dataclass(frozen=True)
class Occurrences:
    """Occurrences of one word: for each, its sense, sentence, document, and index among the vectors."""

    word: str  # in lower case
    senses: tuple[str, ...]
    sentence: tuple[int, ...]
    documents: tuple[str, ...]
    index: tuple[int, ...]


def two_contexts() -> WordSenses:
    """Read ``two_contexts.yaml``; each sentence is a document."""
    sentences: list[Sentence] = []
    senses: dict[str, dict[int, str]] = defaultdict(dict)
    for word, by_sense in parse_yaml(TWO_CONTEXTS.read_text(encoding="utf-8")).items():
        for sense, texts in by_sense.items():
            for text in texts:
                senses[word][len(sentences)] = sense
                sentences.append(Sentence(words_of(text), str(len(sentences))))
    return WordSenses(sentences, dict(senses))


def words_of_two_sources(texts: Sequence[Sentence]) -> WordSenses:
    """Choose the rarest of the words that are frequent enough in two sources; the source serves as the sense.

    This needs no annotation. The rarest words are chosen because their topics differ most between sources.
    """
    occurrences: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, sentence in enumerate(texts):
        for word in dict.fromkeys(word.lower() for word in sentence.words if word.isalpha()):
            occurrences[word][sentence.source].append(number)
    frequent = {}
    for word, by_source in occurrences.items():
        enough = {
            source: numbers
            for source, numbers in by_source.items()
            if len(numbers) >= MIN_OCCURRENCES and len({texts[number].document for number in numbers}) >= MIN_DOCUMENTS
        }
        if len(enough) > 1:
            frequent[word] = enough
    if not frequent:
        raise SkipMeasure("no word occurs often enough in two sources of the text")
    rarest = sorted(frequent, key=lambda word: (sum(map(len, frequent[word].values())), word))[:NUM_WORDS]
    sentences: list[Sentence] = []
    senses: dict[str, dict[int, str]] = {word: {} for word in rarest}
    for word in rarest:
        for source, numbers in sorted(frequent[word].items()):
            for number in numbers[:: -(-len(numbers) // MAX_PER_SOURCE)]:
                senses[word][len(sentences)] = source
                sentences.append(texts[number])
    return WordSenses(sentences, senses)


def same_language(sentences: Sequence[Sentence], text: Sequence[Sentence]) -> bool:
    """Return whether at least half of the words in ``sentences`` occur in ``text``."""
    known = {word.lower() for sentence in text for word in sentence.words}
    words = [word.lower() in known for sentence in sentences for word in sentence.words]
    return sum(words) >= MIN_SHARED_WORDS * len(words)


def in_two_contexts(model: ProbedModel, control: ProbedModel, word_senses: WordSenses, seed: int) -> dict[str, Any]:
    """Test how often an occurrence's nearest neighbour in another document has the same sense.

    ``gain`` is the interval, over all words, of the last layer's accuracy minus that of the last layer of ``control``.
    ``words`` has, by word, its figures and the sentences and neighbours that the report's page shows.
    """
    sentences, senses = word_senses
    correct: list[np.ndarray] = []
    words: dict[str, dict[str, Any]] = {}
    for name, probed in (("accuracy", model), ("random", control)):
        vectors = word_vectors(probed, sentences)
        parts = [_occurrences(vectors, sentences, word, numbers) for word, numbers in senses.items()]
        of_words = [_nearest_correct(vectors.vectors, part) for part in parts]
        correct.append(np.concatenate(of_words, 1))
        words = words or {part.word: _for_page(vectors.vectors, part, sentences) for part in parts}
        for part, of_word in zip(parts, of_words, strict=True):
            words[part.word][name] = rounded_list(of_word.mean(1))
    documents = [document for part in parts for document in part.documents]  # equal for both, with the same tokenizer
    return {
        "words": words,
        "accuracy": rounded_list(correct[0].mean(1)),
        "random": rounded_list(correct[1].mean(1)),
        "between": intervals(correct[0], documents, seed),
        "random_between": intervals(correct[1], documents, seed),
        "gain": interval(correct[0][-1], correct[1][-1], documents, seed),
        "sentences": len(sentences),
    }


def _occurrences(words: WordVectors, sentences: Sequence[Sentence], word: str, senses: dict[int, str]) -> Occurrences:
    """Find the first occurrence of ``word`` in each sentence in which ``senses`` has its sense."""
    first: dict[int, int] = {}
    for index, (number, position) in enumerate(zip(words.sentence.tolist(), words.position.tolist(), strict=True)):
        if number in senses and number not in first and sentences[number].words[position].lower() == word:
            first[number] = index
    documents = tuple(sentences[number].document for number in first)
    return Occurrences(word, tuple(senses[number] for number in first), tuple(first), documents, tuple(first.values()))


def _similarities(vectors: Tensor, part: Occurrences) -> Tensor:
    """Return the cosines between occurrences in each layer, [L + 1, O, O]; EXCLUDED if both are of one document."""
    unit = torch.nn.functional.normalize(vectors[:, list(part.index)], dim=-1)
    document = torch.from_numpy(np.unique(part.documents, return_inverse=True)[1])
    return (unit @ unit.transpose(1, 2)).masked_fill(document[:, None] == document[None], EXCLUDED)


def _nearest_correct(vectors: Tensor, part: Occurrences) -> np.ndarray:
    """Return whether each occurrence's nearest neighbour has the same sense, bool [L + 1, O]."""
    senses = np.array(part.senses)
    return senses[_similarities(vectors, part).argmax(-1).numpy()] == senses


def _for_page(vectors: Tensor, part: Occurrences, sentences: Sequence[Sentence]) -> dict[str, Any]:
    similarities = _similarities(vectors, part)
    candidates = int((similarities > EXCLUDED).sum(-1).min())
    return {
        "senses": list(part.senses),
        "texts": [" ".join(sentences[number].words) for number in part.sentence],
        "neighbours": similarities.topk(min(NUM_NEIGHBOURS, candidates)).indices.tolist(),
    }


def self_similarity(model: ProbedModel, sentences: Sequence[Sentence], seed: int) -> dict[str, Any]:
    """Compute the mean cosine of a word's vectors in different sentences, minus that of any two words' vectors.

    Only the fall from layer 0 is meaningful (Ethayarajh 2019): random weights start where trained weights end, because
    their word and position embeddings are equally large. ``between`` has each layer's interval over words.
    """
    words = word_vectors(model, sentences)
    by_type: dict[str, dict[int, int]] = defaultdict(dict)
    by_sentence: dict[int, list[int]] = defaultdict(list)
    for index, (sentence, position) in enumerate(zip(words.sentence.tolist(), words.position.tolist(), strict=True)):
        by_type[sentences[sentence].words[position].lower()].setdefault(sentence, index)
        by_sentence[sentence].append(index)
    frequent = [list(index.values()) for index in by_type.values() if len(index) >= MIN_SENTENCES]
    if not frequent:
        raise SkipMeasure(f"no word occurs in {MIN_SENTENCES} sentences")
    numbers = np.array(sorted(by_sentence)[:MAX_BASELINE_WORDS])
    sizes = np.array([len(by_sentence[number]) for number in numbers])
    sampled = integers(derive_seed(seed, "any two words"), numbers, 0, sizes)
    any_words = [
        by_sentence[number][position] for number, position in zip(numbers.tolist(), sampled.tolist(), strict=True)
    ]
    adjusted, baseline = [], []
    for layer in words.vectors:
        unit = torch.nn.functional.normalize(layer, dim=-1)
        baseline.append(_mean_cosine(unit[any_words]))
        adjusted.append(np.array([_mean_cosine(unit[index]) for index in frequent]) - baseline[-1])
    by_layer = [float(layer.mean()) for layer in adjusted]
    return {
        "words": len(frequent),
        "baseline": rounded_list(baseline),
        "adjusted": rounded_list(by_layer),
        "between": intervals(np.stack(adjusted), [str(number) for number in range(len(frequent))], seed),
        "fall": rounded(by_layer[0] - min(by_layer)),
    }


def _mean_cosine(unit: Tensor) -> float:
    """Return the mean cosine over all pairs of vectors of length 1 (the square of their sum has each pair twice)."""
    count = len(unit)
    return (float(unit.sum(0).square().sum()) - count) / (count * (count - 1))
