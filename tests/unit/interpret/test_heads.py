"""Roles of heads, and dependency relations."""

from __future__ import annotations

import pytest
import torch

from pipeline_src.interpret.heads import (
    OFFSETS,
    Tree,
    head_roles,
    hits_of_offsets,
    read_trees,
    relations,
)
from pipeline_src.interpret.model import ProbedModel, Sentence
from pipeline_src.study.task_spec import load_spec
from pipeline_src.text.documents import in_validation_split
from pipeline_src.tokenizer.special_tokens import Template
from tests.unit.interpret.conftest import HE_SAW, SENTENCES, make_model


def planted(shift: int, size: int = 64) -> ProbedModel:
    """Return an encoder of one head that attends to the position ``shift`` away; position embeddings are one-hot."""
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


def uniform() -> ProbedModel:
    model = planted(0)
    model.encoder.encoder.layer[0].attention["self"].query.weight.data.zero_()
    return model


@pytest.mark.parametrize(("shift", "role"), [(1, "next"), (-1, "previous"), (0, "self")])
def test_head_roles_planted_head_gets_expected_role(shift, role):
    assert head_roles(planted(shift), SENTENCES)["roles"] == [[role]]


def test_head_roles_head_on_first_special_token_gets_role_first_mark():
    model = uniform()
    model.encoder.encoder.layer[0].attention["self"].query.bias.data.copy_(5 * torch.eye(64)[0])
    assert head_roles(model, SENTENCES)["roles"] == [["first mark"]]


@pytest.mark.parametrize(
    ("special_ids", "shares"),
    [
        (((2,), (3,)), [0.25, 0.25, 0.25, 0.25, 0.25, 1.0]),  # [CLS] a b [SEP], a quarter each
        (((), ()), [0.25, 0.25, 0.5, 0.0, 0.0, 1.0]),  # a b
    ],
)
def test_head_roles_uniform_attention_equals_hand_computed_shares(special_ids, shares):
    model = uniform()
    model.__dict__["template"] = Template(special_ids, (0, 0, 0))
    result = head_roles(model, [Sentence(("a", "b"), "")])
    assert [of_role[0][0] for of_role in result["shares"].values()] == shares and result["roles"] == [["broad"]]


def test_head_roles_uniform_attention_of_causal_model_is_broad():
    model = make_model(is_decoder=True, num_hidden_layers=1, num_attention_heads=1)
    model.encoder.encoder.layer[0].attention["self"].query.weight.data.zero_()
    model.encoder.encoder.layer[0].attention["self"].query.bias.data.zero_()
    result = head_roles(model, [Sentence(tuple("abcdefghij" * 2), "")])
    assert result["shares"]["broad"] == [[1.0]] and result["roles"] == [["broad"]]


def trees(count: int = 60) -> list[Tree]:
    """Return sentences with the object two words after its verb."""
    return [
        Tree(Sentence(("a", "c", "d", "e"), str(number)), (1, -1, 3, 1), ("nsubj", "root", "det", "obj"))
        for number in range(count)
    ]


@pytest.mark.parametrize(("shift", "direction"), [(-2, "dependent to head"), (2, "head to dependent")])
def test_relations_planted_head_is_best_on_held_out_documents(shift, direction):
    rows = {row["relation"]: row for row in relations(planted(shift), planted(0), trees(), 1, min_words=5)}
    assert rows["obj"]["found"] == 1.0 and rows["obj"]["direction"] == direction
    assert rows["obj"]["offset"] == -2 and rows["obj"]["found_by_offset"] == 1.0
    assert set(rows) == {"all", "obj", "nsubj", "det"}


def test_relations_truncated_sentences_are_left_out():
    def tree(size: int, document: str) -> Tree:
        words, heads_of = tuple("abcdefghij"[number % 10] for number in range(size)), (-1, *range(size - 1))
        return Tree(Sentence(words, document), heads_of, ("root", *["dep"] * (size - 1)))

    model = make_model()
    complete, truncated = ([tree(size, f"{size} {number}") for number in range(60)] for size in (6, 60))
    assert relations(model, model, complete + truncated, 1) == relations(model, model, complete, 1)


def test_relations_are_scored_on_documents_not_used_for_selection():
    held_out = {tree.sentence.document for tree in trees() if in_validation_split(tree.sentence.document, 1, 0.5)}
    changed = [
        tree._replace(heads=(1, -1, 3, 2)) if tree.sentence.document in held_out else tree for tree in trees()
    ]  # the object's head is one word before it there
    rows = {row["relation"]: row for row in relations(planted(-2), planted(0), changed, 1, min_words=5)}
    assert rows["obj"]["words"] == len(held_out) and rows["obj"]["direction"] == "dependent to head"
    assert (rows["obj"]["offset"], rows["obj"]["found"], rows["obj"]["found_by_offset"]) == (-2, 0.0, 0.0)


def test_relations_trees_of_one_document_are_divided_by_sentence():
    of_one_document = [tree._replace(sentence=tree.sentence._replace(document="one")) for tree in trees()]
    rows = {row["relation"]: row for row in relations(planted(-2), planted(0), of_one_document, 1, min_words=5)}
    assert rows["obj"]["found"] == 1.0 and 5 <= rows["obj"]["words"] <= 55


def test_hits_of_offsets_equal_hand_computed_counts():
    hits = hits_of_offsets([HE_SAW, HE_SAW], [0, 1])  # no punctuation, no root
    counts = {relation: of_first_half.tolist() for relation, (_, (of_first_half, _)) in hits.items()}
    assert OFFSETS == [-3, -2, -1, 1, 2, 3] and hits["all"][0] == [3, 3]
    assert counts["nsubj"] == [0, 0, 0, 1, 0, 0]  # saw is one word after He
    assert counts["obj"] == [0, 1, 0, 0, 0, 0] and counts["all"] == [0, 1, 0, 2, 0, 0]


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
