"""Roles of attention heads: positions, special tokens, broad attention, dependency relations (Clark et al. 2019)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.corpus.documents import in_validation_split
from pipeline_src.interpretation.attention_maps import attention_maps, merge_tokens, unit_of_tokens
from pipeline_src.interpretation.bootstrap import rounded, rounded_list
from pipeline_src.interpretation.data import Tree
from pipeline_src.interpretation.model import Sentence, StudiedModel, tokenize_words

# A head has the first role for which its attention exceeds this (Clark et al. 2019, sections 3.1 to 3.3, where a broad
# head has an entropy above 3.8 nats over 128 tokens, 0.78 of the maximum).
ROLES = {"next": 0.5, "previous": 0.5, "self": 0.5, "first mark": 0.6, "last mark": 0.6, "broad": 0.8}
OFFSETS = [offset for offset in range(-3, 4) if offset]  # the baseline predicts the word at a fixed offset
MIN_RELATION_WORDS = 30  # in each half
DIRECTIONS = ("dependent to head", "head to dependent")


def head_roles(model: StudiedModel, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """Compute each head's mean attention from a token to each kind of position, and its role.

    Raises:
        Skipped: see :func:`attention_maps`.
    """
    texts = [ids for ids in tokenize_words(model, sentences).ids if ids]
    total: Any = 0
    tokens = 0
    for _, maps in attention_maps(model, texts):
        total = total + _role_sums(maps, model.num_leading, model.template.size - model.num_leading)
        tokens += maps.shape[-1] - model.template.size
    means = (total / tokens).tolist()  # [roles, L, A]
    return {
        "tokens": tokens,
        "sentences": len(texts),
        "shares": {
            name: [rounded_list(layer) for layer in of_role] for name, of_role in zip(ROLES, means, strict=True)
        },
        "roles": [[_role(head) for head in zip(*layer, strict=True)] for layer in zip(*means, strict=True)],
    }


def _role_sums(maps: Tensor, leading: int, trailing: int) -> Tensor:
    """Sum each role's attention over the tokens of a text, [roles, L, A]."""
    length = maps.shape[-1]
    text = slice(leading, length - trailing)
    rows = maps[..., text, :]
    diagonal = {shift: maps.diagonal(shift, -2, -1) for shift in (-1, 0, 1)}  # attention from i to i + shift
    entropy = -(rows * rows.clamp(min=1e-12).log()).sum(-1) / math.log(length)
    return torch.stack(
        [
            diagonal[1][..., text].sum(-1),
            diagonal[-1][..., leading - 1 : length - trailing - 1].sum(-1),
            diagonal[0][..., text].sum(-1),
            rows[..., 0].sum(-1),
            rows[..., length - 1].sum(-1),
            entropy.sum(-1),
        ]
    )


def _role(means: Sequence[float]) -> str | None:
    return next((name for (name, least), value in zip(ROLES.items(), means, strict=True) if value > least), None)


def relations(
    model: StudiedModel, control: StudiedModel, trees: Sequence[Tree], seed: int, min_words: int = MIN_RELATION_WORDS
) -> list[dict[str, Any]]:
    """Find for each relation the head that most often attends most to the dependency's other end.

    It is compared with the best fixed offset and with the best head of random weights. All three are chosen on one half
    of the documents and evaluated on the other, since the best of hundreds of heads is good at something by chance.

    Raises:
        Skipped: see :func:`attention_maps`.
    """
    subwords = tokenize_words(model, [tree.sentence for tree in trees])  # the control has the same tokenizer
    trees = [tree for tree, words in zip(trees, subwords.words, strict=True) if _fits(tree, words)]
    half = [int(in_validation_split(tree.sentence.document, seed, 0.5)) for tree in trees]
    ours, theirs = (hits_of_heads(each, trees, half) for each in (model, control))
    rows = []
    for name, (counts, hits) in hits_of_offsets(trees, half).items():
        if min(counts) < min_words:
            continue
        offset = int(np.argmax(hits[0]))
        best = layer, head, direction = best_head(ours[name])
        rows.append(
            {
                "relation": name,
                "words": counts[1],
                "layer": layer + 1,
                "head": head + 1,
                "direction": DIRECTIONS[direction],
                "found": rounded(ours[name][1][best] / counts[1]),
                "offset": OFFSETS[offset],
                "found_by_offset": rounded(hits[1][offset] / counts[1]),
                "found_by_random": rounded(theirs[name][1][best_head(theirs[name])] / counts[1]),
            }
        )
    return sorted(rows, key=lambda row: (row["relation"] != "all", -row["words"], row["relation"]))


def _fits(tree: Tree, words: Sequence[int]) -> bool:
    return len(set(words)) == len(tree.heads) > 1


def best_head(hits: np.ndarray) -> tuple[int, int, int]:
    """Return layer, head and direction with the most hits in the first half, of [2, L, A, 2]."""
    layer, head, direction = np.unravel_index(int(np.argmax(hits[0])), hits.shape[1:])
    return int(layer), int(head), int(direction)


def hits_of_heads(model: StudiedModel, trees: Sequence[Tree], half: Sequence[int]) -> dict[str, np.ndarray]:
    """Count for each relation how often each head attends most to the dependency's other end, [2 halves, L, A, 2].

    Args:
        model: has room for every word of every tree.
        trees: of at least two words each.
        half: 0 or 1 for each tree.
    """
    subwords = tokenize_words(model, [tree.sentence for tree in trees])
    hits: dict[str, np.ndarray] = {}
    for number, maps in attention_maps(model, subwords.ids):
        tree = trees[number]
        words = slice(model.num_leading, model.num_leading + len(tree.heads))
        attention = merge_tokens(maps, unit_of_tokens(model, subwords.words[number]))[..., words, words].clone()
        attention.diagonal(0, -2, -1).fill_(-1.0)
        predicted = torch.stack([attention.argmax(-1), attention.argmax(-2)], -1)  # [L, A, words, 2]
        correct = (predicted == torch.tensor(tree.heads)[:, None]).numpy()
        for word, _, relation in tree.dependents():
            for key in (relation, "all"):
                of_key = hits.setdefault(key, np.zeros((2, *correct.shape[:2], 2), np.int64))
                of_key[half[number]] += correct[:, :, word]
    return hits


def hits_of_offsets(trees: Sequence[Tree], half: Sequence[int]) -> dict[str, tuple[list[int], np.ndarray]]:
    """Count for each relation its words in each half, and the heads at each fixed offset, [2, OFFSETS]."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    hits: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, len(OFFSETS)), np.int64))
    for tree, which in zip(trees, half, strict=True):
        for word, head, relation in tree.dependents():
            for key in (relation, "all"):
                counts[key][which] += 1
                hits[key][which] += [head - word == offset for offset in OFFSETS]
    return {name: (counts[name], hits[name]) for name in counts}
