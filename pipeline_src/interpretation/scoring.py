"""How likely a text is to a model of masked words: each token is hidden in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, cut_words

AT_ONCE = 64  # sentences: each of their tokens has scores over the whole vocabulary


def pseudo_log_likelihoods(model: StudiedModel, sentences: Sequence[Sentence]) -> list[list[float]]:
    """The log-probability (nats) of each token of each sentence, itself hidden (Salazar et al. 2020).

    The pieces of its word that follow are hidden too, or the first ones would be told (Kauf and Ivanova 2023).
    """
    pieces = cut_words(model, sentences)
    texts = list(zip(pieces.ids, pieces.words, strict=True))
    return [row for start in range(0, len(texts), AT_ONCE) for row in _scored(model, texts[start : start + AT_ONCE])]


def _scored(model: StudiedModel, sentences: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
    """Of sentences as ids, with the number of the word of each."""
    texts, places, tokens = [], [], []
    for ids, words in sentences:
        for place, (token, word) in enumerate(zip(ids, words, strict=True)):
            hidden = [model.mask if other == word and at >= place else each
                      for at, (each, other) in enumerate(zip(ids, words, strict=True))]  # fmt: skip
            texts.append(hidden)
            places.append([place])
            tokens.append(token)
    found = model.log_probabilities(texts, places)
    flat = iter([float(scores[0, token]) for scores, token in zip(found, tokens, strict=True)])
    return [[next(flat) for _ in ids] for ids, _ in sentences]


def at_masks(model: StudiedModel, texts: Sequence[tuple[Sequence[int], int]]) -> list[Tensor]:
    """Log-probabilities [entries] at one place of each text, whose token is hidden."""
    hidden = [[*ids[:place], model.mask, *ids[place + 1 :]] for ids, place in texts]
    return [scores[0] for scores in model.log_probabilities(hidden, [[place] for _, place in texts])]


def preferred(scores: Tensor, good: int, bad: int) -> float:
    """1 where the right token is likelier than the wrong one, a half where they are equally likely, else 0."""
    return float(torch.sign(scores[good] - scores[bad]) + 1) / 2
