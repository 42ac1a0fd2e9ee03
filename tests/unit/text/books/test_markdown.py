"""Books in Markdown: prose and plays."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline_src.text.books.markdown import markdown_paragraphs
from tests.growth import TIMES, assert_linear
from tests.unit.text.books.samples import PLAY, SPEECHES

SENTENCE = "The old man sat by the river, and nobody spoke to him all day."


def test_markdown_paragraphs_comments_and_links_are_removed() -> None:
    text = f"<!-- a\n\nb -->\n\n{SENTENCE} See [his house](http://a.b/c) there. <!-- not to be ended"
    (paragraph,) = markdown_paragraphs(text, Counter())
    assert paragraph == f"{SENTENCE} See his house there. <!-- not to be ended"


@pytest.mark.parametrize("piece", ["<!--", "_", "[", "[](", "*", "![", "`", "[a", "a\n", "# "])
def test_markdown_paragraphs_unclosed_mark_takes_linear_time(piece: str) -> None:
    """The text behind it is not searched again from each of its marks."""

    def read(count: int) -> None:
        markdown_paragraphs(f"{SENTENCE}\n\n{piece * count}", Counter())

    assert_linear(read, 6_000 // len(piece), 6_000 // len(piece) * TIMES)


def test_markdown_paragraphs_titles_in_a_play_are_dropped() -> None:
    dropped: Counter[str] = Counter()
    text = f"{SPEECHES}\n\nSCENE II: Another street.\n\n**KING**  \nSing on.\nSONG.\nUnder the tree,\nO!\n\n"
    text += "Ghost\n\nEPILOGUE\n"
    assert markdown_paragraphs(text, dropped)[12:] == ["Sing on.", "Under the tree, O!"]
    assert dropped["heading"] == 4


def test_markdown_paragraphs_play_keeps_only_speeches() -> None:
    dropped: Counter[str] = Counter()
    assert markdown_paragraphs(PLAY, dropped) == [f"Line one of speech {n}, line two of it." for n in range(12)]
    assert dropped == {"heading": 3, "stage direction": 2, "speaker": 12}


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("_Aside_  \nI must away.", "I must away."),
        (r"__\[Reads]_" + "  \nDear friend, farewell.", "Dear friend, farewell."),
        ("I go.  \n_Exit with\nthe others_", "I go."),
        (r"You,'\--or so they say.", "You,'--or so they say."),
        ("*[He draws his sword.]*", ""),
    ],
)
def test_markdown_paragraphs_stage_directions_are_removed(markup: str, prose: str) -> None:
    result = markdown_paragraphs(f"{SPEECHES}\n\n**LAST**  \n{markup}", Counter())[12:]
    assert result == ([prose] if prose else [])


def test_markdown_paragraphs_emphasis_and_escapes_are_removed() -> None:
    text = "---\ntitle: x\n---\nTitle\n=====\n\nA **bold** and *plain* [link](http://a.b) in `it`.\n\n"
    text += "- an item\n\n```\ncode\n```\n"
    assert markdown_paragraphs(text, Counter()) == ["A bold and plain link in it."]


@pytest.mark.parametrize("between", ["\n", "\nAnother sentence, with no key: in it.\n\n"])
def test_markdown_paragraphs_rule_at_the_start_is_not_front_matter(between: str) -> None:
    text = f"---\n{between}{SENTENCE}\n\n---\n\n{SENTENCE}\n"
    assert markdown_paragraphs(text, Counter())[-2:] == [SENTENCE, SENTENCE]


@pytest.mark.parametrize("front", ["title: x", "dc.title:\n  - x", "date-of-print: 1900\n\nyear: 1901"])
def test_markdown_paragraphs_front_matter_is_removed(front: str) -> None:
    assert markdown_paragraphs(f"---\n{front}\n---\n{SENTENCE}\n", Counter()) == [SENTENCE]


@pytest.mark.parametrize(
    "quotation",
    [
        "> The mill > the house,\n> he said.",
        "> The mill > the house,\nhe said.",
        ">The mill > the house,\n>\n  > he said.",
        "> > The mill > the house,\n>> he said.",
    ],
)
def test_markdown_paragraphs_quotation_marks_of_every_line_are_removed(quotation: str) -> None:
    assert markdown_paragraphs(f"{SENTENCE}\n\n{quotation}", Counter()) == [SENTENCE, "The mill > the house, he said."]
