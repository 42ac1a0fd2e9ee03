"""Books in plain text: broken words, split paragraphs, and parts that are not prose."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline_src.text.books.plain_text import HyphenResolver, plain_paragraphs
from tests.growth import TIMES, assert_linear
from tests.unit.text.books.samples import GUTENBERG
from tests.unit.text.cases import read_cases

BODY = [f"This is paragraph {n} of a book that is long enough to have a middle." for n in range(120)]
WHOLE = "He was concerned with a well-known matter, and nobody was more concerned than the well-known man. "
SCANNED = WHOLE * 3 + (
    "\nOnce con-\ncerned and twice con-\ncerned. "
    "All that was con-\ncerned him, and a well-\nknown friend had to sur-\nrender it.\n"
)


def test_plain_paragraphs_broken_word_gets_its_form_elsewhere_in_the_book() -> None:
    (paragraph,) = plain_paragraphs(SCANNED, Counter())
    assert paragraph.endswith("All that was concerned him, and a well-known friend had to surrender it.")


def test_plain_paragraphs_hyphenated_word_at_line_end_keeps_hyphen() -> None:
    text = "The every-day noises, and every-day life of a half-lit house.\nIn every-\nday life a half-\nread book.\n"
    assert plain_paragraphs(text, Counter()) == [" ".join(text.split()).replace("- ", "-")]


@pytest.mark.parametrize("letters", ["a", "a-", "a'"])
def test_hyphen_resolver_long_line_takes_linear_time(letters: str) -> None:
    """It is read once, not from each of its letters to its end."""

    def resolve(line: str) -> None:
        # Nothing tells, so the hyphen stays.
        assert HyphenResolver(f"{line}\n").belongs("con-", "cerning")

    assert_linear(resolve, letters * 4_000, letters * 4_000 * TIMES)


@pytest.mark.parametrize(
    ("before", "after", "belongs"), read_cases("books/plain_text.yaml", "hyphen resolver word found nowhere else")
)
def test_hyphen_resolver_unknown_word_follows_the_other_words(before: str, after: str, belongs: bool) -> None:
    known = "It was known to be known. A dog saw a house. The dog left the house. Thinking, he was thinking.\n"
    broken = "think-\ning and he was know-\ning and be-\nfore. He knowing, before, knowing, before.\n"
    assert HyphenResolver(known + broken).belongs(before, after) is belongs


@pytest.mark.parametrize("paragraph", read_cases("books/plain_text.yaml", "script without capitals is prose"))
def test_plain_paragraphs_script_without_capitals_is_prose(paragraph: str) -> None:
    # Without a full stop, and longer than a line.
    long = paragraph * 5 + paragraph[:9]
    assert plain_paragraphs("\n\n".join([paragraph, long, paragraph]), Counter()) == [paragraph, long, paragraph]


def test_plain_paragraphs_split_sentence_is_joined() -> None:
    text = "“Is it late?”\n\nhe asked, though,”\n\n he added, nobody was concerned."
    text += "\n\nShe laughed.\n\n12\n\nand went con-\n\ncerned."
    assert plain_paragraphs(text, Counter()) == [
        "“Is it late?” he asked, though,” he added, nobody was concerned.",
        "She laughed. and went concerned.",
    ]


def test_plain_paragraphs_lowercase_book_keeps_its_paragraphs() -> None:
    text = "\n\n".join(f"this is paragraph number {n} , as in bookcorpus ." for n in range(50))
    assert len(plain_paragraphs(text, Counter())) == 50


@pytest.mark.parametrize(("matter", "reason"), read_cases("books/plain_text.yaml", "non prose is dropped by reason"))
def test_plain_paragraphs_non_prose_is_dropped_and_counted_by_reason(matter: str, reason: str) -> None:
    dropped: Counter[str] = Counter()
    assert plain_paragraphs("\n\n".join([*BODY[:60], matter, *BODY[60:]]), dropped) == BODY
    assert dropped[reason] == 1 and set(dropped) <= {reason, "heading"}


def test_plain_paragraphs_advertisement_is_dropped_only_at_the_end() -> None:
    advertisement = "THE RIVER WAR. By A. Writer. Two volumes, crown 8vo, cloth gilt, with maps. Price 36s. net."
    dropped: Counter[str] = Counter()
    story = [*BODY, advertisement, *BODY]
    assert plain_paragraphs("\n\n".join([*story, advertisement]), dropped) == story
    assert dropped == {"advertisement": 1}


def test_plain_paragraphs_note_and_page_marks_are_removed() -> None:
    text = "He came[1] to the house {Endnote 4}, and saw it.[*] It was [he said] old [Pg 12]and [sic] small[A]."
    assert plain_paragraphs(text, Counter()) == [
        "He came to the house, and saw it. It was [he said] old and [sic] small."
    ]


def test_plain_paragraphs_guillemet_after_speech_ends_the_paragraph() -> None:
    """French, Italian, Spanish and Russian books end a speech with ``»``."""
    spoken = ["« La mer ne rend rien. »", "« Vous m'entendez, monsieur ? »", "‹ Non, dit-il. ›", "Il se tut longtemps."]
    dropped: Counter[str] = Counter()
    story = "Le vieux marin regarda longuement la flamme qui dansait dans la cheminée de la maison. Il se leva."
    assert plain_paragraphs("\n\n".join([story, *spoken, story]), dropped) == [story, *spoken, story]
    assert not dropped


@pytest.mark.parametrize("marks", ["»«", "„“", "„”", "«»", "›‹", "‚‘", "“”"])
def test_plain_paragraphs_short_speech_in_any_quotation_marks_is_kept(marks: str) -> None:
    """German, Danish, Czech and Slovene books close with the marks that others open with."""
    opening, closing = marks
    spoken = [f"{opening}{words}{closing}" for words in ("Kommst du heim?", "Ja, ich komme.", "So, so")]
    dropped: Counter[str] = Counter()
    assert plain_paragraphs("\n\n".join([BODY[0], *spoken, BODY[1]]), dropped) == [BODY[0], *spoken, BODY[1]]
    assert not dropped


def test_plain_paragraphs_gutenberg_frame_and_headings_are_removed() -> None:
    dropped: Counter[str] = Counter()
    assert plain_paragraphs(GUTENBERG, dropped) == [
        "It was a dark night, and the every-day noises of the street had quite died away.",
        '"Who is there?" he asked.',
    ]
    assert dropped == {"frame": 1, "heading": 4, "front matter": 1, "table of contents": 1}


SMALL_PRINT = "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*"
START, END = "*** START OF THE PROJECT GUTENBERG EBOOK A TALE ***", "*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***"
OLD_END = "End of Project Gutenberg's A Tale"


@pytest.mark.parametrize(
    ("blocks", "frames"),
    [
        ([START, *BODY, END, "A licence.", "A header.", START, *BODY, END, "A licence."], 2),
        (["A header.", SMALL_PRINT, *BODY, OLD_END, "A header.", SMALL_PRINT, *BODY, OLD_END], 2),
        ([START, *BODY, OLD_END, END, "A header.", START, *BODY], 2),
        ([*BODY, OLD_END, "A header.", START, *BODY, END], 2),
        # The small print stands behind the book.
        ([*BODY, *BODY, OLD_END, "A licence.", SMALL_PRINT], 1),
        ([START, *BODY, *BODY, OLD_END, "A licence.", SMALL_PRINT, ""], 1),
        ([*BODY, *BODY, END, "A licence."], 1),
        (["A header.", START, *BODY, *BODY], 1),
    ],
)
def test_plain_paragraphs_every_framed_book_of_a_file_is_kept(blocks: list[str], frames: int) -> None:
    dropped: Counter[str] = Counter()
    assert plain_paragraphs("\n\n".join(blocks), dropped) == [*BODY, *BODY]
    assert dropped == {"frame": frames}


MATTER = {
    "errata": "ERRATA (noted by transcriber)\n\np. 12: for dogs read days\n\np. 40, line 3: delete the comma.",
    "notes": "Transcriber's Notes\n\nThe spelling of the book was kept.\n\nA table was moved to its end.",
    "german notes": "Anmerkungen zur Transkription\n\nDer Text wurde nach der Ausgabe von 1901 erfasst.",
    "french notes": "Au lecteur\n\nCette version conserve l'orthographe du livre; deux fautes sont notes.",
    "index": "INDEX\n\nA\n\nAlder, 12, 40-42\nAsh, 7; felled, 19\n\nB\n\nBarns, see Farms\nBees, swarms of, 101.",
    "american imprint": "Printed in U.S.A.",
    "french imprint": "Imprimerie J. Moulin, Paris.",
    "advertisements": "BY THE SAME AUTHOR\n\nThe Mill. A Tale. Crown 8vo, cloth, 6s.\n\nA Year Away. With maps.",
}


MATTER |= {
    "unnamed notes": "Obvious misprints have been silently corrected; the spelling of names was left.",
    "variant spellings": "Variant spellings (unchanged):\n\nto-day, today\n\nwaggon, wagon",
    "german spelling": "Offensichtliche Druckfehler wurden korrigiert.",
    "index without pages": "INDEX\n\nAlder woods, their keepers and the felling of them, see Forests of it\n\nC.\n\n"
    "Carters, the families of, in the valley and beyond it, see Roads",
    "publisher": "LONDON\nR. MILLER & SONS\n1899",
    "place and year": "Leeds: The Mill House, 1871.",
    "imprint": "IMPRINT\n\nMade in a mill by hand, and given to all.\n\nThere is more to be had at home.",
    "colophon": "Colophon\n\nThe Mill was painted by nobody.\n\nIts letters are those of a friend.",
    "ebook": "This ebook is the work of many hands, and of the mill.",
    "library": "We thank the Library of Leeds for the scans of its book.",
    "volunteers": "Volunteers found and transcribed the text, which is in the public domain.",
    "French volunteers": "Merci aux bénévoles qui ont numérisé ce livre.",
    "advertisement without price": "The Mill. A Tale. With many maps. 12mo. By the same hand.",
}


@pytest.mark.parametrize("matter", MATTER.values(), ids=MATTER)
@pytest.mark.parametrize("end", [True, False])
def test_plain_paragraphs_front_and_back_matter_is_dropped(matter: str, end: bool) -> None:
    """In front, a chapter's heading ends it."""
    blocks = [*BODY, matter] if end else [matter, "CHAPTER I", *BODY]
    dropped: Counter[str] = Counter()
    assert plain_paragraphs("\n\n".join(blocks), dropped) == BODY
    assert set(dropped) <= {"its makers' note", "errata", "index", "imprint", "advertisement", "heading"}


