"""Formulas: shown on one line of text if they fit, without text if not."""

from __future__ import annotations

from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.text.wikipedia.formulas import MAX_LENGTH, formula_text
from pipeline_src.text.wikipedia.markers import MARKS
from pipeline_src.text.wikipedia.wikitext import clean
from tests.unit.text.cases import read_cases


@pytest.mark.parametrize(("formula", "text"), read_cases("wikipedia/formulas.yaml"))
def test_formula_text_examples_become_plain_text(formula: str, text: str) -> None:
    assert unescape(formula_text(formula)) == text


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([*r"abn12{}^_()[]|<>'=+,. ", r"\frac", r"\sqrt", r"\over", r"\bar", r"\alpha", r"\{", r"\left"])
    )
)
def test_formula_text_any_formula_leaves_no_markup(parts: list[str]) -> None:
    text = formula_text("".join(parts))
    assert text.strip() == text and not MARKS.search(text) and len(text) <= MAX_LENGTH
    assert not any(mark in text for mark in ("{", "}", "[", "]", "|", "''"))


def test_clean_brackets_in_a_formula_are_kept() -> None:
    assert clean(r"The mean <math>E[[X]] < \{\{a|b\}\}</math> is not known to all.") != ""
