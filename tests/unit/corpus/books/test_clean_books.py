"""Books: each shape of file to paragraphs, drops counted, bad books named."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import clean_text
from pipeline_src.config.data import BooksParams, TextParams
from pipeline_src.corpus.books import clean_books as stage
from pipeline_src.corpus.books.markdown import markdown_paragraphs
from pipeline_src.corpus.books.plain_text import plain_paragraphs
from pipeline_src.corpus.books.readers import is_sentence_list
from pipeline_src.corpus.documents import read_documents, read_manifest
from pipeline_src.corpus.dropped import read_dropped
from pipeline_src.download.catalogue import SourceFile
from pipeline_src.download.fetch import _own_files

SAMPLE = Path(__file__).parents[5] / "shared/data/layout_samples/bookcorpus_plain_text_1.0.0_dummy_data.zip"
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
    monkeypatch.setenv("PIPELINE_WORKERS", "1")  # in this process; starting workers takes seconds
    folder = tmp_path / "data/raw/books/fetched-files"
    folder.mkdir(parents=True)
    return folder


TEXT = clean_text("books")


def run(kind: type[BooksParams | TextParams] = BooksParams, **params) -> dict:
    """Run the stage; the manifest."""
    stage.run("books", kind(entry="x", **params))
    return read_manifest(TEXT)


CHAPTER = "\n\n".join("The road went on past the mill, and so did they, " * 20 + "until night." for _ in range(6))


@pytest.mark.parametrize(
    ("name", "text", "paragraphs"),
    [
        ("headed.txt", "\n\n".join(f"CHAPTER {n}\n\n{CHAPTER}" for n in range(1, 4)), [6, 6, 6]),
        ("headed.md", "\n\n".join(f"## Part {n}\n\n{CHAPTER}" for n in range(1, 4)), [6, 6, 6]),
        ("short-chapters.txt", "\n\n".join(f"{n}.\n\n{CHAPTER[: len(CHAPTER) // 6]}" for n in range(1, 31)), [5] * 6),
        ("unheaded.txt", "\n\n".join([CHAPTER] * 8), [23, 25]),  # the end is too short for a document
        ("short.txt", CHAPTER, [6]),
    ],
)
def test_a_book_becomes_documents_at_its_headings_or_by_words(
    shelf: Path, name: str, text: str, paragraphs: list[int]
) -> None:
    (shelf / name).write_text(text)
    (shelf / "source.json").write_text('{"name": "mine", "language": "de", "files": []}')
    manifest = run()
    documents = list(read_documents(TEXT))
    assert [document.text.count("\n") + 1 for document in documents] == paragraphs
    stem, count = name.partition(".")[0], len(paragraphs)
    ids = [f"books:{stem}/{n:03d}" for n in range(1, count + 1)] if count > 1 else [f"books:{stem}"]
    assert [document.id for document in documents] == ids
    assert (manifest["books"], manifest["documents"], manifest["language"]) == (1, count, "de")
    assert manifest["sources"][0]["language"] == "de"


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
    assert dropped == {"frame": 1, "heading": 4, "front matter": 1, "table of contents": 1}


PROSE = [f"This is paragraph {n} of a book that is long enough to have a middle." for n in range(120)]
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


@pytest.mark.parametrize("matter", MATTER.values(), ids=MATTER)
@pytest.mark.parametrize("end", [True, False])
def test_back_and_front_matter_goes_with_its_heading(matter: str, end: bool) -> None:
    """In front, a chapter's heading ends it."""
    blocks = [*PROSE, matter] if end else [matter, "CHAPTER I", *PROSE]
    dropped: Counter[str] = Counter()
    assert plain_paragraphs("\n\n".join(blocks), dropped) == PROSE
    assert set(dropped) <= {"its makers' note", "index", "imprint", "advertisement", "heading"}


def test_a_long_table_of_contents_goes() -> None:
    entries = [
        f"{n}. OF THE ROAD\u2014Of the mill\u2014A supper in the\n    barn and what came of it   {9 * n}"
        for n in range(1, 40)
    ]
    text = "\n\n".join(["CONTENTS", *entries, "CHAPTER I", *PROSE])
    assert plain_paragraphs(text, Counter()) == PROSE