@pytest.mark.parametrize("paragraph", read_cases("books/plain_text.yaml", "story with one word of an edition is kept"))
def test_plain_paragraphs_story_with_one_edition_word_is_kept(paragraph: str) -> None:
    assert plain_paragraphs("\n\n".join([paragraph, *BODY, paragraph]), Counter()) == [paragraph, *BODY, paragraph]


@pytest.mark.parametrize("heading", ["AU LECTEUR", "ERRATA", "CORRECTIONS"])
@pytest.mark.parametrize("start", [0, 60, 118])
def test_plain_paragraphs_chapter_titled_errata_is_kept(heading: str, start: int) -> None:
    text = "\n\n".join([*BODY[:start], heading, *BODY[start:]])
    assert plain_paragraphs(text, Counter()) == BODY


def test_plain_paragraphs_story_after_errata_is_kept() -> None:
    """A chapter of a short book may have that name, and words that errata have too."""
    errata = ["ERRATA", "Page 12: for dogs read days.", "Page 40, line 3: delete the comma."]
    story = ["The scandal was known for a while to those who read the paper.", "On page 12 of it stood his name." * 10]
    assert plain_paragraphs("\n\n".join([*BODY[:9], *errata, *story, *BODY[9:]]), Counter()) == [
        *BODY[:9],
        *story,
        *BODY[9:],
    ]


