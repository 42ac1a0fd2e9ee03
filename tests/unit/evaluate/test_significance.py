"""Confidence intervals and tests of differences, compared with scipy and by simulation."""

import numpy as np
import pytest
from scipy.stats import binomtest, permutation_test

from pipeline_src.evaluate import significance
from pipeline_src.evaluate.significance import compare, make_units, resampled_values, score_interval
from pipeline_src.tasks import tagging
from pipeline_src.tasks.metrics import METRICS, ratio_statistics

SETS = 500


def score(metric, gold, predicted):
    return METRICS[metric](gold, [predicted]).score()


def units_of(metric, gold, *systems, groups=None):
    return make_units(METRICS[metric](gold, systems), [1] * len(systems), groups or [None] * len(gold))


CELLS = {  # metric -> the population's shares of (gold, predicted) cells, and how many examples a set has
    "accuracy": (np.array([[0.4, 0.1], [0.1, 0.4]]), 300),
    "f1": (np.array([[0.5, 0.1], [0.12, 0.28]]), 300),
    "matthews": (np.array([[0.3, 0.05, 0.05], [0.06, 0.2, 0.04], [0.1, 0.05, 0.15]]), 300),
    "macro_f1": (np.array([[0.5, 0.05, 0.05], [0.06, 0.14, 0.02], [0.05, 0.05, 0.08]]), 300),
    "pearson": (None, 200),
    "spearman": (None, 200),
}


def five_grades():
    far = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    cells = np.exp(-0.7 * far)
    return cells / cells.sum()


@pytest.mark.parametrize("metric", CELLS)
def test_score_interval_coverage_is_93_to_97_percent(metric, monkeypatch):
    monkeypatch.setattr(significance, "NUM_RESAMPLES", 200)
    cells, size = CELLS[metric]
    cells = five_grades() if cells is None else cells
    gold, predicted = (values.ravel() for values in np.indices(cells.shape))
    population = np.repeat(np.arange(cells.size), np.round(1e5 * cells.ravel()).astype(int))
    truth = score(metric, gold[population], predicted[population])
    rng, held = np.random.default_rng(5), 0
    for number in range(SETS):
        drawn = np.repeat(np.arange(cells.size), rng.multinomial(size, cells.ravel()))
        units = units_of(metric, gold[drawn], predicted[drawn])
        low, high = score_interval(units, 0, resampled_values(units, number)[0])
        held += low <= truth <= high
    assert 0.93 <= held / SETS <= 0.97


def test_score_interval_grouped_examples_coverage_is_93_to_97_percent(monkeypatch):
    """Documents are easy or hard. Intervals that ignored documents would be far too short."""
    monkeypatch.setattr(significance, "NUM_RESAMPLES", 200)
    rng, held, held_alone = np.random.default_rng(5), 0, 0
    documents = np.repeat(np.arange(40), 10)
    for number in range(SETS):
        right = rng.random(400) < rng.beta(4, 2, 40)[documents]
        for groups in (list(documents), [None] * 400):
            units = make_units(ratio_statistics([right], yes_no=True), [1], groups)
            low, high = score_interval(units, 0, resampled_values(units, number)[0])
            inside = low <= 100 * 4 / 6 <= high
            held, held_alone = held + inside * (groups[0] is not None), held_alone + inside * (groups[0] is None)
    assert 0.93 <= held / SETS <= 0.97
    assert held_alone / SETS < 0.9


@pytest.mark.parametrize(("metric", "expected"), [("entity_f1", 40.0), ("accuracy", 100 * 4 / 6)])
def test_make_units_sentences_of_one_document_form_one_unit(metric, expected):
    gold = [["O", "B-PER", "I-PER"], ["B-LOC"], ["O", "O"]]
    given = [["O", "B-PER", "O"], ["B-LOC"], ["B-LOC", "O"]]
    units = make_units(tagging.METRICS[metric](gold, [given, gold]), [1, 1], [0, 0, 1])
    assert units.score(0) == pytest.approx(expected) and units.score(1) == pytest.approx(100)
    assert units.count == 2


def test_score_interval_of_perfect_accuracy_is_exact_binomial():
    units = units_of("accuracy", [1, 0] * 250, [1, 0] * 250)
    low, high = score_interval(units, 0, resampled_values(units, 1)[0])
    assert (low, high) == (pytest.approx(100 * 0.025 ** (1 / 500)), 100.0)


def judged(metric, gold, ours, theirs, groups=None, runs=(1, 1)):
    units = make_units(METRICS[metric](gold, [*ours, *theirs]), runs, groups or [None] * len(gold))
    return compare(units, resampled_values(units, 1), len(gold), 2)


