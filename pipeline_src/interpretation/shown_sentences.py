"""Sentences whose attention the page shows, word by word, in a byte a weight."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from pipeline_src.interpretation.attention_maps import attention_maps, of_units, units_of
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, cut_words


def shown_sentences(model: StudiedModel, sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
    """For each sentence its words with the marks around them, and the weights between these.

    ``weights`` is base64 of layers x heads x words x words bytes, 255 for a weight of 1.

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
    return [found[number] for number in sorted(found)]
