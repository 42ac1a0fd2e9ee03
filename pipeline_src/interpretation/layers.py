"""Measure ``probes``: what can be read off each layer, of the model and of random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline_src.interpretation.labels import CAPITALS, NO_LABEL, capitals
from pipeline_src.interpretation.material import Tagged, Texts
from pipeline_src.interpretation.online_code import online_code
from pipeline_src.interpretation.probes import Labelled, Outcome, balancing, interval, intervals, probe
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, word_vectors


def probe_tags(
    model: StudiedModel, control: StudiedModel, train: Tagged, test: Tagged, tags: Sequence[str], seed: int
) -> dict[str, Any]:
    """Probes of a tagging task; see :func:`_compared`."""
    numbers = {tag: number for number, tag in enumerate(tags)}
    labels = [[[numbers[tag] for tag in row] for row in part.tags] for part in (train, test)]
    sentences = [train.sentences, test.sentences]
    return _compared([model, control], sentences, labels, len(tags), seed, balance=False)


def tags_by_layer(
    model: StudiedModel, train: Tagged, test: Tagged, tags: Sequence[str], seed: int
) -> list[float | None]:
    """The accuracy of probes of a tagging task in each layer, without controls."""
    numbers = {tag: number for number, tag in enumerate(tags)}
    learnt, tested = (
        labelled(model, part.sentences, [[numbers[tag] for tag in row] for row in part.tags]) for part in (train, test)
    )
    found: list[float | None] = probe(learnt, tested, len(tags), seed).figures["accuracy"]
    return found


def probe_capitals(model: StudiedModel, control: StudiedModel, train: Texts, test: Texts, seed: int) -> dict[str, Any]:
    """Probes of whether a word began with a capital, for a model that does not see it; by balanced accuracy."""
    sentences = [train.sentences, test.sentences]
    labels = [capitals(part) for part in sentences]
    return _compared([model, control], sentences, labels, len(CAPITALS), seed, balance=True)


def _compared(
    models: Sequence[StudiedModel],
    sentences: Sequence[Sequence[Sentence]],
    labels: Sequence[Sequence[Sequence[int]]],
    classes: int,
    seed: int,
    balance: bool,
) -> dict[str, Any]:
    """The figures of the model and of random weights, and intervals of what the model's best layer gains.

    ``gain`` is over the best layer of random weights, ``gain_over_types`` over the most frequent label of each type.
    ``between`` has the interval of each layer's score, ``control_between`` of its control task's, ``types_between`` of
    the most frequent labels. ``online`` is the code of the training words' labels, its gain the bits a word that the
    model's best layer saves over the best one of random weights.
    """
    found: list[Outcome] = []
    codes: list[tuple[np.ndarray, dict[str, Any]]] = []
    tested = None
    for model in models:
        train, tested = (labelled(model, *part) for part in zip(sentences, labels, strict=True))
        found.append(probe(train, tested, classes, seed))
        codes.append(online_code(train, classes, seed))
    assert tested is not None
    (bits, ours), (random_bits, theirs) = codes
    shortest, random_shortest = (int(np.argmin(figures["code"])) for figures in (ours, theirs))
    key = "balanced" if balance else "accuracy"
    best = [int(np.argmax(outcome.figures[key])) for outcome in found]
    rights = [outcome.right.astype(float) for outcome in found]
    rights.append(found[0].by_type[None].astype(float))
    if balance:
        rights = [balancing(right, tested.labels) for right in rights]
    between = [intervals(right, tested.documents, seed) for right in rights]
    control = found[0].control
    told = {} if control is None else {"control_between": intervals(control, tested.documents, seed)}
    at_best = rights[0][best[0]]
    return {
        "score": key,
        "model": found[0].figures | {"between": between[0], "types_between": between[2][0]} | told,
        "random": found[1].figures | {"between": between[1]},
        "best_layer": best[0],
        "gain": interval(at_best, rights[1][best[1]], tested.documents, seed),
        "gain_over_types": interval(at_best, rights[2][0], tested.documents, seed),
        "online": {
            "model": ours,
            "random": theirs,
            "best_layer": shortest,
            "gain": interval(random_bits[random_shortest], bits[shortest], train.documents, seed),
        },
    }


def labelled(model: StudiedModel, sentences: Sequence[Sentence], labels: Sequence[Sequence[int]]) -> Labelled:
    """Vectors of the words that have a label."""
    words = word_vectors(model, sentences)
    places = list(zip(words.sentence.tolist(), words.place.tolist(), strict=True))
    of_word = np.array([labels[sentence][place] for sentence, place in places], np.int64)
    kept = np.flatnonzero(of_word != NO_LABEL)
    return Labelled(
        words.vectors[:, kept],
        of_word[kept],
        [sentences[places[number][0]].words[places[number][1]].lower() for number in kept],
        [sentences[places[number][0]].document for number in kept],
    )
