"""Tests of speed measure growth, and must fail for code that is quadratic or that does its work pair by pair."""

from __future__ import annotations

import re

import pytest

from tests.growth import TIMES, assert_linear, count_python_lines


def test_assert_linear_linear_search_passes() -> None:
    assert_linear(re.compile("a+b").match, "a" * 100_000, "a" * 100_000 * TIMES)


def test_assert_linear_quadratic_search_fails() -> None:
    with pytest.raises(AssertionError, match="times the CPU time for 16 times the input"):
        assert_linear(re.compile("a+b").search, "a" * 1_000, "a" * 1_000 * TIMES)


def test_count_python_lines_loop_counts_each_turn() -> None:
    def loop(turns: int) -> None:
        for _ in range(turns):
            pass

    assert count_python_lines(lambda: loop(1_000)) - count_python_lines(lambda: loop(100)) == 1_800
