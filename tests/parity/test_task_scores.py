"""The tasks' metrics against scikit-learn and scipy: equal to 1e-12.

Gold labels are random; predictions are random, or right for most examples as a trained model's are.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.examples import TextExample
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.metrics import METRICS

TASKS = ("cola", "sst2", "mrpc", "stsb", "rte", "wnli", "qnli")
EQUAL = 1e-12  # of a share or a correlation; the project's are in percent


def score(metric: str, gold: list[float], predicted: list[float]) -> float:
    return METRICS[metric](gold, [predicted]).score()


def classes(seed: int, number: int, count: int, right: float) -> tuple[list[int], list[int]]:
    """Return skewed gold labels, and predictions of which about a share ``right`` is correct."""
    rng = np.random.default_rng(seed)
    gold = rng.choice(number, count, p=rng.dirichlet(np.full(number, 3.0)))
    predicted = np.where(rng.random(count) < right, gold, rng.choice(number, count))
    return gold.tolist(), predicted.tolist()


def check_classes(gold: list[int], predicted: list[int]) -> None:
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(gold, predicted),
        "macro_f1": sklearn_metrics.f1_score(gold, predicted, average="macro", zero_division=0.0),
        "matthews": sklearn_metrics.matthews_corrcoef(gold, predicted),
    }
    if set(gold) | set(predicted) <= {0, 1}:
        expected["f1"] = sklearn_metrics.f1_score(gold, predicted, zero_division=0.0)
    for metric, value in expected.items():
        assert abs(score(metric, gold, predicted) / 100 - value) <= EQUAL, metric


def check_numbers(gold: list[float], predicted: list[float], equal: float = EQUAL) -> None:
    for metric, peer in {"pearson": stats.pearsonr, "spearman": stats.spearmanr}.items():
        assert abs(score(metric, gold, predicted) / 100 - peer(gold, predicted).statistic) <= equal, metric


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("right", [0.0, 0.3, 0.9, 1.0])
def test_classification_metrics_equal_sklearn(number: int, right: float):
    for seed in range(25):
        check_classes(*classes(seed, number, int(np.random.default_rng(seed).integers(2, 900)), right))


@pytest.mark.parametrize("number", [2, 5, 30])
@pytest.mark.parametrize("right", [0.0, 0.7, 0.95, 1.0])
def test_label_set_metrics_equal_sklearn(number: int, right: float):
    """Some labels are rare, so that small sets of examples have none of them."""
    for seed in range(25):
        rng = np.random.default_rng([seed, number])
        size = (int(rng.integers(1, 400)), number)
        shares = rng.beta(0.5, 2, number)
        gold = rng.random(size) < shares
        predicted = np.where(rng.random(size) < right, gold, rng.random(size) < shares)
        for of_gold, of_predicted in ((gold, predicted), (gold, gold & False), (gold & False, gold & False)):
            expected = {
                "micro_f1": sklearn_metrics.f1_score(of_gold, of_predicted, average="micro", zero_division=0),
                "macro_f1": sklearn_metrics.f1_score(of_gold, of_predicted, average="macro", zero_division=0),
                "subset_accuracy": sklearn_metrics.accuracy_score(of_gold, of_predicted),
            }
            for metric, value in expected.items():
                assert abs(score(metric, of_gold, of_predicted) / 100 - value) <= EQUAL, metric


@pytest.mark.parametrize("digits", [0, 1, 15])  # few digits: many ties
def test_correlation_metrics_equal_scipy(digits: int):
    for seed in range(25):
        rng = np.random.default_rng([seed, digits])
        gold = np.round(rng.uniform(0, 5, rng.integers(3, 400)), digits)
        predicted = np.round(np.clip(gold + rng.normal(0, rng.uniform(0.01, 3), len(gold)), 0, 5), digits)
        if len(set(gold)) > 1 < len(set(predicted)):
            check_numbers(gold.tolist(), predicted.tolist())


@pytest.mark.parametrize("task", TASKS)
def test_task_score_equals_metrics_of_its_labels(task: str):
    """The predictions are written as rows with the label names of each task."""
    spec, rng = load_spec(task), np.random.default_rng(1)
    scorer = make_task(spec)
    gold = rng.uniform(*spec.range, 500) if spec.range is not None else rng.integers(0, len(spec.labels), 500)
    gold = np.round(gold, 1).tolist() if spec.range is not None else gold.tolist()
    examples = [TextExample(str(number), ("a", "b"), label) for number, label in enumerate(gold)]
    for right in (0.0, 0.7, 0.95):
        keep = rng.random(len(gold)) < right
        if spec.range is not None:
            guess = np.where(keep, np.add(gold, rng.normal(0, 0.4, len(gold))), rng.uniform(*spec.range, len(gold)))
            predicted = spelt = np.clip(guess, *spec.range).tolist()
            check_numbers(gold, predicted)
        else:
            predicted = np.where(keep, gold, rng.integers(0, len(spec.labels), len(gold))).tolist()
            spelt = [spec.labels[label] for label in predicted]
            check_classes(gold, predicted)
        rows = [{"id": example.id, "prediction": value} for example, value in zip(examples, spelt, strict=True)]
        scores = scorer.score(task, examples, rows)
        assert scores == {metric: score(metric, gold, predicted) for metric in spec.scores[task].metrics}


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6])
def test_pearson_nearly_constant_predictions_equal_scipy(scale: float):
    rng = np.random.default_rng(0)
    gold = rng.uniform(0, 5, 300)
    check_numbers(gold.tolist(), (2.5 + scale * (gold + rng.normal(0, 1, 300))).tolist(), equal=1e-9)


def test_correlation_of_constant_predictions_is_zero_without_warning(recwarn):
    gold = [0, 1, 1, 0, 1]
    for constant in (0, 1):
        check_classes(gold, [constant] * 5)
        check_classes([constant] * 5, gold)
        assert score("matthews", gold, [constant] * 5) == 0.0
    check_classes([1, 1, 1], [1, 1, 1])
    check_classes([0, 0, 0], [0, 0, 0])
    for metric in ("pearson", "spearman"):
        assert score(metric, [0.0, 1.0, 5.0], [2.5, 2.5, 2.5]) == 0.0
        assert score(metric, [2.0, 2.0], [1.0, 2.0]) == 0.0
    assert not [warning for warning in recwarn if "constant" in str(warning.message).lower()]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "2.5"])
def test_task_score_prediction_without_number_is_rejected(value: object):
    spec = load_spec("stsb")
    examples = [TextExample(str(number), ("a", "b"), float(number)) for number in range(3)]
    rows = [{"id": str(number), "prediction": 1.0 + number} for number in range(2)] + [{"id": "2", "prediction": value}]
    with pytest.raises(PipelineError, match="invalid prediction"):
        make_task(spec).score("stsb", examples, rows)