@pytest.mark.parametrize("line", read_cases("books/plain_text.yaml", "author is dropped only in front"))
def test_plain_paragraphs_author_line_is_dropped_only_at_the_start(line: str) -> None:
    dropped: Counter[str] = Counter()
    assert plain_paragraphs("\n\n".join(["THE MILL", line, *BODY]), dropped) == BODY
    assert dropped == {"heading": 1, "front matter": 1}
    assert plain_paragraphs("\n\n".join([*BODY, line, *BODY]), Counter())[120:-120] in ([line], [])
    assert plain_paragraphs("\n\n".join(["By the river stood a mill.", "By Jove.", *BODY]), Counter())[2:] == BODY


LONG_TITLE = (
    "Donde se cuenta la aventura del molino, con otras cosas dignas de saberse y de contarse, " * 2 + "y su fin"
)


@pytest.mark.parametrize("heading", read_cases("books/plain_text.yaml", "chapter in any language is a heading"))
def test_plain_paragraphs_chapter_in_any_language_is_a_heading(heading: str) -> None:
    headings: list[int] = []
    text = "\n\n".join([*BODY[:60], heading, *BODY[60:]])
    assert plain_paragraphs(text, Counter(), headings) == BODY
    assert headings == [60]


@pytest.mark.parametrize("paragraph", read_cases("books/plain_text.yaml", "sentence with the word of a part is kept"))
def test_plain_paragraphs_sentence_that_begins_like_a_heading_is_kept(paragraph: str) -> None:
    assert plain_paragraphs("\n\n".join([*BODY, paragraph, *BODY]), Counter()) == [*BODY, paragraph, *BODY]