def test_a_chapter_called_after_matter_is_no_matter() -> None:
    middle = ["INDEX", "The index of the year's harvest was what he looked at first, every day."]
    text = "\n\n".join([*PROSE, *middle, *PROSE])
    assert plain_paragraphs(text, Counter()) == [*PROSE, middle[1], *PROSE]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("The =black= horse and the ~grey~ one ran.", "The black horse and the grey one ran."),
        ("On the 26^{me} of the month he came.", "On the 26me of the month he came."),
        ("The sum is d{te} to the house.", "The sum is dte to the house."),
        ("Let a = b and c = d, he wrote.", "Let a = b and c = d, he wrote."),
    ],
)
def test_marks_of_a_transcriber_go(marked: str, plain: str) -> None:
    assert plain_paragraphs(marked, Counter()) == [plain]


@pytest.mark.parametrize(
    ("verse", "kept"),
    [
        (
            "The hills are grey, the road is long,\n  The mill has lost its wheel;\nNo bird will sing an evening song,",
            "The hills are grey, the road is long, The mill has lost its wheel; No bird will sing an evening song,",
        ),
        ("The hills are grey, the road is long,\n    And none will hear the miller's song.",
         "The hills are grey, the road is long, And none will hear the miller's song."),
        (
            "The hills are grey, the road is long,\nAnd none will hear the miller's song\n        J. HOLLOWAY",
            "The hills are grey, the road is long, And none will hear the miller's song",
        ),
    ],
    ids=["no mark at its end", "couplet", "poet"],
)  # fmt: skip
def test_verse_is_kept(verse: str, kept: str) -> None:
    assert plain_paragraphs("\n\n".join([*PROSE, verse, *PROSE]), Counter()) == [*PROSE, kept, *PROSE]


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


def test_lines_that_break_a_sentence_are_joined() -> None:
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


def test_the_front_may_hold_what_a_chapter_may_not() -> None:
    body = [f"This is paragraph {n} of a book that is long enough to have a middle." for n in range(200)]
    text = "\n\n".join(["Copyright 1901 by A. Writer.", *body, "He had a copyright in it."])
    assert plain_paragraphs(text, dropped := Counter()) == [*body, "He had a copyright in it."]
    assert dropped == {"front matter": 1}


@pytest.mark.parametrize("between", ["\n", "\n\n", "\r\n"])
def test_sentences_without_boundaries_become_documents_of_so_many(shelf: Path, between: str) -> None:
    lines = [f"this is sentence number {n} ." for n in range(250)]
    (shelf / "all.txt").write_bytes((between.join(lines) + between).encode())
    manifest = run(sentences_per_document=100)
    assert manifest["documents"] == 3
    assert manifest["pseudo_documents"] == {"all": {"documents": 3, "sentences": 250}}
    documents = list(read_documents(TEXT))
    assert [document.id for document in documents] == [f"books:all-{n:06d}" for n in range(3)]
    assert [document.text.split("\n") for document in documents] == [lines[:100], lines[100:200], lines[200:]]


def test_blank_lines_part_the_documents_of_a_list_where_they_are_few(shelf: Path) -> None:
    """google-research/bert's input: a sentence a line, a blank line after each document."""
    lines = [f"This is sentence number {number} of the whole." for number in range(240)]
    documents = [lines[start : start + 12] for start in range(0, 240, 12)]
    (shelf / "all.txt").write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
    run(sentences_per_document=10)
    texts = [document.text.split("\n") for document in read_documents(TEXT)]
    expected = [part for document in documents for part in (document[:10], document[10:])]
    assert texts == expected


def test_what_is_a_list_of_sentences() -> None:
    line = "\u201cIt is a fine day,\u201d he said."
    assert is_sentence_list(f"{line}\n" * 120)
    assert not is_sentence_list(f"{line}\n" * 50)  # too few to tell
    assert not is_sentence_list(f"{line} She said nothing.\n" * 120)  # a paragraph a line is one book
    assert not is_sentence_list("The words of a line that goes on\nto the next, and to the next.\n" * 120)
    assert not is_sentence_list(GUTENBERG * 20)


def test_drops_are_counted_and_ids_are_the_names_of_the_files(shelf: Path) -> None:
    (shelf / "plays").mkdir()
    (shelf / "plays" / "play.md").write_text(PLAY)
    (shelf / "tale.txt").write_bytes(b"\xef\xbb\xbf" + GUTENBERG.replace("\n", "\r\n").encode())
    (shelf / "tale-again.txt").write_text(GUTENBERG)
    (shelf / "short.txt").write_text("Only five words are here.")
    (shelf / "headings.txt").write_text("CHAPTER I\n\nCHAPTER II\n")
    (shelf / "book.epub").write_bytes(b"PK")
    (shelf / "source.json").write_text('{"name": "mine", "licence": "CC0", "files": []}')
    manifest = run(min_words=10)
    assert manifest["dropped"] == {"duplicate": 1, "empty": 1, "too_short": 1, "unknown_format": 1}
    assert manifest["sources"] == [{"name": "mine", "title": "unknown", "licence": "CC0", "citation": "unknown"}]
    assert [document.id for document in read_documents(TEXT)] == ["books:play", "books:tale-again"]
    kept = {row["reason"]: row for row in read_dropped(TEXT)}
    assert kept.keys() == {"duplicate", "empty", "too_short"}
    assert kept["empty"]["text"] == "CHAPTER I\n\nCHAPTER II\n"
    assert (kept["duplicate"]["id"], kept["duplicate"]["value"]) == ("books:tale", "books:tale-again")
    assert kept["duplicate"]["text"].startswith("It was a dark night")
    short = {"reason": "too_short", "id": "books:short", "title": "short", "value": 5, "limit": 10}
    assert kept["too_short"] == short | {"text": "Only five words are here."}


