from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.tasks.metrics import METRICS, majority_score, ratio_statistics


def score(metric, gold, predicted):
    return METRICS[metric](gold, [predicted]).score()


def test_metrics_equal_results_by_hand():
    gold, predicted = [1, 1, 1, 0, 0], [1, 1, 0, 1, 0]  # tp 2, fn 1, fp 1, tn 1
    assert score("accuracy", gold, predicted) == pytest.approx(60.0)
    assert score("f1", gold, predicted) == pytest.approx(100 * 4 / 6)
    assert score("matthews", gold, predicted) == pytest.approx(100 * (2 * 1 - 1 * 1) / (3 * 3 * 2 * 2) ** 0.5)
    assert score("pearson", [1, 2, 3], [2, 4, 7]) == pytest.approx(100 * 5 / (2 * 38 / 3) ** 0.5)
    assert score("spearman", [1, 2, 3], [10, 20, 15]) == pytest.approx(50.0)


@pytest.mark.parametrize("metric", ["matthews", "pearson", "spearman"])
def test_metrics_correlation_of_a_constant_prediction_is_0(metric: str):
    assert score(metric, [0, 1, 1, 0], [1, 1, 1, 1]) == 0.0


def test_metrics_only_right_or_wrong_examples_are_yes_no():
    assert METRICS["accuracy"]([0], [[1]]).yes_no
    assert not any(METRICS[metric]([0, 1], [[1, 1]]).yes_no for metric in METRICS.keys() - {"accuracy"})
    assert not ratio_statistics([np.array([0.5])]).yes_no  # F1 of answers, reciprocal ranks


def test_macro_f1_is_the_mean_over_classes_and_small_ones_count_as_much():
    gold, predicted = [0] * 8 + [1, 2], [0] * 8 + [0, 2]
    assert score("macro_f1", gold, predicted) == pytest.approx((100 * 16 / 17 + 0 + 100) / 3)
    assert majority_score("macro_f1", gold) == pytest.approx(100 * 16 / 18 / 3)
    assert score("macro_f1", gold, [0] * 10) == pytest.approx(majority_score("macro_f1", gold))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_majority_score_of_macro_f1_is_the_best_constant_of_several_classes(gold: list[int]):
    scores = [score("macro_f1", gold, [constant] * len(gold)) for constant in range(4)]
    assert max(scores) == pytest.approx(majority_score("macro_f1", gold))


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_majority_score_is_the_best_constant_prediction(gold: list[int]):
    for metric in ("accuracy", "f1", "macro_f1", "matthews"):
        for constant in (0, 1):
            assert score(metric, gold, [constant] * len(gold)) <= majority_score(metric, gold) + 1e-9


def test_majority_score_unknown_metric_is_rejected():
    with pytest.raises(ValueError, match="accurcy"):
        majority_score("accurcy", [0, 1])
