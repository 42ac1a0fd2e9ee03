"""Formulas: shown on one line of text if they fit, without text if not."""

from __future__ import annotations

from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.text.wikipedia.formulas import MAX_LENGTH, formula_text
from pipeline_src.text.wikipedia.markers import MARKS
from pipeline_src.text.wikipedia.wikitext import clean


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("n", "n"),
        (r" f(x)\, ", "f(x)"),
        (r"\alpha \le x_{12}", "α ≤ x_12"),
        (r"\pi^2 + x^{-10}", "π² + x⁻¹⁰"),
        (r"\mathbf E", "E"),
        (r"\bar{x}", "x̄"),
        (r"\hat {\mathbf j}", "ĵ"),
        (r"\frac{a}{b}", "a/b"),
        (r"\frac12", "1/2"),
        (r"\frac{1}{12n}", "1/(12n)"),
        (r"\frac{(a+b)}{2} = 4", "(a+b)/2 = 4"),
        (r"{n_g \over n}", "(n_g)/n"),
        (r"\frac{d}{c}v", "d/c v"),
        (r"\sqrt{2\pi}", "√(2π)"),
        (r"\ln\left(\sqrt{2}\right)", "ln(√2)"),
        (r"2\sin x", "2 sin x"),
        (r"\sum_{i=1}^n a_i", "∑_(i=1)^n a_i"),
        (r"|x| < 1", "|x| < 1"),
        (r"x' \in \{1,2\}", "x′ ∈ {1,2}"),
        (r"E[X] = 90^\circ", "E[X] = 90°"),
        (r"\text{cov}(X,Y)", "cov(X,Y)"),
        (r"x \in \R", "x ∈ ℝ"),
    ],
)
def test_formula_text_formula_on_one_line_is_shown(formula: str, text: str) -> None:
    assert unescape(formula_text(formula)) == text


@pytest.mark.parametrize(
    "formula",
    [
        "", " ", "{", "}", "{}}", "x^", "_", r"\frac", r"\frac{a}", r"\frac{a}{}", r"\sqrt", r"\bar{ab}", r"\odd",
        r"\begin{cases} a & b \\ c \end{cases}", r"{n \choose k}", r"a & b", "a" * (MAX_LENGTH + 1),
        "{" * 50 + "}" * 50, "x\ue000", r"\unknown{x}", "\\",
    ],
)  # fmt: skip
def test_formula_text_other_formula_has_no_text(formula: str) -> None:
    assert formula_text(formula) == ""


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


def test_clean_brackets_of_a_formula_are_not_markup() -> None:
    assert clean(r"The mean <math>E[[X]] < \{\{a|b\}\}</math> is not known to all.") != ""
    assert clean(r"The value <math>a<b</math> or <math>b>a</math> is known.") == "The value a < b or b > a is known."


def test_formula_text_blanks_of_the_table_of_symbols_are_kept() -> None:
    assert formula_text(r"a \lt b \quad c") == "a < b c"
    assert formula_text(r"a\quad b\,c") == "a b c"