def test_filters_judge_the_documents_that_a_book_becomes(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = "\n\n".join("The road went on # # # # past the mill, and so did they. " * 20 for _ in range(6))
    texts = {
        "book.txt": f"CHAPTER 1\n\n{CHAPTER}\n\nCHAPTER 2\n\n{noisy}\n\nCHAPTER 3\n\n{CHAPTER}",
        "noise.txt": noisy.replace("mill", "church"),
        "copy.txt": noisy.replace("mill", "church"),
    }
    for name, text in texts.items():
        (shelf / name).write_text(text)
    written = []
    for workers in ("1", "2"):
        monkeypatch.setenv("PIPELINE_WORKERS", workers)
        manifest = run(filters={"gopher_quality": {}})
        written.append({path.name: path.read_bytes() for path in TEXT.iterdir()})
    assert written[0] == written[1]
    assert [document.id for document in read_documents(TEXT)] == ["books:book/001", "books:book/003"]
    assert manifest["books"] == 1
    assert manifest["dropped"] == {"duplicate": 1, "gopher_quality.max_hashes_per_word": 2}
    rows = {row["id"]: row for row in read_dropped(TEXT)}
    assert rows.keys() == {"books:book/002", "books:copy", "books:noise"}
    assert rows["books:book/002"]["title"] == "book, part 2"
    assert (rows["books:book/002"]["value"], rows["books:book/002"]["limit"]) == (pytest.approx(4 / 15), 0.1)
    assert rows["books:book/002"]["text"].startswith("The road went on # #")
    assert len(rows["books:book/002"]["text"]) == 2_000
    assert not read_manifest(TEXT)["dropped"].get("too_short")
    assert run()["dropped"] == {"duplicate": 1}


@pytest.mark.parametrize(
    "content", [("thé " * 30).encode("cp437"), b"a book\0", b"\xff" * 99, "ä".encode() * 9 + b"\xe4"]
)
def test_a_book_that_cannot_be_decoded_is_dropped_or_named(shelf: Path, content: bytes) -> None:
    (shelf / "a.txt").write_text("A sentence of the first book stands here.")
    (shelf / "b.txt").write_bytes(content)
    assert run()["dropped"] == {"undecodable": 1}
    (dropped,) = read_dropped(TEXT)
    assert (dropped["reason"], dropped["id"], dropped["text"]) == ("undecodable", "books:b", "")
    assert dropped["value"]  # what the decoder says
    before = (TEXT / "books-00000.jsonl").read_bytes()
    with pytest.raises(PipelineError, match=r"b\.txt[\s\S]*byte"):
        run(undecodable="error")
    assert (TEXT / "books-00000.jsonl").read_bytes() == before
    assert [path.name for path in TEXT.parent.iterdir()] == ["clean-text"]


def test_no_books_no_book_left_and_two_of_one_name_are_clear_errors(shelf: Path) -> None:
    with pytest.raises(PipelineError, match="no books found"):
        run()
    (shelf / "a.txt").write_text("Only five words are here.")
    with pytest.raises(PipelineError, match="no book is left"):
        run(min_words=6)
    assert not TEXT.exists()
    (shelf / "a.md").write_text("Another book of the same name.")
    with pytest.raises(PipelineError, match="two books have the same name"):
        run()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".ndjson", ".parquet"])
