"""Sentences whose attention the page shows, word by word, in a byte a weight."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import torch

from pipeline_src.interpretation.attention_maps import attention_maps, of_units, units_of
from pipeline_src.interpretation.attribution import integrated_gradients
from pipeline_src.interpretation.probes import rounded
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, cut_words


def shown_sentences(model: StudiedModel, sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
    """For each sentence its words with the marks around them, and the weights between these.

    ``weights`` is base64 of layers x heads x words x words bytes, 255 for a weight of 1. ``hidden`` says which word of
    the sentence was hidden, and what each of the others adds to the model's trust in it.

    Raises:
        Skipped: see :func:`attention_maps`.
    """
    pieces = cut_words(model, sentences)
    kept = [number for number, ids in enumerate(pieces.ids) if ids]
    found: dict[int, dict[str, Any]] = {}
    marks = [[str(model.tokenizer.id_to_token(mark)) for mark in run] for run in model.frame.marks]
    for order, maps in attention_maps(model, [pieces.ids[number] for number in kept]):
        number = kept[order]
        words = pieces.words[number]
        weights = of_units(maps, units_of(model, words))
        told = (weights * 255).round().byte().numpy().tobytes()
        inner = [sentences[number].words[word] for word in dict.fromkeys(words)]
        found[number] = {
            "words": [*marks[0], *inner, *marks[1]],
            "marks": [len(marks[0]), len(marks[1])],
            "weights": base64.b64encode(told).decode("ascii"),
        }
        if not model.lacks and (explained := _explained(model, pieces.ids[number], words)):
            found[number]["hidden"] = explained
    return [found[number] for number in sorted(found)]


def _explained(model: StudiedModel, ids: Sequence[int], words: Sequence[int]) -> dict[str, Any] | None:
    """The last word of one token that is spelt in letters, hidden: what each word adds to its log-probability (nats).

    Marks are words here. None where no word is like that.
    """
    whole = [at for at, word in enumerate(words) if words.count(word) == 1 and _token(model, ids[at]).isalpha()]
    if not whole:
        return None
    place = whole[-1]
    hidden = [*ids[:place], model.mask, *ids[place + 1 :]]
    adds, gain = integrated_gradients(model, hidden, place, ids[place])
    units = units_of(model, words)
    by_word = torch.zeros(max(units) + 1).index_add_(0, torch.tensor(units), adds)
    (scores,) = model.log_probabilities([hidden], [[place]])
    return {
        "at": units[model.lead + place],
        "probability": rounded(float(scores[0, ids[place]].exp())),
        "gain": rounded(gain),
        "adds": [rounded(value) for value in by_word.tolist()],
    }


def _token(model: StudiedModel, number: int) -> str:
    return model.kind.spelt(str(model.tokenizer.id_to_token(number)))
