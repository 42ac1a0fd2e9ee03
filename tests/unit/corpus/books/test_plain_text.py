"""Books in plain text: broken words, torn paragraphs, and what is no prose."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline_src.corpus.books.plain_text import HyphenResolver, plain_paragraphs
from tests.growth import TIMES, assert_linear

WHOLE = "He was concerned with a well-known matter, and nobody was more concerned than the well-known man. "
SCANNED = WHOLE * 3 + (
    "\nOnce con-\ncerned and twice con-\ncerned. "
    "All that was con-\ncerned him, and a well-\nknown friend had to sur-\nrender it.\n"
)


def test_a_word_broken_at_a_lines_end_is_as_it_stands_elsewhere_in_the_book() -> None:
    (paragraph,) = plain_paragraphs(SCANNED, Counter())
    assert paragraph.endswith("All that was concerned him, and a well-known friend had to surrender it.")


def test_a_transcribers_hyphens_belong_to_their_words() -> None:
    text = "The every-day noises, and every-day life of a half-lit house.\nIn every-\nday life a half-\nread book.\n"
    assert plain_paragraphs(text, Counter()) == [" ".join(text.split()).replace("- ", "-")]


@pytest.mark.parametrize("letters", ["a", "a-", "a'"])
def test_hyphens_line_without_end_takes_linear_time(letters: str) -> None:
    """It is read once, not from each of its letters to its end."""

    def resolve(line: str) -> None:
        assert HyphenResolver(f"{line}\n").belongs("con-", "cerning")  # nothing tells, so it stays

    assert_linear(resolve, letters * 4_000, letters * 4_000 * TIMES)


@pytest.mark.parametrize(
    ("before", "after", "belongs"),
    [
        ("the con-", "cerning of", False),  # neither part is a word
        ("the Anglo-", "Saxon", True),
        ("a dog-", "house", True),  # both are
        ("12-", "pounder", True),
        ("a well-con-", "cerned man", False),
    ],
)
def test_a_word_that_stands_nowhere_else(before: str, after: str, belongs: bool) -> None:
    known = "It was known to be known. A dog saw a house. The dog left the house. Thinking, he was thinking.\n"
    broken = "think-\ning and he was know-\ning and be-\nfore. He knowing, before, knowing, before.\n"
    assert HyphenResolver(known + broken).belongs(before, after) is belongs


def test_a_paragraph_that_begins_in_mid_sentence_goes_on_with_the_one_before() -> None:
    text = "“Is it late?”\n\nhe asked, though,”\n\n he added, nobody was concerned."
    text += "\n\nShe laughed.\n\n12\n\nand went con-\n\ncerned."
    assert plain_paragraphs(text, Counter()) == [
        "“Is it late?” he asked, though,” he added, nobody was concerned.",
        "She laughed. and went concerned.",
    ]


def test_a_book_without_capitals_keeps_its_paragraphs() -> None:
    text = "\n\n".join(f"this is paragraph number {n} , as in bookcorpus ." for n in range(50))
    assert len(plain_paragraphs(text, Counter())) == 50


PROSE = "\n\n".join(
    f"This is paragraph {n} of a book that is long enough to have a middle and an end." for n in range(60)
)


@pytest.mark.parametrize(
    ("matter", "reason"),
    [
        ("CONTENTS\n\nI. The Start .... 1\nII. The Middle of it .... 23\nThe end of it .... 99", "table of contents"),
        ("The Start          1\nThe Middle        23\nThe End           99", "table of contents"),
        ("Note: Project Gutenberg also has an HTML version of this file which includes pictures.", "its makers' note"),
        ("Transcriber's Note:\nPage 12, “teh” was changed to “the”.", "its makers' note"),
        ("[1] See the second volume of this work, where it is told.", "footnote"),
        ("* A word of the country for a small hill.", "footnote"),
        ("{Endnote 3: The author has it from his aunt.}", "footnote"),
        ("| a | b |\n| 1 | 2 |", "table"),
        ("| One line of a table alone", "table"),
    ],
)
def test_matter_that_is_no_prose_goes_and_is_counted(matter: str, reason: str) -> None:
    dropped: Counter[str] = Counter()
    half = PROSE[: PROSE.index("This is paragraph 30")]
    assert plain_paragraphs(f"{half}{matter}\n\n{PROSE[len(half) :]}", dropped) == PROSE.split("\n\n")
    assert dropped[reason] == 1 and set(dropped) <= {reason, "heading"}


def test_a_publishers_catalogue_at_the_end_goes_and_prices_in_a_story_stay() -> None:
    advertisement = "THE RIVER WAR. By A. Writer. Two volumes, crown 8vo, cloth gilt, with maps. Price 36s. net."
    dropped: Counter[str] = Counter()
    paragraphs = plain_paragraphs(f"{PROSE}\n\n{advertisement}\n\n{PROSE}\n\n{advertisement}", dropped)
    story = PROSE.split("\n\n")
    assert paragraphs == [*story, advertisement, *story] and dropped == {"advertisement": 1}


def test_marks_of_notes_and_pages_go_and_brackets_of_the_author_stay() -> None:
    text = "He came[1] to the house {Endnote 4}, and saw it.[*] It was [he said] old [Pg 12]and [sic] small[A]."
    assert plain_paragraphs(text, Counter()) == [
        "He came to the house, and saw it. It was [he said] old and [sic] small."
    ]


def test_speech_in_guillemets_ends_as_a_sentence_does() -> None:
    """French, Italian, Spanish and Russian books end a speech with ``»``."""
    spoken = ["« La mer ne rend rien. »", "« Vous m'entendez, monsieur ? »", "‹ Non, dit-il. ›", "Il se tut longtemps."]
    dropped: Counter[str] = Counter()
    story = "Le vieux marin regarda longuement la flamme qui dansait dans la cheminée de la maison. Il se leva."
    assert plain_paragraphs("\n\n".join([story, *spoken, story]), dropped) == [story, *spoken, story]
    assert not dropped
