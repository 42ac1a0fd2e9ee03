from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.tasks.metrics import METRICS, majority_score, ratio_statistics

OF_LABEL_SETS = ("micro_f1", "subset_accuracy")


def score(metric, gold, predicted):
    return METRICS[metric](gold, [predicted]).score()


def test_statistics_yes_no_is_true_only_for_binary_scores():
    assert METRICS["accuracy"]([0], [[1]]).yes_no
    assert not any(METRICS[metric]([0, 1], [[1, 1]]).yes_no for metric in METRICS.keys() - {"accuracy", *OF_LABEL_SETS})
    assert [metric for metric in OF_LABEL_SETS if METRICS[metric]([(0, 1)], [[(1, 1)]]).yes_no] == ["subset_accuracy"]
    assert not ratio_statistics([np.array([0.5])]).yes_no  # F1 of answers, reciprocal ranks


def test_macro_f1_weights_all_classes_equally():
    gold, predicted = [0] * 8 + [1, 2], [0] * 8 + [0, 2]
    assert score("macro_f1", gold, predicted) == pytest.approx((100 * 16 / 17 + 0 + 100) / 3)
    assert majority_score("macro_f1", gold) == pytest.approx(100 * 16 / 18 / 3)
    assert score("macro_f1", gold, [0] * 10) == pytest.approx(majority_score("macro_f1", gold))


@given(st.integers(2, 4).flatmap(lambda classes: st.lists(st.integers(0, classes - 1), min_size=1, max_size=30)))
def test_majority_score_is_the_best_constant_prediction(gold: list[int]):
    metrics = ["accuracy", "macro_f1", "matthews"]
    if max(gold) == 1:
        metrics.append("f1")
    for metric in metrics:
        best = max(score(metric, gold, [constant] * len(gold)) for constant in range(4))
        assert best == pytest.approx(majority_score(metric, gold))
