from __future__ import annotations

import numpy as np
import pytest

from pipeline_src.tasks.squad_metrics import (
    exact_match,
    find_null_threshold,
    normalise_answer,
    thresholded_values,
)


def test_exact_match_ignores_case_articles_and_punctuation():
    assert normalise_answer("  The U.S.A., and an  'Apple'! ") == "usa and apple"
    assert normalise_answer("theatre another") == "theatre another"  # articles are whole words
    assert exact_match("the Eiffel Tower.", ["tower", "Eiffel tower"], False) == 1.0
    assert exact_match("", [], True) == 1.0
    assert exact_match("tower", [], True) == 0.0


def find_threshold(values, has_answer, differences, says=None):
    values, has_answer = np.array(values, float), np.array(has_answer, bool)
    says = np.ones(len(values), bool) if says is None else np.array(says, bool)
    result = find_null_threshold(values, says, has_answer, np.array(differences, float))
    assert thresholded_values(values, says, has_answer, result.answered).sum() == pytest.approx(result.total)
    return result.total, result.threshold, result.answered.tolist()


def test_find_null_threshold_maximises_total():
    values, has_answer = [0.5, 1, 0, 1], [True, True, False, True]
    # Answering the third question loses a point, and answering the fourth gains it again. The earlier stop wins.
    assert find_threshold(values, has_answer, [-3, -1, 0, 2]) == (2.5, -1.0, [True, True, False, False])
    assert find_threshold([0.5, 1, 0, 1], [True, True, True, True], [-3, -1, 0, 2]) == (2.5, 2.0, [True] * 4)


def test_find_null_threshold_equal_differences_keep_file_order():
    assert find_threshold([1, 0, 1], [True, False, True], [5, 5, 5]) == (2.0, 5.0, [True, False, False])
