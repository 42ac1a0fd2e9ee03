"""Probes and their controls."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from pipeline_src.interpretation.model import Sentence
from pipeline_src.interpretation.probes import NO_LABEL, LabelledWords, capitals, control_labels, probe, type_majority


def test_a_probe_is_as_good_as_a_regression_by_scikit_learn(material):
    train, test = material
    figures = probe(train, test, 4, 1).figures
    for layer in range(2):
        peer = LogisticRegression(C=0.1, max_iter=300).fit(train.vectors[layer], train.labels)
        theirs = peer.score(test.vectors[layer], test.labels)
        assert abs(figures["accuracy"][layer] - theirs) < (0.007 if layer else 0.03)
    assert figures["accuracy"][1] > 0.85 > 0.4 > figures["accuracy"][0]
    assert figures["selectivity"][1] > 0.4 > abs(figures["selectivity"][0])


def test_the_same_seed_gives_the_same_figures(material):
    assert probe(*material, 4, 1).figures == probe(*material, 4, 1).figures != probe(*material, 4, 2).figures


def test_few_types_have_no_control_task(material):
    train, test = (
        LabelledWords(each.vectors, each.labels, ["x"] * len(each.labels), each.documents) for each in material
    )
    figures = probe(train, test, 4, 1).figures
    assert "control" not in figures and figures["unseen"] == [None, None] and figures["ambiguous_share"] == 1.0


def test_a_control_label_is_a_function_of_seed_and_type():
    labels = np.array([0, 0, 1, 1])
    found = control_labels(["a", "b", "a", "c"], labels, 2, 1)
    assert found[0] == found[2] and control_labels(["a"], labels, 2, 1)[0] == found[0]
    drawn = control_labels([str(number) for number in range(2000)], np.array([0, 0, 0, 1]), 2, 1)
    assert 0.22 < drawn.mean() < 0.28


def test_capitals_leave_out_what_tells_nothing():
    assert capitals([Sentence(("The", "Nile", "is", "7", "."), "x")]) == [[NO_LABEL, 1, 0, NO_LABEL, NO_LABEL]]


def test_majority_of_a_type():
    best, seen, ambiguous = type_majority(["a", "a", "a", "b"], np.array([1, 1, 0, 2]), ["a", "b", "new"])
    assert best.tolist() == [1, 2, 1] and seen == {"a", "b"} and ambiguous == {"a"}