def test_plain_paragraphs_index_continues_after_a_single_letter() -> None:
    index = ["INDEX", "A.", "Alder, 12", "C.", "Carters, 40, and what they carried along the river, 41", "I.", "Ice, 7"]
    assert plain_paragraphs("\n\n".join([*BODY, *index]), Counter()) == BODY
    assert plain_paragraphs("\n\n".join([*index[:-2], "I.", *BODY]), Counter()) == BODY


@pytest.mark.parametrize(("marked", "plain"), read_cases("books/plain_text.yaml", "directions and figures are removed"))
def test_plain_paragraphs_stage_directions_and_figures_are_removed(marked: str, plain: str) -> None:
    assert plain_paragraphs(marked, Counter()) == [plain]


def test_plain_paragraphs_long_table_of_contents_is_dropped() -> None:
    entries = [
        f"{n}. OF THE ROAD\u2014Of the mill\u2014A supper in the\n    barn and what came of it   {9 * n}"
        for n in range(1, 40)
    ]
    text = "\n\n".join(["CONTENTS", *entries, "CHAPTER I", *BODY])
    assert plain_paragraphs(text, Counter()) == BODY


def test_plain_paragraphs_chapter_titled_index_is_kept() -> None:
    middle = ["INDEX", "The index of the year's harvest was what he looked at first, every day."]
    text = "\n\n".join([*BODY, *middle, *BODY])
    assert plain_paragraphs(text, Counter()) == [*BODY, middle[1], *BODY]


@pytest.mark.parametrize(("marked", "plain"), read_cases("books/plain_text.yaml", "transcriber marks are removed"))
def test_plain_paragraphs_transcriber_marks_are_removed(marked: str, plain: str) -> None:
    assert plain_paragraphs(marked, Counter()) == [plain]


@pytest.mark.parametrize(("verse", "kept"), read_cases("books/plain_text.yaml", "verse is kept"))
def test_plain_paragraphs_verse_is_kept(verse: str, kept: str) -> None:
    assert plain_paragraphs("\n\n".join([*BODY, verse, *BODY]), Counter()) == [*BODY, kept, *BODY]


def test_plain_paragraphs_indented_or_long_line_starts_a_paragraph() -> None:
    indented = "  He came in and sat\ndown at the table.\n  She said nothing at\nall to him."
    assert plain_paragraphs(indented, Counter()) == [
        "He came in and sat down at the table.",
        "She said nothing at all to him.",
    ]
    long = "word " * 40 + "end."
    assert plain_paragraphs(f"{long}\n{long}", Counter()) == [long, long]


