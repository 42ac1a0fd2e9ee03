"""Dependency trees, and the map after which distances are distances in the tree."""

import numpy as np
import pytest
import torch

from pipeline_src.interpretation.data import Skipped
from pipeline_src.interpretation.structure import correct_edges, squared_distances, structure, train_maps
from tests.unit.interpretation.conftest import HE_SAW


def test_gold_distances_give_every_edge_and_neighbours_those_that_are_neighbours():
    assert correct_edges(HE_SAW.distances(), HE_SAW) == (3, 3)
    apart = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    assert correct_edges(apart, HE_SAW) == (2, 3)


def test_a_map_is_found_where_vectors_hold_the_tree(rng):
    edges = torch.tensor([[1, 0, 0, 0.0], [0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])  # from the root
    noise = torch.from_numpy(rng.normal(size=(2, 5, 8)).astype(np.float32))
    vectors = torch.cat([torch.stack([edges, torch.zeros(5, 4)]), noise], -1)
    maps = train_maps([vectors] * 4, [HE_SAW.distances()] * 4, 1, epochs=150, rate=0.02)
    apart = squared_distances(vectors @ maps).detach().numpy()
    assert correct_edges(apart[0], HE_SAW) == (3, 3)


def test_trees_of_one_document_are_passed_over(model):
    with pytest.raises(Skipped, match="one document"):
        structure(model, model, [HE_SAW] * 3, 1)
