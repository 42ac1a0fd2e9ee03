"""Roles of attention heads: positions, special tokens, broad attention, dependency relations (Clark et al. 2019)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline_src.corpus.documents import in_validation_split
from pipeline_src.interpretation.attention_maps import attention_maps, merge_tokens, unit_of_tokens
from pipeline_src.interpretation.bootstrap import rounded, rounded_list
from pipeline_src.interpretation.model import ProbedModel, Sentence, tokenize_words
from pipeline_src.tasks.readers import read_sentences
from pipeline_src.tasks.spec import Columns, TaskSpec

# A head gets the first role for which its mean attention exceeds this (Clark et al. 2019, sections 3.1 to 3.3, where a
# broad head has an entropy above 3.8 nats over 128 tokens, 0.78 of the maximum).
ROLES = {"next": 0.5, "previous": 0.5, "self": 0.5, "first mark": 0.6, "last mark": 0.6, "broad": 0.8}
OFFSETS = [offset for offset in range(-3, 4) if offset]  # the baseline predicts the word at a fixed offset
MIN_RELATION_WORDS = 30  # in each half
DIRECTIONS = ("dependent to head", "head to dependent")
HEAD, RELATION = 7, 8  # columns of CoNLL-U, counted from 1


class Tree(NamedTuple):
    """A sentence with its dependencies: the index of each word's head (-1 for the root), and its relation."""

    sentence: Sentence
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    def dependents(self) -> Iterator[tuple[int, int, str]]:
        """Yield (word, head, relation) for each word but the root and punctuation."""
        for word, (head, relation) in enumerate(zip(self.heads, self.relations, strict=True)):
            if head >= 0 and relation != "punct":
                yield word, head, relation


def read_trees(spec: TaskSpec, path: Path) -> list[Tree]:
    """Read the dependency trees of a CoNLL-U file; a file of another format has none.

    Subtypes of relations, as in ``nmod:poss``, are removed. Sentences whose annotation is not a tree are left out.
    """
    if spec.format != "conllu":
        return []
    columns = [_column(spec, path, number) for number in (HEAD, RELATION)]
    trees = []
    for example, heads, relations in zip(read_sentences(spec, path), *columns, strict=True):
        valid = all(head.isdecimal() and int(head) <= len(heads) for head in heads)
        if valid and sum(head == "0" for head in heads) == 1:
            sentence = Sentence(example.words, str(example.document))
            names = tuple(relation.split(":")[0] for relation in relations)
            trees.append(Tree(sentence, tuple(int(head) - 1 for head in heads), names))
    return trees


def _column(spec: TaskSpec, path: Path, number: int) -> list[Sequence[str]]:
    """Return column ``number`` of the words of every sentence."""
    columns = Columns(texts=(number,), label=spec.columns.label)  # type: ignore[union-attr]
    return [example.words for example in read_sentences(spec.model_copy(update={"columns": columns}), path)]


