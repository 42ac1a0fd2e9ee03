"""Dependency trees, and the map after which distances are distances in the tree."""

import numpy as np
import pytest
import torch

from pipeline_src.interpretation import structure
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.structure import edges_found, train_maps
from pipeline_src.interpretation.trees import Tree, read_trees
from pipeline_src.interpretation.word_vectors import Sentence
from pipeline_src.tasks.files.spec import load_spec

CONLLU = """# newdoc id = one
# text = He saw the town.
1\tHe\the\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2\tsaw\tsee\tVERB\tVBD\t_\t0\troot\t_\t_
3\tthe\tthe\tDET\tDT\t_\t4\tdet\t_\t_
4\ttown\ttown\tNOUN\tNN\t_\t2\tobj:x\t_\t_
5\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

1\tbroken\t_\tX\t_\t_\t_\t_\t_\t_

"""
HE_SAW = Tree(
    Sentence(("He", "saw", "the", "town", "."), "1"), (1, -1, 3, 1, 1), ("nsubj", "root", "det", "obj", "punct"),
    ("PRON", "VERB", "DET", "NOUN", "PUNCT"),
)  # fmt: skip


def test_heads_and_relations_are_read_and_what_is_no_tree_is_left_out(tmp_path):
    path = tmp_path / "dev.conllu"
    path.write_text(CONLLU)
    assert read_trees(load_spec("pos"), path) == [HE_SAW]


def test_distances_count_edges():
    assert HE_SAW.distances().tolist() == [
        [0, 1, 3, 2, 2],
        [1, 0, 2, 1, 1],
        [3, 2, 0, 1, 3],
        [2, 1, 1, 0, 2],
        [2, 1, 3, 2, 0],
    ]


def test_gold_distances_give_every_edge_and_neighbours_those_that_are_neighbours():
    assert edges_found(HE_SAW.distances(), HE_SAW) == (3, 3)
    apart = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    assert edges_found(apart, HE_SAW) == (2, 3)


def test_a_map_is_found_where_vectors_hold_the_tree(rng, monkeypatch):
    monkeypatch.setattr(structure, "EPOCHS", 150)
    monkeypatch.setattr(structure, "RATE", 0.02)
    edges = torch.tensor([[1, 0, 0, 0.0], [0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])  # from the root
    noise = torch.from_numpy(rng.normal(size=(2, 5, 8)).astype(np.float32))
    vectors = torch.cat([torch.stack([edges, torch.zeros(5, 4)]), noise], -1)
    maps = train_maps([vectors] * 4, [HE_SAW.distances()] * 4, 1)
    apart = structure._squared(vectors @ maps).detach().numpy()
    assert edges_found(apart[0], HE_SAW) == (3, 3)


def test_trees_of_one_document_are_passed_over(model):
    with pytest.raises(Skipped, match="one document"):
        structure.structure(model, model, [HE_SAW] * 3, 1)
