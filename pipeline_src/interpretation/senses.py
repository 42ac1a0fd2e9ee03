"""One word in two senses: does its vector tell them apart? Its nearest neighbours, layer by layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor

from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.interpretation.material import Tagged
from pipeline_src.interpretation.probes import interval, intervals, rounded
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, WordVectors, word_vectors

TWO_CONTEXTS = Path(__file__).with_name("two_contexts.yaml")
LEAST, MOST = 6, 30  # occurrences of a word in each sense
NEIGHBOURS = 5
APART = -2.0  # in place of a cosine, of two that must not be neighbours


@dataclass(frozen=True)
class Occurrences:
    """One word as it stands in several sentences, each with its sense.

    Attributes:
        word: in small letters.
        senses: of each occurrence.
        sentence: number of the sentence of each.
        apart: what nearest neighbours never share, such as the sentence or the document of each.
        rows: of the vectors, one an occurrence.
    """

    word: str
    senses: tuple[str, ...]
    sentence: tuple[int, ...]
    apart: tuple[object, ...]
    rows: tuple[int, ...]


class InContext(NamedTuple):
    """Sentences, and for some words the sense in each of the sentences that are named."""

    sentences: list[Sentence]
    senses: dict[str, dict[int, str]]


def two_contexts() -> InContext:
    """The sentences of ``two_contexts.yaml`` and its words; each sentence is a document."""
    sentences: list[Sentence] = []
    senses: dict[str, dict[int, str]] = defaultdict(dict)
    for word, by_sense in parse_yaml(TWO_CONTEXTS.read_text(encoding="utf-8")).items():
        for sense, texts in by_sense.items():
            for text in texts:
                senses[word][len(sentences)] = sense
                sentences.append(Sentence(words_of(text), str(len(sentences))))
    return InContext(sentences, dict(senses))


def words_of(text: str) -> tuple[str, ...]:
    """Words and punctuation marks of a text."""
    return tuple(word for word, _ in BertPreTokenizer().pre_tokenize_str(text))


def homographs(tagged: Tagged) -> dict[str, dict[tuple[int, int], str]]:
    """Words that stand LEAST times or more with each of two tags or more: (sentence, place) -> tag, for these tags."""
    found: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for number, (sentence, tags) in enumerate(zip(tagged.sentences, tagged.tags, strict=True)):
        for place, (word, tag) in enumerate(zip(sentence.words, tags, strict=True)):
            if word.isalpha():
                found[word.lower()][tag].append((number, place))
    kept = {}
    for word, by_tag in sorted(found.items()):
        often = {tag: places[:MOST] for tag, places in sorted(by_tag.items()) if len(places) >= LEAST}
        if len(often) > 1:
            kept[word] = {place: tag for tag, places in often.items() for place in places}
    return kept


def in_two_contexts(model: StudiedModel, control: StudiedModel, given: InContext, seed: int) -> dict[str, Any]:
    """Words in two senses: how often the nearest neighbour of another document has the same, and pictures of them.

    ``gain`` is the interval of the last layer's advantage over that of random weights, all words together.
    """
    sentences, senses = given
    rights, words, names = [], {}, []
    for each in (model, control):
        vectors = word_vectors(each, sentences)
        parts = [_of_word(vectors, sentences, word, numbers) for word, numbers in senses.items()]
        rights.append(np.concatenate([_nearest_right(vectors.vectors, part) for part in parts], 1))
        if each is model:
            words = {part.word: _pictured(vectors.vectors, part, sentences) for part in parts}
            names = [str(document) for part in parts for document in part.apart]
        ends = np.cumsum([len(part.rows) for part in parts])[:-1]
        for part, right in zip(parts, np.split(rights[-1], ends, axis=1), strict=True):
            key = "accuracy" if each is model else "random"
            words[part.word][key] = [rounded(share) for share in right.mean(1)]
    return {
        "words": words,
        "accuracy": [rounded(share) for share in rights[0].mean(1)],
        "random": [rounded(share) for share in rights[1].mean(1)],
        "between": intervals(rights[0], names, seed),
        "random_between": intervals(rights[1], names, seed),
        "gain": interval(rights[0][-1], rights[1][-1], names, seed),
        "sentences": len(sentences),
    }


def told_apart(model: StudiedModel, tagged: Tagged) -> dict[str, Any] | None:
    """Homographs of a tagged text: balanced over tags, averaged over words, by layer; None where it has none."""
    found = homographs(tagged)
    numbers = sorted({sentence for places in found.values() for sentence, _ in places})
    if not numbers:
        return None
    rank = {number: order for order, number in enumerate(numbers)}
    words = word_vectors(model, [tagged.sentences[number] for number in numbers])
    row = {key: place for place, key in enumerate(zip(words.sentence.tolist(), words.place.tolist(), strict=True))}
    by_word = []
    for word, places in found.items():
        kept = [(rank[s], row[rank[s], p], tag) for (s, p), tag in places.items() if (rank[s], p) in row]
        places_of, rows, tags_of = zip(*kept, strict=True)
        part = Occurrences(word, tags_of, places_of, places_of, rows)
        right, tags = _nearest_right(words.vectors, part), np.array(part.senses)
        by_word.append(np.mean([right[:, tags == tag].mean(1) for tag in sorted(set(part.senses))], 0))
    return {"words": list(found), "accuracy": [rounded(share) for share in np.mean(by_word, 0)]}


def _of_word(words: WordVectors, sentences: Sequence[Sentence], word: str, senses: dict[int, str]) -> Occurrences:
    """The first occurrence of a word in each of the sentences that are named."""
    rows: dict[int, int] = {}
    for row, (number, place) in enumerate(zip(words.sentence.tolist(), words.place.tolist(), strict=True)):
        if number in senses and number not in rows and sentences[number].words[place].lower() == word:
            rows[number] = row
    documents = tuple(sentences[number].document for number in rows)
    return Occurrences(word, tuple(senses[number] for number in rows), tuple(rows), documents, tuple(rows.values()))


def _similarities(vectors: Tensor, part: Occurrences) -> Tensor:
    """Cosines between occurrences, by layer, [L + 1, O, O]; APART where they must not be neighbours."""
    unit = torch.nn.functional.normalize(vectors[:, list(part.rows)], dim=-1)
    cosines = unit @ unit.transpose(1, 2)
    apart = torch.from_numpy(np.unique([str(each) for each in part.apart], return_inverse=True)[1])
    return cosines.masked_fill(apart[:, None] == apart[None], APART)


def _nearest_right(vectors: Tensor, part: Occurrences) -> np.ndarray:
    """Whether each occurrence's nearest one of another sentence has its sense, bool [L + 1, O]."""
    senses = np.array(part.senses)
    return senses[_similarities(vectors, part).argmax(-1).numpy()] == senses