def test_one_book_a_row(shelf: Path, suffix: str) -> None:
    rows = [
        {"title": f"Tale {n}", "text": GUTENBERG.replace("asked", f"asked number {n}, but nobody answered"), "price": n}
        for n in range(3)
    ]
    write_rows(shelf / f"some{suffix}", rows)
    write_rows(shelf / f"more{suffix}", [{"book_id": n, "text": f"This is book {n}."} for n in (12, 34)])
    manifest = run()
    documents = {document.id: document for document in read_documents(TEXT)}
    assert list(documents) == [
        "books:more-12", "books:more-34", "books:some-000000", "books:some-000001", "books:some-000002",
    ]  # fmt: skip
    assert documents["books:some-000001"].title == "Tale 1"
    assert documents["books:some-000001"].text.endswith("asked number 1, but nobody answered.")
    assert manifest["dropped_blocks"]["frame"] == 3
    assert manifest["encodings"] == ({} if suffix == ".parquet" else {"utf-8": 2})


def write_rows(path: Path, rows: list[dict]) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
        return
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_one_sentence_a_row_is_no_document_a_row(shelf: Path, suffix: str) -> None:
    write_rows(shelf / f"all{suffix}", [{"id": n, "text": f"this is sentence number {n} ."} for n in range(250)])
    manifest = run(sentences_per_document=100)
    assert manifest["pseudo_documents"] == {"all": {"documents": 3, "sentences": 250}}
    assert [document.id for document in read_documents(TEXT)] == [f"books:all-{n:06d}" for n in range(3)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "A book."}\n{"text": \n', r"not JSON[\s\S]*a\.jsonl:2"),
        ("a.jsonl", b'{"text": "A b\xf6\xf6k."}\n', r"not JSON[\s\S]*a\.jsonl:1"),
        ("a.jsonl", b'["A book."]\n', r"not a JSON object: list[\s\S]*a\.jsonl:1"),
        ("a.jsonl", b'{"title": "A", "content": "A book."}\n', r"no such column: text[\s\S]*has title, content"),
        ("a.jsonl", b'{"text": "A."}\n{"text": null}\n', r"a row without text: text is null[\s\S]*a\.jsonl:2"),
        ("a.jsonl", b'{"text": ["A."]}\n', r"a row without text: text is \[\"A\.\"\]"),
        ("a.jsonl", b'{"id": 1, "text": "A."}\n{"id": 1, "text": "B."}\n', r"two books have the same id: books:a-1"),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"text": "A book."}\n' * 500, mtime=0)[:-10],
            r"damaged gzip file[\s\S]*a\.jsonl\.gz",
        ),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"half a character[\s\S]*a\.jsonl:1"),
        ("a.jsonl", b'{"text": ' + b"[" * 20000, r"nested too deeply|not JSON"),
        ("a.parquet", b"PAR1 no parquet", r"not a Parquet file[\s\S]*a\.parquet"),
    ],
)
def test_a_row_that_is_no_book_is_named(shelf: Path, name: str, content: bytes, message: str) -> None:
    (shelf / name).write_bytes(content)
    with pytest.raises(PipelineError, match=message):
        run()
    assert not TEXT.exists()


def test_a_column_that_parquet_lacks_is_named_and_another_can_be_chosen(shelf: Path) -> None:
    write_rows(shelf / "a.parquet", [{"title": "A", "content": "A book of one sentence."}])
    with pytest.raises(PipelineError, match=r"no such column: text[\s\S]*which has title, content"):
        run()
    assert run(text_column="content")["documents"] == 1


def test_two_columns_of_one_name_are_named(shelf: Path) -> None:
    columns = [pyarrow.array(["A book of one sentence."]), pyarrow.array(["Another."])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["text", "text"]), shelf / "a.parquet")
    with pytest.raises(PipelineError, match=r"(?s)a\.parquet.*rename or leave out one of them"):
        run()


def test_near_copies_are_dropped_and_named(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "SHARD", 20_000)
    words = {name: [f"{name}{n * 7919 % 1009}" for n in range(3000)] for name in "abc"}
    for name in "abc":
        (shelf / f"{name}.txt").write_text(" ".join(words[name]) + ".")
    for share in (1, 10, 60):
        changed = [f"new{n}" if n * 37 % 100 < share else word for n, word in enumerate(words["b"])]
        (shelf / f"z{share}.txt").write_text(" ".join(changed) + ".")
    (shelf / "zz.txt").write_text("\n\n".join(words["c"][n] for n in range(3000)).upper().replace("C1", "c1") + "!")
    manifest = run()
    assert manifest["copies"] == {"books:z1": "books:b"}
    assert manifest["dropped"] == {"empty": 1, "near_duplicate": 1}
    assert [shard["name"] for shard in manifest["shards"]] == [f"books-{n:05d}.jsonl" for n in range(3)]
    assert [document.id for document in read_documents(TEXT)] == [
        f"books:{name}" for name in ("a", "b", "c", "z10", "z60")
    ]
    assert run(near_duplicates=0.2)["copies"] == {"books:z1": "books:b", "books:z10": "books:b"}
    assert run(near_duplicates=None)["copies"] == {}


