"""Attention weights, and what heads look at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pipeline_src.interpretation.data import Skipped, Tree
from pipeline_src.interpretation.heads import best_head, head_roles, hits_of_heads, relations
from pipeline_src.interpretation.model import Sentence
from pipeline_src.models.bert import Block, Encoder, SelfAttention
from tests.unit.interpretation.conftest import SENTENCES, make_model


def planted(shift: int, size: int = 64):
    """An encoder of one layer and head whose tokens look at the place ``shift`` away: positions are one-hot."""
    model = make_model(hidden_size=size, num_hidden_layers=1, num_attention_heads=1)
    embeddings, attention = model.encoder.embeddings, model.encoder.encoder.layer[0].attention["self"]
    with torch.no_grad():
        for part in (embeddings.word_embeddings, embeddings.token_type_embeddings):
            part.weight.zero_()
        embeddings.position_embeddings.weight.copy_(torch.eye(size)[:40])
        embeddings.LayerNorm.weight.fill_(1.0)
        embeddings.LayerNorm.bias.zero_()
        for side, matrix in ((attention.query, torch.eye(size).roll(shift, 0)), (attention.key, torch.eye(size))):
            side.weight.copy_(5 * matrix)
            side.bias.zero_()
    return model


@pytest.mark.parametrize(("shift", "role"), [(1, "next"), (-1, "previous"), (0, "self")])
def test_planted_roles_come_out(shift, role):
    assert head_roles(planted(shift), SENTENCES)["roles"] == [[role]]


def test_planted_marks_and_broad_heads_come_out():
    to_first = planted(0)
    attention = to_first.encoder.encoder.layer[0].attention["self"]
    with torch.no_grad():
        attention.query.weight.zero_()
        assert head_roles(to_first, SENTENCES)["roles"] == [["broad"]]
        attention.query.bias.copy_(5 * torch.eye(64)[0])  # whatever the place, as [CLS] is seen
    assert head_roles(to_first, SENTENCES)["roles"] == [["first mark"]]


def trees(count: int = 60) -> list[Tree]:
    """Sentences in which the object stands two words behind its verb."""
    return [
        Tree(Sentence(("a", "c", "d", "e"), str(number)), (1, -1, 3, 1), ("nsubj", "root", "det", "obj"))
        for number in range(count)
    ]


def test_a_planted_head_finds_its_relation_on_documents_it_was_not_chosen_on():
    model, control = planted(-2), planted(0)
    rows = {row["relation"]: row for row in relations(model, control, trees(), 1, min_words=5)}
    assert rows["obj"]["found"] == 1.0 and rows["obj"]["direction"] == "dependent to head"
    assert rows["obj"]["offset"] == -2 and rows["obj"]["found_by_offset"] == 1.0
    assert set(rows) == {"all", "obj", "nsubj", "det"} and "punct" not in rows


def test_the_choice_of_a_head_reads_the_first_half_alone(model, rng):
    given = trees(20)
    half = [number % 2 for number in range(20)]
    found = hits_of_heads(model, given, half)["obj"]
    other = [replace(tree, heads=tuple(rng.permutation(tree.heads).tolist())) if which else tree
             for tree, which in zip(given, half, strict=True)]  # fmt: skip
    permuted = hits_of_heads(model, other, half)["obj"]
    assert np.array_equal(found[0], permuted[0]) and best_head(found) == best_head(permuted)
    assert not np.array_equal(found[1], permuted[1])


def test_another_kind_of_attention_is_passed_over_with_its_reason(model):
    class Otherwise(SelfAttention):
        def forward(self, *given):
            return super().forward(*given)

    class OtherBlock(Block):
        Attention = Otherwise

    class OtherEncoder(Encoder):
        Block = OtherBlock

    other = make_model()
    other.encoder.encoder = OtherEncoder(other.config)
    assert isinstance(other.encoder.encoder, nn.Module)
    with pytest.raises(Skipped, match="does not say what it gives"):
        head_roles(other, SENTENCES)


def test_sentences_that_the_models_places_cut_count_for_no_one():
    def tree(size: int, document: str) -> Tree:
        words, heads_of = tuple("abcdefghij"[number % 10] for number in range(size)), (-1, *range(size - 1))
        return Tree(Sentence(words, document), heads_of, ("root", *["dep"] * (size - 1)))

    model = make_model()
    whole, cut = ([tree(size, f"{size} {number}") for number in range(60)] for size in (6, 60))
    assert relations(model, model, whole + cut, 1) == relations(model, model, whole, 1)
