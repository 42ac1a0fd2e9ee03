"""Bootstrap intervals over documents."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_src.interpretation.bootstrap import balanced, interval, intervals


def test_an_interval_holds_nought_where_nothing_differs(rng):
    first, second = rng.random(900) < 0.6, rng.random(900) < 0.6
    documents = [str(number // 30) for number in range(900)]
    low, high = interval(first, second, documents, 1)
    assert low < 0 < high
    (own,) = intervals(first[None], documents, 1)
    spread = 1.96 * (first.mean() * (1 - first.mean()) / 900) ** 0.5  # of words drawn one by one
    assert own == pytest.approx([first.mean() - spread, first.mean() + spread], abs=0.01)
    better = interval(np.ones(900), second, documents, 1)
    assert better[0] > 0.3
    assert balanced(np.array([True, True, False]), np.array([0, 0, 1])) == 0.5