def test_any_number_of_workers_writes_the_same_bytes(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shelf / "tale.txt").write_text(GUTENBERG)
    (shelf / "play.md").write_text(PLAY)
    (shelf / "list.txt").write_text("".join(f"this is sentence number {n % 300} .\n" for n in range(1000)))
    write_rows(shelf / "rows.jsonl", [{"text": f"This is book {n % 4}."} for n in range(9)])
    words = [f"word{n}" for n in range(300)]
    for number in range(4):
        (shelf / f"near{number}.txt").write_text(" ".join([*words, f"{number}"]) + ".")
    written = []
    for workers in ("1", "3"):
        monkeypatch.setenv("PIPELINE_WORKERS", workers)
        run(sentences_per_document=100)
        written.append({path.name: path.read_bytes() for path in TEXT.iterdir()})
    assert written[0] == written[1]
    assert read_manifest(TEXT)["dropped"] == {"duplicate": 12, "near_duplicate": 3}


@pytest.mark.skipif(not SAMPLE.exists(), reason="shared/data/layout_samples is not here")
def test_bookcorpus_as_distributed(shelf: Path) -> None:
    with zipfile.ZipFile(SAMPLE) as archive:
        for name in ("books_large_p1.txt", "books_large_p2.txt"):
            lines = archive.read(f"dummy_data/{name}").decode().splitlines()
            (shelf / name).write_text("".join(f"{line} .\n" for line in lines * 20))
    manifest = run(sentences_per_document=50)
    assert set(manifest["pseudo_documents"]) == {"books_large_p1", "books_large_p2"}
    assert all("\n" in document.text for document in read_documents(TEXT))


def test_a_folder_that_cannot_be_read_is_an_error(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shelf / "a.txt").write_text("A book that can be read.")
    (shelf / "closed").mkdir()
    listdir = os.listdir

    def refused(path: object) -> list[str]:
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr("os.listdir", refused)
    with pytest.raises(PipelineError, match=r"a folder cannot be read: .*closed[\s\S]*Permission denied"):
        run()
    source = SourceFile(path=".", url=f"file:{shelf}/**/*")
    with pytest.raises(PipelineError, match="a folder cannot be read"):
        _own_files("own-books", source)


SENTENCE = "He saw the old house there.\n"


@pytest.mark.parametrize(
    "content",
    [SENTENCE.encode() * 300 + b"\0\n", SENTENCE.replace("house", "thé").encode("cp437") * 300 + "ä\n".encode()],
    ids=["binary", "two encodings"],
)
def test_a_list_of_sentences_that_is_no_text_is_dropped_as_any_book_is(shelf: Path, content: bytes) -> None:
    (shelf / "a.txt").write_text("A sentence of the first book stands here.")
    (shelf / "b.txt").write_bytes(content)
    assert run()["dropped"] == {"undecodable": 1}
    with pytest.raises(PipelineError, match="b.txt"):
        run(undecodable="error")


def test_other_text_keeps_its_lines_and_its_documents(shelf: Path) -> None:
    """No heading, front matter or hard line end is removed, and a long document is not cut."""
    lines = ["CHAPTER I", "Produced by the authors", *(f"Line {number}  of the\ttext, broken" for number in range(900))]
    (shelf / "long.txt").write_text("\n\n".join(lines))
    rows = [{"text": f"Row {number}.\n\nCHAPTER {number}", "id": number} for number in (1, 2, 1)]
    (shelf / "rows.jsonl").write_text("".join(json.dumps(row | {"id": n}) + "\n" for n, row in enumerate(rows)))
    manifest = run(TextParams, language="und")
    documents = {document.id: document.text for document in read_documents(TEXT)}
    assert list(documents) == ["books:long", "books:rows-0", "books:rows-1"]
    assert documents["books:long"].split("\n") == [" ".join(line.split()) for line in lines]
    assert documents["books:rows-1"] == "Row 2.\nCHAPTER 2"
    assert (manifest["dropped"], manifest["language"]) == ({"duplicate": 1}, "und")


def test_the_name_of_a_source_begins_the_ids_of_its_documents(shelf: Path) -> None:
    other = shelf.parents[1] / "poems/fetched-files"
    shelf.rename(other.parent.mkdir() or other)
    (other / "one.txt").write_text("A poem of nine words that is long enough.")
    stage.run("poems", BooksParams(entry="x"))
    (document,) = read_documents(clean_text("poems"))
    assert document.id == "poems:one" and read_manifest(clean_text("poems"))["language"] == "en"
