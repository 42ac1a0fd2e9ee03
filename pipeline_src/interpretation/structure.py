"""The structural probe: a linear map under which distances between words approximate those in the dependency tree.

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
from pipeline_src.corpus.documents import in_validation_split
from pipeline_src.interpretation.bootstrap import intervals, rounded, rounded_list
from pipeline_src.interpretation.data import Skipped, Tree
from pipeline_src.interpretation.model import StudiedModel, word_vectors

RANK, RATE, EPOCHS, BATCH = 64, 0.001, 8, 20  # the paper's 20 sentences a step and rate of Adam
MAX_WORDS = 60  # of a sentence
TEST_SHARE = 0.2


def structure(model: StudiedModel, control: StudiedModel, trees: Sequence[Tree], seed: int) -> dict[str, Any]:
    """Compute UUAS for each layer: the share of tree edges in the minimum spanning tree of the probe's distances.

    It is compared with linking neighbouring words and with random weights. Edges to punctuation do not count. The map
    is trained on some documents and evaluated on the others.

    Raises:
        Skipped: all trees are in one part.
    """
    sides: tuple[list[Tree], list[Tree]] = [], []
    for tree in trees:
        if 2 < len(tree.heads) <= MAX_WORDS:
            sides[in_validation_split(tree.sentence.document, seed, TEST_SHARE)].append(tree)
    train, test = sides
    if not train or not test:
        raise Skipped("there are trees of one document alone")
    figures: dict[str, Any] = {}
    for name, each in (("model", model), ("random", control)):
        maps = train_maps(_vectors(each, train), [tree.distances() for tree in train], seed)
        correct, edges = _correct_edges(maps, _vectors(each, test), test)
        figures[name] = rounded_list(correct.sum(1) / edges.sum())
        documents = np.repeat([tree.sentence.document for tree in test], edges).tolist()
        per_edge = np.repeat(correct / np.maximum(edges, 1), edges, axis=1)  # the mean of the edge's sentence
        figures[f"{name}_between"] = intervals(per_edge, documents, seed)
    neighbours = [correct_edges(np.abs(np.subtract.outer(*[np.arange(len(tree.heads))] * 2)), tree) for tree in test]
    return {
        **figures,
        "neighbours": rounded(sum(correct for correct, _ in neighbours) / sum(edges for _, edges in neighbours)),
        "trained_on": len(train),
        "tested_on": len(test),
    }


def _vectors(model: StudiedModel, trees: Sequence[Tree]) -> list[Tensor]:
    """Word vectors of each sentence, [L + 1, W, H]; 0 for truncated words."""
    words = word_vectors(model, [tree.sentence for tree in trees])
    found = []
    for number, tree in enumerate(trees):
        rows = np.flatnonzero(words.sentence == number)
        vectors = words.vectors.new_zeros(words.vectors.shape[0], len(tree.heads), words.vectors.shape[2])
        vectors[:, words.position[rows]] = words.vectors[:, rows]
        found.append(vectors)
    return found


def train_maps(
    vectors: Sequence[Tensor], distances: Sequence[np.ndarray], seed: int, epochs: int = EPOCHS, rate: float = RATE
) -> Tensor:
    """Train the maps of all layers, [L + 1, H, RANK], so that squared distances approximate those in the trees.

    The loss of a sentence of n words is the sum of absolute errors over its pairs of words, divided by n squared.
    """
    layers, _, width = vectors[0].shape
    generator = torch.Generator().manual_seed(derive_seed(seed, "structural probe") % 2**63)
    maps = ((torch.rand(layers, width, min(RANK, width), generator=generator) - 0.5) * 0.1).requires_grad_()
    optimizer = torch.optim.Adam([maps], rate)
    for epoch in range(epochs):
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
            found = squared_distances(torch.einsum("lbwh,lhr->lbwr", padded, maps))
            loss = ((found - wanted).abs() * weight).sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return maps.detach()


def squared_distances(mapped: Tensor) -> Tensor:
    """Squared distances between words, [..., W, R] -> [..., W, W]."""
    norm = mapped.square().sum(-1)
    return norm[..., :, None] + norm[..., None, :] - 2 * mapped @ mapped.transpose(-1, -2)


@torch.no_grad()
def _correct_edges(maps: Tensor, vectors: Sequence[Tensor], trees: Sequence[Tree]) -> tuple[np.ndarray, np.ndarray]:
    """Correct edges of each layer and sentence, [L + 1, sentences], and the number of edges of each sentence."""
    correct, edges = np.zeros((len(maps), len(trees))), np.zeros(len(trees), np.int64)
    for number, (each, tree) in enumerate(zip(vectors, trees, strict=True)):
        for layer, distances in enumerate(squared_distances(each @ maps).clamp(min=0).numpy()):
            correct[layer, number], edges[number] = correct_edges(distances, tree)
    return correct, edges


def correct_edges(distances: np.ndarray, tree: Tree) -> tuple[int, int]:
    """Count a tree's edges that are in the minimum spanning tree of ``distances``, and all its edges."""
    words = [word for word, relation in enumerate(tree.relations) if relation != "punct"]
    gold = {
        frozenset((word, tree.heads[word])) for word in words if tree.heads[word] >= 0 and tree.heads[word] in words
    }
    inner = distances[np.ix_(words, words)].astype(float) + 1e-6  # scipy reads 0 as no edge
    first, second = minimum_spanning_tree(inner).nonzero()
    spanned = {frozenset((words[a], words[b])) for a, b in zip(first.tolist(), second.tolist(), strict=True)}
    return len(gold & spanned), len(gold)