def head_roles(model: ProbedModel, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """Compute each head's mean attention for each of ``ROLES``, and its role."""
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
    """Sum each role's attention over the tokens of a text, [roles, L, A]; a missing special token gets none."""
    length = maps.shape[-1]
    text = slice(leading, length - trailing)
    attention = maps[..., text, :]
    # Attention from i to i + shift. The diagonal at -1 starts with the second token, so its index is one less.
    diagonal = {shift: maps.diagonal(shift, -2, -1) for shift in (-1, 0, 1)}
    entropy = -(attention * attention.clamp(min=1e-12).log()).sum(-1) / math.log(max(length, 2))
    return torch.stack(
        [
            diagonal[1][..., text].sum(-1),
            diagonal[-1][..., max(leading - 1, 0) : length - trailing - 1].sum(-1),
            diagonal[0][..., text].sum(-1),
            attention[..., 0].sum(-1) * (leading > 0),
            attention[..., -1].sum(-1) * (trailing > 0),
            entropy.sum(-1),
        ]
    )


def _role(means: Sequence[float]) -> str | None:
    return next((name for (name, bound), value in zip(ROLES.items(), means, strict=True) if value > bound), None)


def relations(
    model: ProbedModel, control: ProbedModel, trees: Sequence[Tree], seed: int, min_words: int = MIN_RELATION_WORDS
) -> list[dict[str, Any]]:
    """Find, for each relation, the head that most often attends most from one end of the dependency to the other.

    It is compared with the best fixed offset and with the best head of random weights. All three are chosen on one half
    of the documents and measured on the other half: the best of hundreds of heads may be good at something by chance.
    """
    subwords = tokenize_words(model, [tree.sentence for tree in trees])  # the control has the same tokenizer
    trees = [tree for tree, words in zip(trees, subwords.words, strict=True) if len(set(words)) == len(tree.heads) > 1]
    half = [int(in_validation_split(tree.sentence.document, seed, 0.5)) for tree in trees]
    hits_of_model, hits_of_control = (hits_of_heads(probed, trees, half) for probed in (model, control))
    rows = []
    for name, (counts, hits) in hits_of_offsets(trees, half).items():
        if min(counts) < min_words:
            continue
        offset = int(np.argmax(hits[0]))
        of_model, of_control = hits_of_model[name], hits_of_control[name]
        best = layer, head, direction = best_head(of_model)
        rows.append(
            {
                "relation": name,
                "words": counts[1],
                "layer": layer + 1,
                "head": head + 1,
                "direction": DIRECTIONS[direction],
                "found": rounded(of_model[1][best] / counts[1]),
                "offset": OFFSETS[offset],
                "found_by_offset": rounded(hits[1][offset] / counts[1]),
                "found_by_random": rounded(of_control[1][best_head(of_control)] / counts[1]),
            }
        )
    return sorted(rows, key=lambda row: (row["relation"] != "all", -row["words"], row["relation"]))


def best_head(hits: np.ndarray) -> tuple[int, int, int]:
    """Return the (layer, head, direction) with the most hits in the first half; ``hits`` are [halves, L, A, 2]."""
    layer, head, direction = np.unravel_index(int(np.argmax(hits[0])), hits.shape[1:])
    return int(layer), int(head), int(direction)


def hits_of_heads(model: ProbedModel, trees: Sequence[Tree], half: Sequence[int]) -> dict[str, np.ndarray]:
    """Return relation -> how often each head attends most from one end to the other, [halves, L, A, directions].

    ``half`` is 0 or 1 for each tree. Trees have at least two words and fit into the model's input.
    """
    subwords = tokenize_words(model, [tree.sentence for tree in trees])
    hits: dict[str, np.ndarray] = {}
    for number, maps in attention_maps(model, subwords.ids):
        tree = trees[number]
        words = slice(model.num_leading, model.num_leading + len(tree.heads))
        attention = merge_tokens(maps, unit_of_tokens(model, subwords.words[number]))[..., words, words].clone()
        attention.diagonal(0, -2, -1).fill_(-1.0)  # no word is its own head
        # Of the two DIRECTIONS: the word to which a dependent attends most, and the word that attends to it most.
        predicted = torch.stack([attention.argmax(-1), attention.argmax(-2)], -1)  # [L, A, words, 2]
        correct = (predicted == torch.tensor(tree.heads)[:, None]).numpy()
        for word, _, relation in tree.dependents():
            for key in (relation, "all"):
                of_key = hits.setdefault(key, np.zeros((2, *correct.shape[:2], 2), np.int64))
                of_key[half[number]] += correct[:, :, word]
    return hits


def hits_of_offsets(trees: Sequence[Tree], half: Sequence[int]) -> dict[str, tuple[list[int], np.ndarray]]:
    """Return relation -> its words in each half, and how many of them have their head at each offset, [2, OFFSETS]."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    hits: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, len(OFFSETS)), np.int64))
    for tree, which in zip(trees, half, strict=True):
        for word, head, relation in tree.dependents():
            for key in (relation, "all"):
                counts[key][which] += 1
                hits[key][which] += [head - word == offset for offset in OFFSETS]
    return {name: (counts[name], hits[name]) for name in counts}
