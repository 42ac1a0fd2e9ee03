"""The judge of the cleaning benchmark: that it praises the prose itself and sees each fault."""

from __future__ import annotations

import pytest

pytest.importorskip("mwparserfromhell", reason="the peers of the benchmarks are not installed")

from benchmarks._prose_quality import Quality, judge, read_truth

FIRST = "The river Long runs north through two counties and three towns before it meets the cold grey sea."
SECOND = "In winter it freezes for a week or two, and the people of all the towns around skate on it."
THIRD = "Nobody knows how old the stone bridge is, but monks wrote of it more than eight hundred years ago."
PAGE = (
    f"{{{{Infobox|length=a number of miles that nobody has counted yet}}}}\n{FIRST}<ref>A book by somebody.</ref>\n\n"
    f"== Its early history ==\n[[File:a.jpg|thumb|The river as seen from the old bridge]]\n{SECOND} It has:\n"
    f"* one mill that grinds corn for everyone\n\n''{THIRD}\n\n"
    "== References ==\nA source that has words enough to count."
)
PROSE = f"{FIRST}\n{SECOND}\n{THIRD}"


def score(output: str) -> Quality:
    """The figures of ``output`` as a rendering of the page."""
    return judge([read_truth(PAGE)], [output])[0]


def test_the_prose_itself_is_without_fault() -> None:
    quality = score(PROSE)
    assert quality.markup_per_mb == quality.holes_per_mb == quality.headings == quality.non_prose_percent == 0
    assert quality.paragraphs_lost_percent == quality.lead_ins_too_percent == 0
    assert 0 < quality.ngrams_lost_percent < 20  # those of "It has:"


@pytest.mark.parametrize(
    "line",
    [
        "Its early history.",
        "one mill that grinds corn for everyone",
        "The river as seen from the old bridge",
        "A book by somebody.",
        "a number of miles that nobody has counted yet",
        "A source that has words enough to count.",
    ],
)
def test_what_is_not_prose_is_seen(line: str) -> None:
    quality = score(f"{PROSE}\n{line}")
    assert quality.non_prose_percent == pytest.approx(100 * len(line) / len(PROSE.replace("\n", "") + line))
    assert quality.headings == (line == "Its early history.")


def test_a_lost_paragraph_is_seen() -> None:
    assert score(f"{FIRST}\n{THIRD}").paragraphs_lost_percent == pytest.approx(100 / 3)


@pytest.mark.parametrize(
    "mark", ["{{", "]]", "==", "''", "&nbsp;", "<br />", "<ref>", "[http://a.b", "__TOC__", "thumb|"]
)
def test_marks_are_seen(mark: str) -> None:
    assert score(f"{PROSE} and {mark} more.").markup_per_mb > 0


@pytest.mark.parametrize(
    "hole", ["( ; born 1900)", "a river () there", "a river , and", "a river  and", "a river,, and"]
)
def test_holes_are_seen(hole: str) -> None:
    assert score(f"{PROSE} {hole} so on.").holes_per_mb > 0


LOST = (
    f"{FIRST[:-1]} of {{{{odd|somewhere}}}} beyond the bridge.\n\n{SECOND}{{{{citation needed}}}} It froze.\n\n{THIRD}"
)


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        ("of somewhere beyond the bridge.", 0),
        ("of beyond the bridge.", 1),  # no mark stands beside the place
        ("of – beyond the bridge.", 0),
    ],
)
def test_words_missing_in_a_sentence_are_seen(seen: str, missing: int) -> None:
    output = f"{FIRST[:-1]} {seen}\n{SECOND} It froze.\n{THIRD}"
    quality = judge([read_truth(LOST)], [output])[0]
    assert quality.missing_per_mb == pytest.approx(missing * 1e6 / len(output.encode()))


def test_a_dropped_sentence_has_no_words_missing() -> None:
    assert judge([read_truth(LOST)], [f"{SECOND} It froze.\n{THIRD}"])[0].missing_per_mb == 0


def test_words_that_the_page_itself_says_without_the_template_are_not_missing() -> None:
    page = f"{LOST}\n\n{FIRST[:-1]} of beyond the bridge."
    output = f"{SECOND} It froze.\n{THIRD}\n{FIRST[:-1]} of beyond the bridge."
    assert judge([read_truth(page)], [output])[0].missing_per_mb == 0
    assert judge([read_truth(page)], [f"{FIRST[:-1]} of beyond the bridge.\n{output}"])[0].missing_per_mb > 0


def test_a_doubled_sentence_does_not_hide_lost_words() -> None:
    output = f"{FIRST[:-1]} of beyond the bridge.\n{SECOND} It froze.\n{THIRD}"
    assert judge([read_truth(f"{LOST}\n\n{SECOND}")], [output])[0].missing_per_mb > 0


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (
            "L'''[[Iliade]]'' dell'''antico'' poeta è nota a tutti.",
            "L'Iliade dell'antico poeta è nota a tutti.",
        ),
        (
            "A set ''has an '''n'''th member'' and ''no'' more of them.",
            "A set has an nth member and no more of them.",
        ),
        ("The <span class=large>river is long and runs north.", "The river is long and runs north."),
        ("__NOTOC__The river is long and runs north.", "The river is long and runs north."),
    ],
)
def test_words_are_read_as_a_page_shows_them(typed: str, shown: str) -> None:
    assert judge([read_truth(f"{typed}\n\n{FIRST}")], [f"{shown}\n{FIRST}"])[0].ngrams_lost_percent == 0


@pytest.mark.parametrize(
    "line",
    [
        "[[File: a.jpg|thumb|The river as seen from the old bridge]]",
        "[[File:a.jpg|thumb|The river <small>as seen from the old bridge]]</small>",
    ],
)
def test_captions_are_no_prose_however_the_link_is_written(line: str) -> None:
    truth = read_truth(f"{line}\n{FIRST}")
    assert judge([truth], [FIRST])[0].ngrams_lost_percent == 0
    assert judge([truth], [f"{FIRST}\nThe river as seen from the old bridge."])[0].non_prose_percent > 0


@pytest.mark.parametrize("line", ["- one mill that grinds corn for everyone", "1 KiB = 1 024 B --- (kibibyte)"])
def test_lists_and_figures_typed_as_lines_are_no_prose(line: str) -> None:
    truth = read_truth(f"{FIRST}\n\n{line}")
    assert judge([truth], [FIRST])[0].ngrams_lost_percent == 0
    assert judge([truth], [f"{FIRST}\n{line}"])[0].non_prose_percent > 0


def test_a_sentence_with_figures_is_prose() -> None:
    sentence = "In 1990 it had 40 000 inhabitants, in 2000 no more than 35 000 of them were left."
    assert judge([read_truth(f"{FIRST}\n\n{sentence}")], [FIRST])[0].ngrams_lost_percent > 20


@pytest.mark.parametrize("name", ["quote", "citazione", "Q", "citazione necessaria"])
def test_prose_in_a_template_may_be_kept(name: str) -> None:
    truth = read_truth(f"{FIRST}\n{{{{{name}|{SECOND}}}}}")
    for output in (FIRST, f"{FIRST}\n{SECOND}"):
        quality = judge([truth], [output])[0]
        assert quality.non_prose_percent == quality.ngrams_lost_percent == 0
