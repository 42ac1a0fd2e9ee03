"""Books: each shape of file to paragraphs, drops counted, bad books named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline_src.corpus import books as stage
from pipeline_src.corpus.documents import read_documents, read_manifest
from pipeline_src.corpus.markdown import markdown_paragraphs
from pipeline_src.corpus.plain_text import is_sentence_list, plain_paragraphs
from pipeline_src.errors import PipelineError
from pipeline_src.params.books import BooksParams

SPEECHES = "\n\n".join(f"**SPEAKER {n}**  \nLine one of speech {n},  \nline two of it." for n in range(12))
PLAY = f"# A Play\n\n## ACT I\n\n### SCENE I. A street.\n\n_Enter ALL\nof them_\n\n{SPEECHES}\n\n_Exeunt_\n"
GUTENBERG = """The Project Gutenberg eBook of A Tale

*** START OF THE PROJECT GUTENBERG EBOOK A TALE ***

Produced by Some Volunteers at home.

A TALE

CONTENTS

CHAPTER I. THE START

It was a dark night, and the every-
day noises of the street had _quite_
died away.

[Illustration: The street at night.]

"Who is there?" he asked.

CHAPTER II

THE END

*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***

Licence text that is no part of the book.
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of books in an empty project root, the working directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data/raw/books"
    folder.mkdir(parents=True)
    return folder


def run(**params) -> dict:
    """Run the stage; the manifest."""
    stage.run(books=BooksParams(source="x", **params))
    return read_manifest(stage.TEXT)


def test_titles_within_a_play_are_no_speech() -> None:
    dropped: Counter[str] = Counter()
    text = f"{SPEECHES}\n\nSCENE II: Another street.\n\n**KING**  \nSing on.\nSONG.\nUnder the tree,\nO!\n\n"
    text += "Ghost\n\nEPILOGUE\n"
    assert markdown_paragraphs(text, dropped)[12:] == ["Sing on.", "Under the tree, O!"]
    assert dropped["heading"] == 4


def test_a_gutenberg_text_loses_frame_headings_and_hard_line_ends() -> None:
    dropped: Counter[str] = Counter()
    assert plain_paragraphs(GUTENBERG, dropped) == [
        "It was a dark night, and the every-day noises of the street had quite died away.",
        '"Who is there?" he asked.',
    ]
    assert dropped == {"frame": 1, "heading": 5, "front matter": 1}


def test_indented_first_lines_and_long_lines_begin_paragraphs() -> None:
    indented = "  He came in and sat\ndown at the table.\n  She said nothing at\nall to him."
    assert plain_paragraphs(indented, Counter()) == [
        "He came in and sat down at the table.",
        "She said nothing at all to him.",
    ]
    long = "word " * 40 + "end."
    assert plain_paragraphs(f"{long}\n{long}", Counter()) == [long, long]


def test_a_play_keeps_its_speeches_alone() -> None:
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
def test_stage_directions_within_speeches_go(markup: str, prose: str) -> None:
    result = markdown_paragraphs(f"{SPEECHES}\n\n**LAST**  \n{markup}", Counter())[12:]
    assert result == ([prose] if prose else [])


def test_markdown_prose_loses_its_marks() -> None:
    text = "---\ntitle: x\n---\nTitle\n=====\n\nA **bold** and *plain* [link](http://a.b) in `it`.\n\n"
    text += "- an item\n\n```\ncode\n```\n"
    assert markdown_paragraphs(text, Counter()) == ["A bold and plain link in it."]


def test_sentences_without_boundaries_become_documents_of_so_many(shelf: Path) -> None:
    lines = [f"this is sentence number {n} ." for n in range(250)]
    (shelf / "all.txt").write_text("\n".join(lines) + "\n")
    assert is_sentence_list("\n".join(lines)) and not is_sentence_list(GUTENBERG)
    assert run(sentences_per_document=100)["documents"] == 3
    documents = list(read_documents(stage.TEXT))
    assert [document.id for document in documents] == [f"books:all-{n:06d}" for n in range(3)]
    assert [len(document.text.split("\n")) for document in documents] == [100, 100, 50]


def test_drops_are_counted_and_ids_are_the_names_of_the_files(shelf: Path) -> None:
    (shelf / "plays").mkdir()
    (shelf / "plays" / "play.md").write_text(PLAY)
    (shelf / "tale.txt").write_bytes(b"\xef\xbb\xbf" + GUTENBERG.replace("\n", "\r\n").encode())
    (shelf / "tale-again.txt").write_text(GUTENBERG)
    (shelf / "short.txt").write_text("Only five words are here.")
    (shelf / "headings.txt").write_text("CHAPTER I\n\nCHAPTER II\n")
    (shelf / "book.epub").write_bytes(b"PK")
    (shelf / "source.json").write_text("{}")
    manifest = run(min_words=10)
    assert manifest["dropped"] == {"duplicate": 1, "empty": 1, "too_short": 1, "unknown_format": 1}
    assert [document.id for document in read_documents(stage.TEXT)] == ["books:play", "books:tale-again"]


def test_a_book_that_is_not_utf8_is_named_and_earlier_output_stays(shelf: Path) -> None:
    (shelf / "a.txt").write_text("A sentence of the first book stands here.")
    run()
    before = (stage.TEXT / "books.jsonl").read_bytes()
    (shelf / "b.txt").write_bytes("Ein Gruß.".encode("latin-1"))
    with pytest.raises(PipelineError, match=r"not UTF-8: .*b\.txt[\s\S]*byte 7 \(0xdf\)[\s\S]*iconv"):
        run()
    assert (stage.TEXT / "books.jsonl").read_bytes() == before
    assert [path.name for path in stage.TEXT.parent.iterdir()] == ["books"]


def test_no_books_no_book_left_and_two_of_one_name_are_clear_errors(shelf: Path) -> None:
    with pytest.raises(PipelineError, match="no books found"):
        run()
    (shelf / "a.txt").write_text("Only five words are here.")
    with pytest.raises(PipelineError, match="no book is left"):
        run(min_words=6)
    assert not stage.TEXT.exists()
    (shelf / "a.md").write_text("Another book of the same name.")
    with pytest.raises(PipelineError, match="two books have the same name"):
        run()
