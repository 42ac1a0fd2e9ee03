"""The structural probe: a linear map after which distances between words are distances in the tree (Hewitt 2019).

Hewitt and Manning 2019, "A Structural Probe for Finding Syntax in Word Representations".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.corpus.validation_split import in_validation_split
from pipeline_src.interpretation.probes import intervals, rounded
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.trees import Tree
from pipeline_src.interpretation.word_vectors import word_vectors

RANK, RATE, EPOCHS, BATCH = 64, 0.001, 8, 20  # 20 sentences a step and Adam's rate are theirs; all layers at once
LONGEST = 60  # words of a sentence
TEST_SHARE = 0.2


def structure(model: StudiedModel, control: StudiedModel, trees: Sequence[Tree], seed: int) -> dict[str, Any]:
    """How many edges of the trees come out of the vectors of each layer, beside neighbours and random weights.

    ``edges`` is the share of a tree's edges, punctuation left out, that the minimum spanning tree of the distances
    has (UUAS). Documents are divided into those that train the map and those that measure it.

    Raises:
        Skipped: no sentence is left on one side.
    """
    kept = [tree for tree in trees if 2 < len(tree.heads) <= LONGEST]
    tested = [in_validation_split(tree.sentence.document, seed, TEST_SHARE) for tree in kept]
    train = [tree for tree, test in zip(kept, tested, strict=True) if not test]
    test = [tree for tree, test in zip(kept, tested, strict=True) if test]
    if not train or not test:
        raise Skipped("there are trees of one document alone")
    figures: dict[str, Any] = {}
    for name, each in (("model", model), ("random", control)):
        matrices = train_maps(_vectors(each, train), [tree.distances() for tree in train], seed)
        found, every = _edges(matrices, _vectors(each, test), test)
        figures[name] = [rounded(share) for share in found.sum(1) / every.sum()]
        documents = np.repeat([tree.sentence.document for tree in test], every).tolist()
        right = np.repeat(found / np.maximum(every, 1), every, axis=1)  # of an edge: the share of its sentence's
        figures[f"{name}_between"] = intervals(right, documents, seed)
    neighbours = [edges_found(np.abs(np.subtract.outer(*[np.arange(len(tree.heads))] * 2)), tree) for tree in test]
    return {
        **figures,
        "neighbours": rounded(sum(found for found, _ in neighbours) / sum(all_ for _, all_ in neighbours)),
        "trained_on": len(train),
        "tested_on": len(test),
    }


def _vectors(model: StudiedModel, trees: Sequence[Tree]) -> list[Tensor]:
    """Of the words of each sentence, [L + 1, W, H]; 0 for a word without a vector."""
    words = word_vectors(model, [tree.sentence for tree in trees])
    found = []
    for number, tree in enumerate(trees):
        rows = np.flatnonzero(words.sentence == number)
        vectors = words.vectors.new_zeros(words.vectors.shape[0], len(tree.heads), words.vectors.shape[2])
        vectors[:, words.place[rows]] = words.vectors[:, rows]
        found.append(vectors)
    return found


def train_maps(vectors: Sequence[Tensor], distances: Sequence[np.ndarray], seed: int) -> Tensor:
    """The maps B of all layers, [L + 1, H, RANK]: squared distances after them come near those in the trees.

    The loss of a sentence of n words is the sum of absolute differences over its pairs, divided by n squared.
    """
    layers, _, width = vectors[0].shape
    generator = torch.Generator().manual_seed(derive_seed(seed, "structural probe") % 2**63)
    maps = ((torch.rand(layers, width, min(RANK, width), generator=generator) - 0.5) * 0.1).requires_grad_()
    optimiser = torch.optim.Adam([maps], RATE)
    for epoch in range(EPOCHS):
        order = permuted(derive_seed(seed, "trees", epoch), np.arange(len(vectors)), len(vectors))
        for chosen in np.array_split(order, -(-len(order) // BATCH)):
            longest = max(vectors[number].shape[1] for number in chosen)
            padded = torch.stack(
                [torch.nn.functional.pad(vectors[n], (0, 0, 0, longest - vectors[n].shape[1])) for n in chosen], 1
            )
            wanted, weight = torch.zeros(2, len(chosen), longest, longest)
            for row, number in enumerate(chosen):
                size = len(distances[number])
                wanted[row, :size, :size] = torch.from_numpy(distances[number])
                weight[row, :size, :size] = 1 / (size * size * len(chosen))
            found = _squared(torch.einsum("lbwh,lhr->lbwr", padded, maps))
            loss = ((found - wanted).abs() * weight).sum()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return maps.detach()


def _squared(mapped: Tensor) -> Tensor:
    """Squared distances between words, [..., W, W], of [..., W, R]."""
    length = mapped.square().sum(-1)
    return length[..., :, None] + length[..., None, :] - 2 * mapped @ mapped.transpose(-1, -2)


@torch.no_grad()
def _edges(maps: Tensor, vectors: Sequence[Tensor], trees: Sequence[Tree]) -> tuple[np.ndarray, np.ndarray]:
    """Edges of each sentence that each layer finds, [L + 1, sentences], and how many it has."""
    found, every = np.zeros((len(maps), len(trees))), np.zeros(len(trees), np.int64)
    for number, (each, tree) in enumerate(zip(vectors, trees, strict=True)):
        apart = _squared(each @ maps).clamp(min=0).numpy()
        counts = [edges_found(layer, tree) for layer in apart]
        found[:, number] = [right for right, _ in counts]
        every[number] = counts[0][1]
    return found, every


def edges_found(distances: np.ndarray, tree: Tree) -> tuple[int, int]:
    """How many edges of a tree its minimum spanning tree by ``distances`` has, and how many there are."""
    words = [word for word, name in enumerate(tree.relations) if name != "punct"]
    gold = {
        frozenset((word, tree.heads[word])) for word in words if tree.heads[word] >= 0 and tree.heads[word] in words
    }
    inner = distances[np.ix_(words, words)].astype(float) + 1e-6  # scipy takes 0 for no edge
    first, second = minimum_spanning_tree(inner).nonzero()
    spanned = {frozenset((words[a], words[b])) for a, b in zip(first.tolist(), second.tolist(), strict=True)}
    return len(gold & spanned), len(gold)