def test_plain_paragraphs_lines_within_a_sentence_are_joined() -> None:
    text = "He went to the\n dark house and looked at it.\n\nThen he turned\n\nround and left.\n\n"
    text += "The Dark House\n\nIt was empty, and,\n\ncertainly, cold.\n\nYours,\n\nAda."
    dropped: Counter[str] = Counter()
    assert plain_paragraphs(text, dropped) == [
        "He went to the dark house and looked at it.",
        "Then he turned round and left.",
        "It was empty, and, certainly, cold.",
        "Yours,",
        "Ada.",
    ]
    assert dropped == {"fragment": 1}
    wrapped = ["He said to Mrs.", "Dale, who had come", "word " * 30, "in spite of all, that", "it was late."]
    assert plain_paragraphs("\n".join(wrapped), dropped) == [" ".join(" ".join(wrapped).split())]
    long = "word " * 30 + "and so on\nto the end.\nCHAPTER TWENTY-ONE\nA second one."
    assert plain_paragraphs(long, dropped) == ["word " * 30 + "and so on to the end.", "A second one."]


def test_plain_paragraphs_copyright_line_is_dropped_only_at_the_start() -> None:
    text = "\n\n".join(["Copyright 1901 by A. Writer.", *BODY, "He had a copyright in it."])
    assert plain_paragraphs(text, dropped := Counter()) == [*BODY, "He had a copyright in it."]
    assert dropped == {"front matter": 1}


@pytest.mark.parametrize(("text", "lost"), read_cases("books/plain_text.yaml", "listing or headings are no verse"))
def test_plain_paragraphs_contents_and_headings_are_not_verse(text: str, lost: str) -> None:
    assert not any(lost in paragraph for paragraph in plain_paragraphs("\n\n".join([*BODY, text, *BODY]), Counter()))


def test_plain_paragraphs_unclosed_bracket_removes_at_most_one_line() -> None:
    texts = [
        "There hung a [Map of the town on the wall of the mill.",
        "He wrote [enter the house at noon], and she read.",
    ]
    assert plain_paragraphs("\n\n".join([*BODY, *texts, *BODY]), Counter()) == [*BODY, *texts, *BODY]


@pytest.mark.parametrize("mark", ["Illustration: ", "Footnote 3: ", "Sidenote: ", "Transcriber: "])
def test_plain_paragraphs_unclosed_note_removes_no_other_text(mark: str) -> None:
    unclosed = f"[{mark}The mill by the river, as it was before the fire."
    others = ["He wrote that it was [sic] small.", f"[{mark}Another mill.]", f"[{mark}Never closed, and [so on] left."]
    dropped: Counter[str] = Counter()
    paragraphs = plain_paragraphs("\n\n".join([*BODY, unclosed, *BODY, *others, *BODY]), dropped)
    assert [paragraph for paragraph in paragraphs if mark not in paragraph] == [*BODY, *BODY, others[0], *BODY]


@pytest.mark.parametrize(
    ("note", "rest"),
    [
        ("[Footnote 1: One paragraph.\n\nAnother paragraph.]", ""),
        ("[Illustration]", ""),
        ("[Footnote 1: See [Greek: logos] there.]", " there.]"),
        ("[Footnote 1: See [a [b] c] there.]", " c] there.]"),
    ],
)
def test_plain_paragraphs_closed_note_is_removed_up_to_its_first_bracket(note: str, rest: str) -> None:
    text = f"He came to the mill.{note} It was small."
    assert plain_paragraphs(text, Counter()) == [f"He came to the mill.{rest} It was small."]


@pytest.mark.parametrize(
    "piece", ["[footnote ", "[footnote [a]", "[a]", "[footnote ]", "[", "[[a]", "[footnote [[a] ] "]
)
def test_plain_paragraphs_unclosed_notes_take_linear_time(piece: str) -> None:
    def read(count: int) -> None:
        plain_paragraphs(f"[footnote {piece * count}", Counter())

    assert_linear(read, 4_000 // len(piece), 4_000 // len(piece) * TIMES)
