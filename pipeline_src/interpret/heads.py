"""Roles of attention heads: positions, special tokens, broad attention, dependency relations (Clark et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline_src.interpret.attention_maps import attention_maps, merge_tokens, unit_of_tokens
from pipeline_src.interpret.bootstrap import rounded, rounded_list
from pipeline_src.interpret.model import ProbedModel, Sentence, tokenize_words
from pipeline_src.study.task_spec import Columns, TaskSpec
from pipeline_src.tasks.conll import read_sentences
from pipeline_src.text.documents import in_validation_split

# Role of a head -> threshold. A head gets the first role for which its mean attention exceeds the threshold (Clark et
# al. 2019, sections 3.1 to 3.3). The value for "broad" is the entropy as a fraction of its maximum; in the paper, a
# broad head has more than 3.8 nats over 128 tokens, which is 0.78 of the maximum.
ROLES = {"next": 0.5, "previous": 0.5, "self": 0.5, "first mark": 0.6, "last mark": 0.6, "broad": 0.8}
# Offsets of the baseline, which predicts the word at a fixed distance.
OFFSETS = [-3, -2, -1, 1, 2, 3]
# A relation is left out if it has fewer words than this in one half of the documents.
MIN_RELATION_WORDS = 30
DIRECTIONS = ("dependent to head", "head to dependent")
# Columns of CoNLL-U, counted from 1.
HEAD, RELATION = 7, 8


class Tree(NamedTuple):
    """A sentence with its dependency tree.

    Attributes:
        heads: index of each word's head; -1 for the root.
        relations: relation of each word to its head.
    """

    sentence: Sentence
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    def dependents(self) -> Iterator[tuple[int, int, str]]:
        # Yields (word, head, relation) for every word except the root and punctuation.
        for word, (head, relation) in enumerate(zip(self.heads, self.relations, strict=True)):
            if head >= 0 and relation != "punct":
                yield word, head, relation


def read_trees(spec: TaskSpec, path: Path) -> list[Tree]:
    """Read the dependency trees of a CoNLL-U file. The result is empty for a file in another format.

    Subtypes of relations are removed ("nmod:poss" -> "nmod"). Sentences whose annotation is not a tree are left out.
    """
    if spec.format != "conllu":
        return []
    head_column = _column(spec, path, HEAD)
    relation_column = _column(spec, path, RELATION)
    trees = []
    for example, heads, relations in zip(read_sentences(spec, path), head_column, relation_column, strict=True):
        # Words are counted from 1; the head of the root is 0.
        if not all(head.isdecimal() and int(head) <= len(heads) for head in heads):
            continue
        if sum(head == "0" for head in heads) != 1:
            continue
        sentence = Sentence(example.words, str(example.document))
        indices = tuple(int(head) - 1 for head in heads)
        without_subtypes = tuple(relation.split(":")[0] for relation in relations)
        trees.append(Tree(sentence, indices, without_subtypes))
    return trees


def _column(spec: TaskSpec, path: Path, number: int) -> list[Sequence[str]]:
    columns = Columns(texts=(number,), label=spec.columns.label)  # type: ignore[union-attr]
    return [example.words for example in read_sentences(spec.model_copy(update={"columns": columns}), path)]


def head_roles(model: ProbedModel, sentences: Sequence[Sentence]) -> dict[str, Any]:
    texts = [ids for ids in tokenize_words(model, sentences).ids if ids]
    num_trailing = model.template.size - model.num_leading
    sums: Any = 0
    tokens = 0
    for _, maps in attention_maps(model, texts):
        sums = sums + _role_sums(maps, model.num_leading, num_trailing, model.config.is_decoder)
        tokens += maps.shape[-1] - model.template.size
    # Mean attention of each head for each role, [roles, L, A].
    means = sums / tokens
    shares = {}
    for name, of_role in zip(ROLES, means.tolist(), strict=True):
        shares[name] = [rounded_list(layer) for layer in of_role]
    roles = []
    for layer in means.permute(1, 2, 0).tolist():
        roles.append([_role(of_head) for of_head in layer])
    return {"tokens": tokens, "sentences": len(texts), "shares": shares, "roles": roles}


def _role_sums(maps: Tensor, leading: int, trailing: int, causal: bool) -> Tensor:
    # Returns, for one text, the sum over its tokens of each head's attention for each role, [roles, L, A]. If a special
    # token is missing, its attention is 0.
    length = maps.shape[-1]
    text = slice(leading, length - trailing)
    attention = maps[..., text, :]
    # Attention of each token to the next, the previous and itself, by diagonals of the map.
    to_next = maps.diagonal(1, -2, -1)
    to_previous = maps.diagonal(-1, -2, -1)
    to_self = maps.diagonal(0, -2, -1)
    # The diagonal of the previous tokens starts with the second token, so its index is one less.
    text_of_previous = slice(max(leading - 1, 0), length - trailing - 1)
    # Entropy as a fraction of that of uniform attention.
    entropy = -(attention * attention.clamp(min=1e-12).log()).sum(-1)
    if causal:
        # A token of a causal model sees only itself and earlier tokens, so the first sees one token, the second two.
        visible = torch.arange(1, length + 1, device=maps.device)[text]
        entropy = entropy / visible.clamp(min=2).log()
    else:
        entropy = entropy / math.log(max(length, 2))
    sums = {
        "next": to_next[..., text].sum(-1),
        "previous": to_previous[..., text_of_previous].sum(-1),
        "self": to_self[..., text].sum(-1),
        "first mark": attention[..., 0].sum(-1) * (leading > 0),
        "last mark": attention[..., -1].sum(-1) * (trailing > 0),
        "broad": entropy.sum(-1),
    }
    return torch.stack([sums[name] for name in ROLES])


def _role(means: Sequence[float]) -> str | None:
    for (name, bound), value in zip(ROLES.items(), means, strict=True):
        if value > bound:
            return name
    return None


def relations(
    model: ProbedModel, control: ProbedModel, trees: Sequence[Tree], seed: int, min_words: int = MIN_RELATION_WORDS
) -> list[dict[str, Any]]:
    """Find, for each dependency relation, the attention head that predicts it best.

    A head predicts a dependency correctly if one end of the dependency attends most to the other end. The best head is
    compared with the best fixed offset and with the best head of random weights. All three are chosen on one half of
    the documents and scored on the other half, because the best of hundreds of heads may be good by chance. If all
    documents are in the same half, sentences are divided instead.
    """
    # Leave out sentences of one word, and sentences that exceed the model's maximum length. This also holds for the
    # control, which has the same tokenizer.
    subwords = tokenize_words(model, [tree.sentence for tree in trees])
    fitting = []
    for tree, words in zip(trees, subwords.words, strict=True):
        if len(set(words)) == len(tree.heads) > 1:
            fitting.append(tree)
    half = [int(in_validation_split(tree.sentence.document, seed, 0.5)) for tree in fitting]
    if len(set(half)) == 1:
        # All documents are in the same half, as a single document always is. Sentences are divided instead.
        half = [int(in_validation_split(str(number), seed, 0.5)) for number in range(len(fitting))]
    hits_of_model = hits_of_heads(model, fitting, half)
    hits_of_control = hits_of_heads(control, fitting, half)
    rows = []
    for relation, (counts, by_offset) in hits_of_offsets(fitting, half).items():
        if min(counts) < min_words:
            continue
        # The offset and the heads are chosen by their hits in the first half, and scored by their hits in the second.
        words_of_second = counts[1]
        offset = int(np.argmax(by_offset[0]))
        best = layer, head, direction = best_head(hits_of_model[relation])
        best_of_control = best_head(hits_of_control[relation])
        rows.append(
            {
                "relation": relation,
                "words": words_of_second,
                "layer": layer + 1,
                "head": head + 1,
                "direction": DIRECTIONS[direction],
                "found": rounded(hits_of_model[relation][1][best] / words_of_second),
                "offset": OFFSETS[offset],
                "found_by_offset": rounded(by_offset[1][offset] / words_of_second),
                "found_by_random": rounded(hits_of_control[relation][1][best_of_control] / words_of_second),
            }
        )
    # The row "all" comes first, then the relations in order of decreasing frequency.
    return sorted(rows, key=lambda row: (row["relation"] != "all", -row["words"], row["relation"]))


def best_head(hits: np.ndarray) -> tuple[int, int, int]:
    # Returns the (layer, head, direction) with the most hits in the first half. `hits`: [halves, L, A, directions].
    layer, head, direction = np.unravel_index(int(np.argmax(hits[0])), hits.shape[1:])
    return int(layer), int(head), int(direction)


def hits_of_heads(model: ProbedModel, trees: Sequence[Tree], half: Sequence[int]) -> dict[str, np.ndarray]:
    """Count, for each relation, how often each head attends most from one end of a dependency to the other end.

    Args:
        trees: trees of at least two words that fit into the model's maximum length.
        half: the half (0 or 1) of each tree's document.

    Returns:
        Relation -> number of hits, [halves, L, A, directions].
    """
    subwords = tokenize_words(model, [tree.sentence for tree in trees])
    hits: dict[str, np.ndarray] = {}
    for number, maps in attention_maps(model, subwords.ids):
        tree = trees[number]
        units = unit_of_tokens(model, subwords.words[number])
        by_unit = merge_tokens(maps, units)
        # Attention between words, without special tokens. The diagonal is excluded, since no word is its own head.
        words = slice(model.num_leading, model.num_leading + len(tree.heads))
        attention = by_unit[..., words, words].clone()
        attention.diagonal(0, -2, -1).fill_(-1.0)
        # For the two DIRECTIONS: the word to which a dependent attends most, and the word that attends to it most.
        predicted = torch.stack([attention.argmax(-1), attention.argmax(-2)], -1)
        # Whether the predicted word is the head, bool [L, A, words, directions].
        heads_of_words = torch.tensor(tree.heads)
        correct = (predicted == heads_of_words[:, None]).numpy()
        for word, _, relation in tree.dependents():
            of_word = correct[:, :, word]
            for key in (relation, "all"):
                if key not in hits:
                    hits[key] = np.zeros((2, *of_word.shape), np.int64)
                hits[key][half[number]] += of_word
    return hits


def hits_of_offsets(trees: Sequence[Tree], half: Sequence[int]) -> dict[str, tuple[list[int], np.ndarray]]:
    # Returns relation -> (number of its words in each half, number of words with their head at each offset,
    # [halves, OFFSETS]).
    result: dict[str, tuple[list[int], np.ndarray]] = {}
    for tree, half_of_tree in zip(trees, half, strict=True):
        for word, head, relation in tree.dependents():
            # A head two words before its dependent is at the offset -2, which is the second of OFFSETS.
            distance = head - word
            at_offset = [distance == offset for offset in OFFSETS]
            for key in (relation, "all"):
                if key not in result:
                    no_hits = np.zeros((2, len(OFFSETS)), np.int64)
                    result[key] = ([0, 0], no_hits)
                counts, hits = result[key]
                counts[half_of_tree] += 1
                hits[half_of_tree] += at_offset
    return result
