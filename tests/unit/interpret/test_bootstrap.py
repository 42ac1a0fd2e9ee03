"""Bootstrap intervals over documents, and balanced accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_src.interpret.bootstrap import balanced, balancing, interval, intervals, mean


def test_interval_contains_0_for_equal_rates_only(rng):
    first, second = rng.random(900) < 0.6, rng.random(900) < 0.6
    documents = [str(number // 30) for number in range(900)]
    low, high = interval(first, second, documents, 1)
    assert low < 0 < high
    assert interval(np.ones(900), second, documents, 1)[0] > 0.3
    assert interval(second, np.ones(900), documents, 1)[1] < -0.3


def test_intervals_of_independent_words_equal_normal_approximation(rng):
    correct = rng.random(900) < 0.6
    (ends,) = intervals(correct[None], [str(number // 30) for number in range(900)], 1)
    half = 1.96 * (correct.mean() * (1 - correct.mean()) / 900) ** 0.5
    assert ends == pytest.approx([correct.mean() - half, correct.mean() + half], abs=0.01)


def test_intervals_resample_whole_documents():
    values = np.array([[0.0] * 30 + [1.0] * 10])
    assert intervals(values, ["one"] * 30 + ["two"] * 10, 1) == [[0.0, 1.0]]  # a quarter has each of them twice


def test_intervals_words_of_one_document_equal_those_of_words_in_own_documents(rng):
    values = np.array([[0.0] * 30 + [1.0] * 10])
    assert intervals(values, ["one"] * 40, 1) == intervals(values, [f"{number:02}" for number in range(40)], 1)
    # 62 % against 60 % of 500 words is no difference, although there is one document.
    low, high = interval(rng.random(500) < 0.62, rng.random(500) < 0.6, ["one"] * 500, 1)
    assert low < 0 < high


def test_balancing_gives_every_label_equal_weight():
    labels = np.array([0, 0, 0, 2])  # no word has label 1
    assert balancing(np.array([True, True, False, False]), labels) == pytest.approx([2 / 3, 2 / 3, 0, 0])
    assert balanced(np.array([True, True, False, False]), labels) == 0.3333
    assert balanced(np.array([False, False, False, True]), labels) == 0.5
    assert balanced(np.array([]), np.array([], int)) is mean(np.array([])) is None