def test_compare_accuracy_equals_binomial_test():
    gold = np.ones(100, int)
    ours, theirs = gold.copy(), gold.copy()
    ours[:5], theirs[5:25] = 0, 0  # 5 correct only for theirs, 20 only for ours
    outcome = judged("accuracy", gold, [ours], [theirs])
    assert outcome.difference == pytest.approx(15) and outcome.significant
    assert outcome.p == pytest.approx(binomtest(20, 25).pvalue)
    low, high = outcome.interval
    assert 4 < low < 15 < high < 26


def test_compare_f1_equals_scipy_permutation_test():
    rng = np.random.default_rng(8)
    gold = rng.integers(0, 2, 120)
    ours, theirs = (np.where(rng.random(120) < right, gold, 1 - gold) for right in (0.8, 0.71))

    def difference(first, second):
        return score("f1", gold, first) - score("f1", gold, second)

    scipys = permutation_test(
        (ours, theirs), difference, permutation_type="samples", n_resamples=600, vectorized=False, rng=rng
    ).pvalue
    assert judged("f1", gold, [ours], [theirs]).p == pytest.approx(scipys, abs=0.06)


def test_compare_equal_systems_false_positive_rate_is_5_percent(monkeypatch):
    monkeypatch.setattr(significance, "NUM_PERMUTATIONS", 199)
    monkeypatch.setattr(significance, "NUM_RESAMPLES", 10)
    rng, significant = np.random.default_rng(4), 0
    for _ in range(600):
        gold = rng.integers(0, 2, 150)
        ours, theirs = (np.where(rng.random(150) < 0.75, gold, 1 - gold) for _ in range(2))
        significant += judged("matthews", gold, [ours], [theirs]).significant
    assert 0.03 < significant / 600 < 0.07


def test_compare_examples_needed_give_80_percent_power():
    rng, gold = np.random.default_rng(0), np.resize([0, 1], 200)
    ours, theirs = (np.where(np.arange(200) % step, gold, 1 - gold) for step in (5, 4))
    outcome = judged("accuracy", gold, [ours], [theirs])
    assert not outcome.significant and outcome.difference == pytest.approx(5)
    gold, significant = np.resize(gold, outcome.examples_needed), 0
    for _ in range(200):
        ours, theirs = (np.where(rng.random(len(gold)) < right, gold, 1 - gold) for right in (0.8, 0.75))
        significant += judged("accuracy", gold, [ours], [theirs]).significant
    assert 0.7 < significant / 200 < 0.9


def test_compare_small_difference_of_many_examples_tells_examples_needed():
    # The standard error of the difference is below one percentage point.
    gold = np.resize([0, 1], 30_000)
    ours, theirs = (np.where(np.arange(30_000) % step, gold, 1 - gold) for step in (100, 99))
    outcome = judged("accuracy", gold, [ours], [theirs])
    assert not outcome.significant and outcome.examples_needed > 30_000


def test_compare_difference_is_between_means_over_seeds():
    gold = np.array([0, 1] * 50)
    half = np.where(np.arange(100) < 50, gold, 1 - gold)
    result = judged("accuracy", gold, [gold, half], [half], runs=(2, 1))
    assert result.difference == pytest.approx(25) and result.significant
    result = judged("accuracy", gold, [gold], [gold])
    assert (result.difference, result.p, result.significant, result.examples_needed) == (0.0, 1.0, False, None)


def test_compare_different_numbers_of_runs_compares_means():
    runs = [[1] * right + [0] * (100 - right) for right in (60, 60, 60, 50, 70)]
    units = make_units(METRICS["accuracy"]([1] * 100, runs), [3, 2], [None] * 100)
    outcome = compare(units, resampled_values(units, 1), 100, 2)
    assert outcome.difference == 0.0 and outcome.p == 1.0 and not outcome.significant


@pytest.mark.parametrize("metric", ["matthews", "f1", "pearson", "spearman"])
def test_score_interval_constant_resamples_return_none(metric):
    units = units_of(metric, [0, 1] * 150, [0] * 300)
    assert units.score(0) == 0.0 and score_interval(units, 0, resampled_values(units, 1)[0]) is None


@pytest.mark.parametrize("metric", ["matthews", "f1", "macro_f1"])
@pytest.mark.parametrize("often", [2, 5])
def test_score_interval_of_perfect_score_reaches_score_with_few_errors(metric, often):
    count = 300
    gold = [int(number % often == 0) for number in range(count)]
    units = units_of(metric, gold, gold)
    low, high = score_interval(units, 0, resampled_values(units, 1)[0])
    wrong = int(count * (1 - binomtest(count, count).proportion_ci(0.95).low))
    ones = [place for place, label in enumerate(gold) if label]
    missed = [label if place not in ones[:wrong] else 0 for place, label in enumerate(gold)]
    assert high == 100.0 and low < score(metric, gold, missed) < low + 2