def _pictured(vectors: Tensor, part: Occurrences, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """What the page shows of a word: its sentences, where each lies in a plane, and its neighbours."""
    similarities = _similarities(vectors, part)
    others = int((similarities > APART).sum(-1).min())
    nearest = similarities.topk(min(NEIGHBOURS, others)).indices
    return {
        "senses": list(part.senses),
        "texts": [" ".join(sentences[number].words) for number in part.sentence],
        "points": [
            [[rounded(value) for value in point] for point in layer] for layer in plane(vectors[:, list(part.rows)])
        ],
        "neighbours": nearest.tolist(),
    }


def plane(vectors: Tensor) -> list[list[list[float]]]:
    """The two directions in which vectors differ most (principal components), layer by layer, scaled to [-1, 1].

    Signs are fixed, so that the same vectors give the same picture: the largest weight of a component is positive.

    Args:
        vectors: [L + 1, O, H].
    """
    pictures = []
    for layer in vectors.double():
        centred = layer - layer.mean(0)
        left, size, right = torch.linalg.svd(centred, full_matrices=False)
        sign = right.gather(1, right.abs().argmax(1, keepdim=True)).sign().T
        points = (left * size * sign)[:, :2]
        if points.shape[1] < 2:
            points = torch.nn.functional.pad(points, (0, 2 - points.shape[1]))
        pictures.append((points / points.abs().max().clamp(min=1e-9)).tolist())
    return pictures
