"""Probes and their controls."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from pipeline_src.interpret.model import Sentence, word_vectors
from pipeline_src.interpret.probes import (
    NO_LABEL,
    LabelledWords,
    capitals,
    control_labels,
    labelled_words,
    probe,
    train_probes,
    type_majority,
)


def test_probe_is_as_accurate_as_sklearn_logistic_regression(material):
    train, test = material
    figures = probe(train, test, 4, 1).figures
    for layer in range(2):
        peer = LogisticRegression(C=0.1, max_iter=300).fit(train.vectors[layer], train.labels)
        expected = peer.score(test.vectors[layer], test.labels)
        assert abs(figures["accuracy"][layer] - expected) < (0.007 if layer else 0.03)
    assert figures["accuracy"][1] > 0.85 > 0.4 > figures["accuracy"][0]
    assert figures["selectivity"][1] > 0.4 > abs(figures["selectivity"][0])
    assert probe(train, test, 4, 1).figures == figures != probe(train, test, 4, 2).figures


def test_probe_few_types_have_no_control_task(material):
    train, test = (replace(words, types=["x"] * len(words.labels)) for words in material)
    figures = probe(train, test, 4, 1).figures
    assert "control" not in figures and figures["unseen"] == [None, None]


def test_control_labels_depend_only_on_seed_and_type():
    labels = np.array([0, 0, 1, 1])
    sampled = control_labels(["a", "b", "a", "c"], labels, 2, 1)
    assert sampled[0] == sampled[2] == control_labels(["a"], labels, 2, 1)[0]
    sampled = control_labels([str(number) for number in range(2000)], np.array([0, 0, 0, 1]), 2, 1)
    assert 0.22 < sampled.mean() < 0.28


def test_capitals_first_words_and_numbers_have_no_label():
    assert capitals([Sentence(("The", "Nile", "is", "7", "."), "x")]) == [[NO_LABEL, 1, 0, NO_LABEL, NO_LABEL]]


def test_type_majority_unseen_type_gets_most_frequent_label():
    best = type_majority(["a", "a", "a", "b"], np.array([1, 1, 0, 2]), ["a", "b", "new"])
    assert best.tolist() == [1, 2, 1]


def test_probe_scores_equal_hand_computed_values():
    """Layer 0 is the label itself, layer 1 its opposite in the test words."""
    labels = np.array([0, 0, 0, 1] * 1000)
    side = torch.from_numpy(2.0 * labels - 1).float()[:, None]
    train = LabelledWords(torch.stack([side, side]), labels, ["x", "y", "z", "w"] * 1000, ["d"] * 4000)
    test = LabelledWords(torch.stack([side, -side])[:, :4], labels[:4], ["x", "w", "new", "x"], ["a", "a", "b", "b"])
    result = probe(train, test, 2, 1)
    assert result.correct.tolist() == [[True] * 4, [False] * 4]
    # Type w has label 1. An unseen type gets the most frequent label, which is 0.
    assert result.by_type.tolist() == [True, False, True, False]
    figures = result.figures
    assert figures["accuracy"] == figures["balanced"] == figures["unseen"] == [1.0, 0.0]
    assert (figures["type_majority"], figures["type_majority_balanced"]) == (0.5, 0.3333)
    assert (figures["unseen_share"], figures["types"], figures["documents"]) == (0.25, 4, 2)


def test_labelled_words_match_vectors_types_and_documents(model):
    sentences = [Sentence(("A", "bab"), "one"), Sentence(("C", "d"), "two")]
    words = labelled_words(model, sentences, [[NO_LABEL, 3], [1, NO_LABEL]])
    assert (words.labels.tolist(), words.types, words.documents) == ([3, 1], ["bab", "c"], ["one", "two"])
    torch.testing.assert_close(words.vectors, word_vectors(model, sentences).vectors[:, [1, 2]])


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_train_probes_logits_are_invariant_to_scale_and_shift(scale, shift, seed):
    """Training standardises the vectors, but the returned weights apply to the original vectors."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(2, 60, 3, generator=generator)
    targets = torch.randint(0, 3, (60, 1), generator=generator)
    logits = []
    for given_vectors in (vectors, scale * vectors + shift):
        weights, bias = train_probes(given_vectors, targets, 3, seed)
        logits.append(torch.baddbmm(bias, given_vectors, weights))
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-3, atol=1e-3)
