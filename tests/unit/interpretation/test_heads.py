"""Attention weights, and what heads look at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline_src.corpus.documents import in_validation_split
from pipeline_src.interpretation.heads import (
    OFFSETS,
    Tree,
    best_head,
    head_roles,
    hits_of_heads,
    hits_of_offsets,
    read_trees,
    relations,
)
from pipeline_src.interpretation.model import Sentence
from pipeline_src.tasks.spec import load_spec
from tests.unit.interpretation.conftest import HE_SAW, SENTENCES, make_model


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
def test_head_roles_planted_head_has_its_role(shift, role):
    assert head_roles(planted(shift), SENTENCES)["roles"] == [[role]]


def test_head_roles_uniform_attention_has_shares_as_worked_by_hand():
    model = planted(0)
    with torch.no_grad():
        model.encoder.encoder.layer[0].attention["self"].query.weight.zero_()
    shares = head_roles(model, [Sentence(("a", "b"), "")])["shares"]  # [CLS] a b [SEP], a quarter each
    assert {name: of_role[0][0] for name, of_role in shares.items()} == {
        "next": 0.25, "previous": 0.25, "self": 0.25, "first mark": 0.25, "last mark": 0.25, "broad": 1.0,
    }  # fmt: skip


def test_head_roles_planted_heads_are_broad_or_on_the_first_special_token():
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


def test_relations_planted_head_is_best_on_held_out_documents():
    model, control = planted(-2), planted(0)
    rows = {row["relation"]: row for row in relations(model, control, trees(), 1, min_words=5)}
    assert rows["obj"]["found"] == 1.0 and rows["obj"]["direction"] == "dependent to head"
    assert rows["obj"]["offset"] == -2 and rows["obj"]["found_by_offset"] == 1.0
    assert set(rows) == {"all", "obj", "nsubj", "det"} and "punct" not in rows


def test_best_head_depends_on_the_first_half_only(model, rng):
    given = trees(20)
    half = [number % 2 for number in range(20)]
    found = hits_of_heads(model, given, half)["obj"]
    other = [tree._replace(heads=tuple(rng.permutation(tree.heads).tolist())) if which else tree
             for tree, which in zip(given, half, strict=True)]  # fmt: skip
    permuted = hits_of_heads(model, other, half)["obj"]
    assert np.array_equal(found[0], permuted[0]) and best_head(found) == best_head(permuted)
    assert not np.array_equal(found[1], permuted[1])


def test_relations_truncated_sentences_are_left_out():
    def tree(size: int, document: str) -> Tree:
        words, heads_of = tuple("abcdefghij"[number % 10] for number in range(size)), (-1, *range(size - 1))
        return Tree(Sentence(words, document), heads_of, ("root", *["dep"] * (size - 1)))

    model = make_model()
    whole, cut = ([tree(size, f"{size} {number}") for number in range(60)] for size in (6, 60))
    assert relations(model, model, whole + cut, 1) == relations(model, model, whole, 1)


def test_relations_head_that_attends_to_its_dependents_has_the_other_direction():
    rows = {row["relation"]: row for row in relations(planted(2), planted(0), trees(), 1, min_words=5)}
    assert rows["obj"]["direction"] == "head to dependent" and rows["obj"]["found"] == 1.0


def test_relations_are_measured_on_the_documents_that_do_not_choose_the_head():
    held_out = {tree.sentence.document for tree in trees() if in_validation_split(tree.sentence.document, 1, 0.5)}
    given = [
        tree._replace(heads=(1, -1, 3, 2)) if tree.sentence.document in held_out else tree for tree in trees()
    ]  # the object's head is one word before it there
    rows = {row["relation"]: row for row in relations(planted(-2), planted(0), given, 1, min_words=5)}
    assert rows["obj"]["words"] == len(held_out) and rows["obj"]["direction"] == "dependent to head"
    assert (rows["obj"]["offset"], rows["obj"]["found"], rows["obj"]["found_by_offset"]) == (-2, 0.0, 0.0)


def test_hits_of_offsets_one_tree_as_worked_by_hand():
    hits = hits_of_offsets([HE_SAW, HE_SAW], [0, 1])  # no punctuation, no root
    at = {
        relation: dict(zip(OFFSETS, of_first_half, strict=True)) for relation, (_, (of_first_half, _)) in hits.items()
    }
    assert at["nsubj"] == {offset: int(offset == 1) for offset in OFFSETS}  # saw is one word after He
    assert at["obj"] == {offset: int(offset == -2) for offset in OFFSETS}
    assert at["all"] == {-3: 0, -2: 1, -1: 0, 1: 2, 2: 0, 3: 0} and hits["all"][0] == [3, 3]


CONLLU = """# newdoc id = one
# text = He saw the town.
1\tHe\the\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2\tsaw\tsee\tVERB\tVBD\t_\t0\troot\t_\t_
3\tthe\tthe\tDET\tDT\t_\t4\tdet\t_\t_
4\ttown\ttown\tNOUN\tNN\t_\t2\tobj:x\t_\t_
5\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

1\tbroken\t_\tX\t_\t_\t_\t_\t_\t_

"""


def test_read_trees_invalid_tree_is_left_out(tmp_path):
    path = tmp_path / "dev.conllu"
    path.write_text(CONLLU)
    assert read_trees(load_spec("pos"), path) == [HE_SAW]
