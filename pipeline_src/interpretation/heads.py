"""What each attention head looks at: places, marks, everything, the other end of a dependency (Clark et al. 2019)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.corpus.validation_split import in_validation_split
from pipeline_src.interpretation.attention_maps import attention_maps, of_units, units_of
from pipeline_src.interpretation.probes import rounded
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.trees import Tree
from pipeline_src.interpretation.word_vectors import Sentence, cut_words

# A head has a role from so much of its attention on (Clark et al. 2019, sections 3.1 to 3.3, where a broad head has an
# entropy above 3.8 nats over 128 tokens, 0.78 of the highest); the first that fits.
ROLES = {"next": 0.5, "previous": 0.5, "self": 0.5, "first mark": 0.6, "last mark": 0.6, "broad": 0.8}
OFFSETS = [offset for offset in range(-3, 4) if offset]  # of a head's baseline: the word so far away
FEWEST = 30  # words of a relation in each half
DIRECTIONS = ("dependent to head", "head to dependent")


def head_roles(model: StudiedModel, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """The mean share of attention from a token of text to each kind of place, for each head, and the head's role.

    Raises:
        Skipped: see :func:`attention_maps`.
    """
    pieces = [ids for ids in cut_words(model, sentences).ids if ids]
    total: Tensor | None = None
    tokens = 0
    for _, maps in attention_maps(model, pieces):
        found = _looked_at(maps, model.lead, model.frame.size - model.lead)
        total = found if total is None else total + found
        tokens += maps.shape[-1] - model.frame.size
    assert total is not None
    shares = total / tokens  # [roles, L, A]
    return {
        "tokens": tokens,
        "sentences": len(pieces),
        "shares": {
            name: [[rounded(head) for head in row] for row in shares[n].tolist()] for n, name in enumerate(ROLES)
        },
        "roles": [
            [_role(shares[:, layer, head].tolist()) for head in range(shares.shape[2])]
            for layer in range(shares.shape[1])
        ],
    }


def _looked_at(maps: Tensor, lead: int, rest: int) -> Tensor:
    """Sums over a text's tokens, [roles, L, A]."""
    length = maps.shape[-1]
    text = slice(lead, length - rest)
    rows = maps[..., text, :]
    diagonal = {shift: maps.diagonal(shift, -2, -1) for shift in (-1, 0, 1)}  # weight from i to i + shift
    entropy = -(rows * rows.clamp(min=1e-12).log()).sum(-1) / math.log(length)
    return torch.stack(
        [
            diagonal[1][..., lead : length - rest].sum(-1),
            diagonal[-1][..., lead - 1 : length - rest - 1].sum(-1),
            diagonal[0][..., text].sum(-1),
            rows[..., 0].sum(-1),
            rows[..., length - 1].sum(-1),
            entropy.sum(-1),
        ]
    )


def _role(shares: Sequence[float]) -> str | None:
    return next((name for (name, least), share in zip(ROLES.items(), shares, strict=True) if share > least), None)


def relations(model: StudiedModel, control: StudiedModel, trees: Sequence[Tree], seed: int) -> list[dict[str, Any]]:
    """For each relation the head that finds its other end most often, beside the best fixed offset and random weights.

    All three are chosen on one half of the documents and measured on the other, since the best of hundreds of heads
    is good at something by chance.

    Raises:
        Skipped: see :func:`attention_maps`.
    """
    pieces = cut_words(model, [tree.sentence for tree in trees])  # as `control` cuts them: of the same vocabulary
    trees = [tree for tree, words in zip(trees, pieces.words, strict=True) if _is_whole(tree, words)]
    half = [int(in_validation_split(tree.sentence.document, seed, 0.5)) for tree in trees]
    ours, theirs = (found_by_heads(each, trees, half) for each in (model, control))
    rows = []
    for name, (counts, by_offset) in offsets(trees, half).items():
        if name not in ours or min(counts) < FEWEST:
            continue
        offset = int(np.argmax(by_offset[0]))
        layer, head, direction = best_head(ours[name])
        random = best_head(theirs[name])
        rows.append(
            {
                "relation": name,
                "words": counts[1],
                "layer": layer + 1,
                "head": head + 1,
                "direction": DIRECTIONS[direction],
                "found": rounded(float(ours[name][1][layer, head, direction]) / counts[1]),
                "offset": OFFSETS[offset],
                "found_by_offset": rounded(by_offset[1][offset] / counts[1]),
                "found_by_random": rounded(float(theirs[name][1][random]) / counts[1]),
            }
        )
    return sorted(rows, key=lambda row: (row["relation"] != "all", -row["words"], row["relation"]))


def best_head(found: np.ndarray) -> tuple[int, int, int]:
    """Layer, head and direction with the most finds in the first half, of [2, L, A, 2]."""
    layer, head, direction = np.unravel_index(int(np.argmax(found[0])), found.shape[1:])
    return int(layer), int(head), int(direction)


def found_by_heads(model: StudiedModel, trees: Sequence[Tree], half: Sequence[int]) -> dict[str, np.ndarray]:
    """For each relation how often each head's most attended other word is the other end, [2 halves, L, A, 2].

    Args:
        model: sees every word of every tree.
        trees: of more than one word each.
        half: of each tree, 0 or 1.
    """
    pieces = cut_words(model, [tree.sentence for tree in trees])
    found: dict[str, Any] = defaultdict(lambda: 0)
    for number, maps in attention_maps(model, pieces.ids):
        tree = trees[number]
        size = len(tree.heads)
        words = of_units(maps, units_of(model, pieces.words[number]))[..., model.lead : model.lead + size, :]
        words = words[..., model.lead : model.lead + size].clone()
        words.diagonal(0, -2, -1).fill_(-1.0)
        guesses = torch.stack([words.argmax(-1), words.argmax(-2)], -1)  # [L, A, words, 2]
        right = (guesses == torch.tensor(tree.heads)[:, None]).numpy()
        for word, (head, name) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head >= 0 and name != "punct":
                for key in (name, "all"):
                    if not isinstance(found[key], np.ndarray):
                        found[key] = np.zeros((2, *right.shape[:2], 2), np.int64)
                    found[key][half[number]] += right[:, :, word]
    return dict(found)


def _is_whole(tree: Tree, words: Sequence[int]) -> bool:
    """Whether the model sees every word of a sentence, by the number of each token's word."""
    return len(set(words)) == len(tree.heads) > 1


def offsets(trees: Sequence[Tree], half: Sequence[int]) -> dict[str, tuple[list[int], np.ndarray]]:
    """For each relation the words in each half, and how many of them a fixed offset finds, [2, OFFSETS]."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    found: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, len(OFFSETS)), np.int64))
    for tree, which in zip(trees, half, strict=True):
        for word, (head, name) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head >= 0 and name != "punct":
                for key in (name, "all"):
                    counts[key][which] += 1
                    found[key][which] += [head - word == offset for offset in OFFSETS]
    return {name: (counts[name], found[name]) for name in counts}
