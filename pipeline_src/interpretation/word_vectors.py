"""Vectors of whole words in every layer: the mean of their pieces."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from pipeline_src.interpretation.studied_model import StudiedModel, batches


@dataclass(frozen=True)
class Sentence:
    """Words in order, and the document that they come from."""

    words: tuple[str, ...]
    document: str


@dataclass(frozen=True)
class Pieces:
    """Sentences as the tokenizer cuts them.

    Attributes:
        ids: of each sentence, without marks, cut where the model's places end.
        words: for each of these tokens the number of its word in the sentence.
        left_out: words that lie beyond the model's places, or of which the tokenizer leaves nothing.
    """

    ids: list[list[int]]
    words: list[list[int]]
    left_out: int


@dataclass(frozen=True)
class WordVectors:
    """W words of some sentences.

    Attributes:
        vectors: float32 [L + 1, W, H], the embeddings first.
        sentence, place: of each word, int64 [W]; ``place`` counts words.
        left_out: as of :class:`Pieces`.
    """

    vectors: Tensor
    sentence: np.ndarray
    place: np.ndarray
    left_out: int


def cut_words(model: StudiedModel, sentences: Sequence[Sentence]) -> Pieces:
    """Cut words into pieces where they stand in their sentence, a blank between each two.

    A piece belongs to the word in which it ends, so that any tokenizer will do, one that keeps blanks too.
    """
    encodings = model.tokenizer.encode_batch(
        [" ".join(sentence.words) for sentence in sentences], add_special_tokens=False
    )
    ids, words, left_out = [], [], 0
    for sentence, encoding in zip(sentences, encodings, strict=True):
        ends = list(accumulate((len(word) + 1 for word in sentence.words), initial=-1))[1:]
        numbers = [bisect_right(ends, max(start, end - 1)) for start, end in encoding.offsets]
        room = model.room
        while 0 < room < len(numbers) and numbers[room] == numbers[room - 1]:  # never a part of a word
            room -= 1
        ids.append(encoding.ids[:room])
        words.append(numbers[:room])
        left_out += len(sentence.words) - len(set(words[-1]))
    return Pieces(ids, words, left_out)


@torch.no_grad()
def word_vectors(model: StudiedModel, sentences: Sequence[Sentence]) -> WordVectors:
    """Vectors of every word, in the order of the sentences."""
    pieces = cut_words(model, sentences)
    sentence: list[int] = []
    place: list[int] = []
    of_token: list[list[int]] = []  # number of the word among all, for each token of each sentence
    for number, words in enumerate(pieces.words):
        distinct = list(dict.fromkeys(words))
        numbers = {word: len(place) + rank for rank, word in enumerate(distinct)}
        of_token.append([numbers[word] for word in words])
        sentence += [number] * len(distinct)
        place += distinct
    vectors: Tensor | None = None
    counts = torch.zeros(len(place))
    for batch in batches([len(text) + model.frame.size for text in pieces.ids]):
        batch = [number for number in batch if pieces.ids[number]]
        if not batch:
            continue
        states, layout = model.states([pieces.ids[number] for number in batch])
        starts = layout.first.tolist()
        rows = torch.tensor(
            [
                start + model.lead + token
                for start, number in zip(starts, batch, strict=True)
                for token in range(len(pieces.ids[number]))
            ]
        )
        target = torch.tensor([word for number in batch for word in of_token[number]])
        if vectors is None:
            vectors = torch.zeros(len(states), len(place), states[0].shape[1])
        for layer, state in enumerate(states):
            vectors[layer].index_add_(0, target, state[rows])
        counts.index_add_(0, target, torch.ones(len(target)))
    if vectors is None:
        vectors = torch.zeros(1, 0, model.config.hidden_size)
    vectors /= counts.clamp(min=1)[None, :, None]
    return WordVectors(vectors, np.array(sentence, np.int64), np.array(place, np.int64), pieces.left_out)
