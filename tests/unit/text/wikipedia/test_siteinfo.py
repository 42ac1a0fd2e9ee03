"""What differs by the language of a wiki: prefixes of files, scripts, behaviour switches, redirects."""

from __future__ import annotations

import pytest

from pipeline_src.text.wikipedia.scanner import choose_variants
from pipeline_src.text.wikipedia.siteinfo import REDIRECT, make_siteinfo
from pipeline_src.text.wikipedia.wikitext import clean
from tests.growth import TIMES, assert_linear
from tests.unit.text.cases import PLAIN


def test_make_siteinfo_hidden_namespaces_use_names_of_the_dump() -> None:
    names = {-2: "Miðill", -1: "Kerfissíða", 0: "", 2: "Notandi", 6: "Mynd", 14: "Flokkur"}
    hidden = make_siteinfo("iswiki", "en", names).hidden - make_siteinfo("iswiki", "en", {}).hidden
    assert hidden == {"miðill", "kerfissíða", "mynd", "flokkur"}


def test_clean_unclosed_link_before_a_file_keeps_all_paragraphs() -> None:
    assert PLAIN in clean(f"They know [[the mill.\n\n{PLAIN}\n\nSee this: a.jpg]].")


@pytest.mark.parametrize(
    ("language", "meanings"),
    [
        ("ar", "توضيح"),
        ("ja", "aimai"),
        ("ka", "მრავალმნიშვნელოვანი"),
        ("zh", "消歧义"),
        ("uk", "Багатозначність"),
        ("he", "פירושונים"),
        ("fa", "ابهام‌زدایی"),
        ("tr", "anlam ayrımı"),
        ("sv", "förgrening"),
        ("nb", "peker"),
    ],
)
def test_siteinfo_disambiguation_template_of_each_language_matches(language: str, meanings: str) -> None:
    assert make_siteinfo(f"{language}wiki", language, {}).disambiguation.search(f"{{{{{meanings}}}}}")


@pytest.mark.parametrize(
    ("language", "pointer"),
    [("ru", "{{значения}}"), ("ca", "{{polisèmia}}"), ("fi", "{{täsmennys|x}}"), ("en", "{{about|x}}")],
)
def test_siteinfo_hatnote_to_other_meanings_is_no_disambiguation(language: str, pointer: str) -> None:
    assert not make_siteinfo(f"{language}wiki", language, {}).disambiguation.search(f"{pointer}\n{PLAIN}")


@pytest.mark.parametrize("run", ["-{", "}-", "-{a}-", "-{zh:", "-{;", "-{zh:a;", "-{{{a", "-{a=>", "-{zh:a=>"])
def test_choose_variants_hostile_page_takes_linear_time(run: str) -> None:
    def choose(times: int) -> str:
        return choose_variants(run * times + "-{" + ";  =>zh:" * times + "}-" * times, "zh")

    assert_linear(choose, 1_000, 1_000 * TIMES)


def test_clean_bidirectional_controls_are_removed() -> None:
    controls = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    assert clean(controls.join(PLAIN)) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        "#REDIRECT [[A]]",
        "#redirect: [[A]]",
        "#REDIRECT <!-- c --> <!--\n--> [[A]]",
        "#رجوع_مکرر [[A]]",
        "#تغییر_مسیر[[A]]",
    ]
    + ["#เปลี่ยนทาง [[A]]", "#अनुप्रेषित [[A]]", "#重定向 [[A]]", "\n#YÖNLENDİRME [[A#b]]"],
)
def test_redirect_of_any_language_is_recognized(text: str) -> None:
    assert REDIRECT.match(text)


@pytest.mark.parametrize("text", ["# 1990 [[A]]", "#an old [[A]]", "#REDIRECT <!-- [[A]]", f"{PLAIN} #REDIRECT [[A]]"])
def test_redirect_pattern_does_not_match_articles(text: str) -> None:
    assert not REDIRECT.match(text)
