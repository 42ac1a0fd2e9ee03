"""The stage that cleans books and other text, from every format of file."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.paths import clean_text
from pipeline_src.study.data import BooksParams, TextParams
from pipeline_src.text.books import clean_books as stage
from pipeline_src.text.books.plain_text import HEADING
from pipeline_src.text.books.readers import is_sentence_list, read_rows
from pipeline_src.text.documents import read_documents, read_manifest
from pipeline_src.text.words import count_words
from tests.growth import TIMES, assert_linear
from tests.studies import read_dropped
from tests.unit.text.books.published import epub_files, html_page, write_zip
from tests.unit.text.books.samples import GUTENBERG, PLAY


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of fetched books, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    # Starting worker processes takes seconds.
    monkeypatch.setenv("PIPELINE_WORKERS", "1")
    folder = tmp_path / "data/raw/books/fetched-files"
    folder.mkdir(parents=True)
    return folder


TEXT = clean_text("books")


def run(kind: type[BooksParams | TextParams] = BooksParams, **params) -> dict:
    """Run the stage; the manifest."""
    stage.run("books", kind(entry="x", **params))
    return read_manifest(TEXT)


def texts() -> dict[str, str]:
    """Id -> text of the documents that the stage has written."""
    return {document.id: document.text for document in read_documents(TEXT)}


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
def test_clean_books_book_is_split_at_headings_or_by_words(
    books: Path, name: str, text: str, paragraphs: list[int]
) -> None:
    (books / name).write_text(text)
    (books / "source.json").write_text('{"name": "mine", "language": "de", "files": []}')
    manifest = run()
    assert [text.count("\n") + 1 for text in texts().values()] == paragraphs
    stem, count = name.partition(".")[0], len(paragraphs)
    ids = [f"books:{stem}/{n:03d}" for n in range(1, count + 1)] if count > 1 else [f"books:{stem}"]
    assert list(texts()) == ids
    assert (manifest["books"], manifest["documents"], manifest["language"]) == (1, count, "de")
    assert manifest["sources"][0]["language"] == "de"


@pytest.mark.parametrize("between", ["\n", "\n\n", "\r\n"])
def test_clean_books_list_of_sentences_is_split_by_count(books: Path, between: str) -> None:
    lines = [f"this is sentence number {n} ." for n in range(250)]
    (books / "all.txt").write_bytes((between.join(lines) + between).encode())
    manifest = run(sentences_per_document=100)
    assert manifest["documents"] == 3
    parts = [lines[:100], lines[100:200], lines[200:]]
    assert texts() == {f"books:all-{n:06d}": "\n".join(part) for n, part in enumerate(parts)}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_clean_books_list_with_few_blank_lines_is_split_at_them(books: Path, end: str) -> None:
    """google-research/bert's input: a sentence a line, a blank line after each document."""
    lines = [f"This is sentence number {number} of the whole." for number in range(240)]
    documents = [lines[start : start + 12] for start in range(0, 240, 12)]
    text = "\n\n".join("\n".join(document) for document in documents) + "\n"
    (books / "all.txt").write_bytes(text.replace("\n", end).encode())
    run(sentences_per_document=10)
    expected = [part for document in documents for part in (document[:10], document[10:])]
    assert [text.split("\n") for text in texts().values()] == expected


SENTENCES = {
    "en": "Mr. Lee looked at the mill number {}, and the wheel of the mill turned in the river. ",
    "zh": "第{}座水车在河边不停地转动，磨坊的主人每天早晨都去看它。",
    "th": "กังหันน้ำตัวที่{}หมุนอยู่ริมแม่น้ำตลอดทั้งวัน ",
    "words": "mill number {} of the river ",
}


@pytest.mark.parametrize("language", SENTENCES)
@pytest.mark.parametrize("kind", [BooksParams, TextParams])
def test_clean_books_paragraph_as_long_as_a_book_is_cut_at_sentences(
    books: Path, kind: type[BooksParams | TextParams], language: str
) -> None:
    sentences = [SENTENCES[language].format(number) for number in range(4_000)]
    (books / "long.txt").write_text("".join(sentences))
    manifest = run(kind, language="en" if language == "en" else "und")
    documents = list(read_documents(TEXT))
    paragraphs = [paragraph for document in documents for paragraph in document.text.split("\n")]
    assert 2 < len(paragraphs) < 20
    assert len(documents) == (len(paragraphs) if kind is BooksParams else 1)
    assert all(5_000 <= count_words(paragraph) <= 9_000 for paragraph in paragraphs)
    text = " ".join(paragraphs)
    assert "".join(text.split()) == "".join("".join(sentences).split())
    if language in ("en", "zh"):
        assert all(paragraph[-1] in ".。" for paragraph in paragraphs)
    assert manifest["words"] == sum(map(count_words, paragraphs))


def test_clean_books_book_is_split_at_headings_after_a_long_paragraph(books: Path) -> None:
    long = "".join(SENTENCES["en"].format(number) for number in range(1_000))
    (books / "headed.txt").write_text(f"{long}\n\nCHAPTER 2\n\n{CHAPTER}\n\nCHAPTER 3\n\n{CHAPTER}")
    run()
    *_, chapter, last = texts().values()
    assert chapter.startswith("The road") and last == chapter


def test_clean_books_paragraph_of_many_lines_takes_linear_time(books: Path) -> None:
    def clean(lines: int) -> None:
        (books / "wrapped.txt").write_text("the mill by the river and the wheel of it turned on and on\n" * lines)
        assert run()["words"] == lines * 14

    assert_linear(clean, 30_000 // TIMES, 30_000)


def test_clean_books_control_characters_are_removed_from_every_format(books: Path) -> None:
    (books / "a.txt").write_text("The mi\x07ll and the\x1b wheel turned in the r\x7fiver.")
    (books / "b.md").write_text("Another\x01 mill had no wheel and no river.\n\n\x02")
    write_rows(books / "c.jsonl", [{"text": "A \0mill\0.\n\0\n\0The river."}])
    run(TextParams)
    assert texts() == {
        "books:a": "The mill and the wheel turned in the river.",
        "books:b": "Another mill had no wheel and no river.",
        "books:c-000000": "A mill.\nThe river.",
    }


def test_clean_books_min_words_counts_letters_in_chinese(books: Path) -> None:
    text = "水车在河边不停地转动，磨坊的主人每天早晨都去看它。" * 8
    write_rows(books / "a.jsonl", [{"text": text[:length] + "。"} for length in (60, 190, 200)])
    manifest = run(TextParams, min_words=50, near_duplicates=None)
    assert manifest["dropped"] == {"too_short": 1}
    (dropped,) = read_dropped(TEXT)
    assert (dropped["value"], dropped["limit"]) == (29, 50)


def test_clean_books_chinese_near_duplicates_are_dropped(books: Path) -> None:
    sentences = [SENTENCES["zh"].format(number * 7919) for number in range(60)]
    (books / "a.txt").write_text("".join(sentences))
    (books / "b.txt").write_text("".join(sentences[:30] + sentences[31:]).replace("，", ","))
    assert run(TextParams)["copies"] == {"books:b": "books:a"}


def test_is_sentence_list_one_sentence_per_line_is_true() -> None:
    line = "\u201cIt is a fine day,\u201d he said."
    assert is_sentence_list(f"{line}\n" * 120)
    # These are too few lines to tell.
    assert not is_sentence_list(f"{line}\n" * 50)
    # Lines of two sentences are paragraphs of one book.
    assert not is_sentence_list(f"{line} She said nothing.\n" * 120)
    assert not is_sentence_list("The words of a line that goes on\nto the next, and to the next.\n" * 120)
    assert not is_sentence_list(GUTENBERG * 20)


def test_clean_books_drops_are_counted_and_sampled_by_reason(books: Path) -> None:
    (books / "plays").mkdir()
    (books / "plays" / "play.md").write_text(PLAY)
    (books / "tale.txt").write_bytes(b"\xef\xbb\xbf" + GUTENBERG.replace("\n", "\r\n").encode())
    (books / "tale-again.txt").write_text(GUTENBERG)
    (books / "short.txt").write_text("Only five words are here.")
    (books / "headings.txt").write_text("CHAPTER I\n\nCHAPTER II\n")
    (books / "book.pdf").write_bytes(b"%PDF")
    (books / "source.json").write_text('{"name": "mine", "licence": "CC0", "files": []}')
    manifest = run(min_words=10)
    assert manifest["dropped"] == {"duplicate": 1, "empty": 1, "too_short": 1, "unknown_format": 1}
    assert manifest["sources"] == [{"name": "mine", "title": "unknown", "licence": "CC0", "citation": "unknown"}]
    assert list(texts()) == ["books:play", "books:tale-again"]
    dropped = {row["reason"]: row for row in read_dropped(TEXT)}
    assert dropped.keys() == {"duplicate", "empty", "too_short"}
    assert dropped["empty"]["text"] == "CHAPTER I\n\nCHAPTER II\n"
    assert (dropped["duplicate"]["id"], dropped["duplicate"]["value"]) == ("books:tale", "books:tale-again")
    assert dropped["duplicate"]["text"].startswith("It was a dark night")
    short = {"reason": "too_short", "id": "books:short", "title": "short", "value": 5, "limit": 10}
    assert dropped["too_short"] == short | {"text": "Only five words are here."}


CHAPTERS = [(f"The Mill {n}", [f"The mill of {n} stood by river {m} & was old." for m in range(9)]) for n in range(3)]
PARAGRAPHS = [paragraph for _, paragraphs in CHAPTERS for paragraph in paragraphs]


@pytest.mark.parametrize("name", ["a.epub", "a.html", "a.HTM", "a.xhtml", "a.txt", "a.jsonl"])
@pytest.mark.parametrize("kind", [BooksParams, TextParams])
def test_clean_books_published_book_gives_its_paragraphs(books: Path, name: str, kind: type) -> None:
    if name == "a.epub":
        write_zip(books / name, epub_files(CHAPTERS))
    elif name == "a.jsonl":
        write_rows(books / name, [{"id": 1, "text": html_page(CHAPTERS)}])
    else:
        (books / name).write_text(html_page(CHAPTERS))
    manifest = run(kind)
    (document,) = read_documents(TEXT)
    lines = document.text.split("\n")
    if kind is BooksParams:
        assert lines == PARAGRAPHS
        assert manifest["dropped_blocks"]["heading"] == 3
    elif name != "a.jsonl":
        # Headings are text too.
        assert set(PARAGRAPHS) < set(lines)
        assert HEADING not in document.text


def test_clean_books_filters_drop_parts_of_books(books: Path) -> None:
    noisy = "\n\n".join("The road went on # # # # past the mill, and so did they. " * 20 for _ in range(6))
    (books / "book.txt").write_text(f"CHAPTER 1\n\n{CHAPTER}\n\nCHAPTER 2\n\n{noisy}\n\nCHAPTER 3\n\n{CHAPTER}")
    for name in ("noise.txt", "copy.txt"):
        (books / name).write_text(noisy.replace("mill", "church"))
    manifest = run(filters={"gopher_quality": {}})
    assert list(texts()) == ["books:book/001", "books:book/003"]
    assert manifest["books"] == 1
    assert manifest["dropped"] == {"gopher_quality.max_hashes_per_word": 3}
    rows = {row["id"]: row for row in read_dropped(TEXT)}
    assert rows.keys() == {"books:book/002", "books:copy", "books:noise"}
    row = rows["books:book/002"]
    assert (row["title"], row["value"], row["limit"]) == ("book, part 2", pytest.approx(4 / 15), 0.1)
    assert row["text"].startswith("The road went on # #")
    assert len(row["text"]) == 2_000
    assert run()["dropped"] == {"duplicate": 1}


@pytest.mark.parametrize("near_duplicates", [None, 0.8])
def test_clean_books_copy_of_a_refused_text_is_kept(books: Path, near_duplicates: float | None) -> None:
    lines = [f"The road number {number} went on past the mill and so did they." for number in range(60)]
    (books / "a.txt").write_text("\n\n".join(line.rstrip(".") for line in lines))
    (books / "b.txt").write_text("\n\n".join(lines))
    manifest = run(TextParams, filters={"fineweb": {}}, near_duplicates=near_duplicates)
    assert list(texts()) == ["books:b"]
    assert (manifest["dropped"], manifest["copies"]) == ({"fineweb.min_punctuated_lines": 1}, {})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.txt", b"a book\0", "byte"),
        ("b.txt", b"\xff" * 99, "byte"),
        ("b.txt", "ä".encode() * 9 + b"\xe4", "byte"),
        # Lists of sentences, read in blocks.
        ("b.txt", b"He saw the old house there.\n" * 300 + b"\0\n", "byte"),
        ("b.txt", "He saw the old thé there.\n".encode("cp437") * 300 + "ä\n".encode() * 50, "byte"),
        ("b.epub", b"PK\3\4" + b"\0" * 99, "the EPUB is damaged"),
    ],
    ids=["NUL", "no encoding", "cut UTF-8", "list with NUL", "list in two encodings", "EPUB"],
)
def test_clean_books_undecodable_book_is_dropped_or_rejected(
    books: Path, name: str, content: bytes, message: str
) -> None:
    (books / "a.txt").write_text("A sentence of the first book stands here.")
    (books / name).write_bytes(content)
    assert run()["dropped"] == {"undecodable": 1}
    (dropped,) = read_dropped(TEXT)
    assert (dropped["reason"], dropped["id"], dropped["text"]) == ("undecodable", "books:b", "")
    # What the decoder says.
    assert dropped["value"]
    before = {path.name: path.read_bytes() for path in TEXT.iterdir()}
    with pytest.raises(PipelineError) as caught:
        run(undecodable="error")
    assert name in str(caught.value) and message in str(caught.value)
    assert {path.name: path.read_bytes() for path in TEXT.iterdir()} == before
    assert [path.name for path in TEXT.parent.iterdir()] == ["clean-text"]


def test_clean_books_without_books_or_with_repeated_name_is_rejected(books: Path) -> None:
    with pytest.raises(PipelineError, match="no text files found"):
        run()
    (books / "a.txt").write_text("Only five words are here.")
    with pytest.raises(PipelineError, match="cleaning dropped every text"):
        run(min_words=6)
    assert not TEXT.exists()
    (books / "a.md").write_text("Another book of the same name.")
    with pytest.raises(PipelineError, match="two files have the same name"):
        run()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".ndjson", ".parquet"])
def test_clean_books_row_files_give_one_book_per_row(books: Path, suffix: str) -> None:
    rows = [
        {"title": f"Tale {n}", "text": GUTENBERG.replace("asked", f"asked number {n}, but nobody answered"), "price": n}
        for n in range(3)
    ]
    write_rows(books / f"some{suffix}", rows)
    write_rows(books / f"more{suffix}", [{"book_id": n, "text": f"This is book {n}."} for n in (12, 34)])
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
def test_clean_books_row_files_one_sentence_per_row_is_split_by_count(
    books: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    write_rows(books / f"all{suffix}", [{"id": n, "text": f"this is sentence number {n} ."} for n in range(250)])
    run(sentences_per_document=100)
    assert list(texts()) == [f"books:all-{n:06d}" for n in range(3)]
    assert f"all{suffix}: each row is one sentence, so every 100 rows become a document" in caplog.text


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_clean_books_rows_of_kind_text_are_never_joined(books: Path, suffix: str) -> None:
    rows = [{"id": f"r{n}", "text": f"This is review number {n} ."} for n in range(250)]
    rows.append({"id": "long", "text": "\n\n".join(["A paragraph. It has two sentences."] * 9)})
    write_rows(books / f"all{suffix}", rows)
    run(TextParams, sentences_per_document=100, near_duplicates=None)
    assert list(texts()) == [f"books:all-{row['id']}" for row in rows]


def test_clean_books_list_of_sentences_of_kind_text_is_split_by_count(books: Path) -> None:
    (books / "all.txt").write_text("".join(f"This is sentence number {n} .\n" for n in range(250)))
    run(TextParams, sentences_per_document=100)
    assert list(texts()) == [f"books:all-{n:06d}" for n in range(3)]


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_clean_books_files_of_one_name_are_told_apart_by_their_folders(books: Path, suffix: str) -> None:
    for number, name in enumerate(["01", "2019/01", "2020/01", "2020/deep/01", "2020/02"]):
        path = books / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"This is mill number {number}."
        path.write_text(text if suffix == ".txt" else json.dumps({"id": "a", "text": text}))
    run()
    row = "" if suffix == ".txt" else "-a"
    assert texts() == {
        f"books:{name}{row}": f"This is mill number {number}."
        for number, name in enumerate(["01", "2019-01", "2020-01", "2020-deep-01", "02"])
    }


@pytest.mark.parametrize("names", [["2020/01.txt", "2020/01.md", "2019/01.txt"], ["a/b.txt", "b.txt", "a-b.txt"]])
def test_clean_books_files_with_equal_names_in_ids_are_rejected(books: Path, names: list[str]) -> None:
    for name in names:
        (books / name).parent.mkdir(exist_ok=True)
        (books / name).write_text("This is a mill.")
    with pytest.raises(PipelineError, match="two files have the same name"):
        run()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "A book."}\n{"text": \n', r"invalid JSON[\s\S]*a\.jsonl:2"),
        ("a.jsonl", b'{"text": "A b\xf6\xf6k."}\n', r"invalid JSON[\s\S]*a\.jsonl:1"),
        ("a.jsonl", b'["A book."]\n', r"not a JSON object: list[\s\S]*a\.jsonl:1"),
        ("a.jsonl", b'{"title": "A", "content": "A book."}\n', r"the text column is missing: text[\s\S]*a\.jsonl"),
        (
            "a.jsonl",
            b'{"text": "A."}\n{"text": null}\n',
            r"the text column of a row holds no text: text is null[\s\S]*a\.jsonl:2",
        ),
        ("a.jsonl", b'{"text": ["A."]}\n', r"the text column of a row holds no text: text is \[\"A\.\"\]"),
        ("a.jsonl", b'{"id": 1, "text": "A."}\n{"id": 1, "text": "B."}\n', r"two texts have the same id: books:a-1"),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"text": "A."}\n' * 500, mtime=0)[:-10],
            r"gzip file is damaged[\s\S]*a\.jsonl\.gz",
        ),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"unpaired surrogate[\s\S]*a\.jsonl:1"),
        ("a.jsonl", b'{"text": ' + b"[" * 20000, r"nested too deeply|invalid JSON"),
        ("a.parquet", b"PAR1 no parquet", r"the file is damaged or not Parquet[\s\S]*a\.parquet"),
    ],
)
def test_clean_books_damaged_row_is_rejected_with_line(books: Path, name: str, content: bytes, message: str) -> None:
    (books / name).write_bytes(content)
    with pytest.raises(PipelineError, match=message):
        run()
    assert not TEXT.exists()


def test_clean_books_parquet_missing_or_repeated_column_is_rejected(books: Path) -> None:
    write_rows(books / "a.parquet", [{"title": "A", "content": "A book of one sentence."}])
    with pytest.raises(PipelineError, match=r"the text column is missing: text[\s\S]*a\.parquet"):
        run()
    assert run(text_column="content")["documents"] == 1
    columns = [pyarrow.array(["A book of one sentence."]), pyarrow.array(["Another."])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["text", "text"]), books / "a.parquet")
    with pytest.raises(PipelineError, match=r"a\.parquet"):
        run()


def test_read_rows_parquet_needs_memory_for_one_batch(tmp_path: Path) -> None:
    table = pyarrow.table({"text": [random.Random(n).randbytes(2_500).hex() for n in range(8_000)]})
    # The file has one row group of 40 MB.
    parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False, compression="none")
    del table
    before, peak = pyarrow.total_allocated_bytes(), 0
    for row in read_rows(tmp_path / "a.parquet", ".parquet", "text"):
        assert len(row.text) == 5_000
        peak = max(peak, pyarrow.total_allocated_bytes() - before)
    assert peak < 20_000_000


def test_clean_books_near_duplicates_are_dropped(books: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "SHARD_CHARACTERS", 20_000)
    words = {name: [f"{name}{n * 7919 % 1009}" for n in range(3000)] for name in "abc"}
    for name in "abc":
        (books / f"{name}.txt").write_text(" ".join(words[name]) + ".")
    for percent in (1, 10, 60):
        changed = [f"new{n}" if n * 37 % 100 < percent else word for n, word in enumerate(words["b"])]
        (books / f"z{percent}.txt").write_text(" ".join(changed) + ".")
    (books / "zz.txt").write_text("\n\n".join(words["c"][n] for n in range(3000)).upper().replace("C1", "c1") + "!")
    manifest = run()
    assert manifest["copies"] == {"books:z1": "books:b"}
    assert manifest["dropped"] == {"empty": 1, "near_duplicate": 1}
    assert [shard["name"] for shard in manifest["shards"]] == [f"books-{n:05d}.jsonl" for n in range(3)]
    assert list(texts()) == [f"books:{name}" for name in ("a", "b", "c", "z10", "z60")]
    assert run(near_duplicates=0.2)["copies"] == {"books:z1": "books:b", "books:z10": "books:b"}
    assert run(near_duplicates=None)["copies"] == {}


def test_clean_books_same_bytes_for_any_workers(books: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (books / "tale.txt").write_text(GUTENBERG)
    (books / "play.md").write_text(PLAY)
    (books / "list.txt").write_text("".join(f"this is sentence number {n % 300} .\n" for n in range(1000)))
    write_rows(books / "rows.jsonl", [{"text": f"This is book {n % 4}."} for n in range(9)])
    write_zip(books / "mill.epub", epub_files([("The Mill", [f"The mill of {n} stood." for n in range(9)])]))
    (books / "page.html").write_text(html_page([("The River", [f"The river of {n} ran." for n in range(9)])]))
    words = [f"word{n}" for n in range(300)]
    for number in range(4):
        (books / f"near{number}.txt").write_text(" ".join([*words, f"{number}"]) + ".")
    written = []
    for workers in ("1", "3"):
        monkeypatch.setenv("PIPELINE_WORKERS", workers)
        run(sentences_per_document=100)
        written.append({path.name: path.read_bytes() for path in TEXT.iterdir()})
    assert written[0] == written[1]
    assert read_manifest(TEXT)["dropped"] == {"duplicate": 12, "near_duplicate": 3}
    assert run(sentences_per_document=100, near_duplicates=None)["dropped"] == {"duplicate": 12}


def test_clean_books_unreadable_folder_is_rejected(books: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (books / "a.txt").write_text("A book that can be read.")
    (books / "closed").mkdir()
    listdir = os.listdir

    def list_or_refuse(path: object) -> list[str]:
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr("os.listdir", list_or_refuse)
    with pytest.raises(PipelineError, match=r"a folder cannot be read: .*closed[\s\S]*Permission denied"):
        run()


def test_clean_books_source_of_kind_text_keeps_all_lines_and_documents(books: Path) -> None:
    """No heading, front matter or hard line end is removed, and a long document is not cut."""
    lines = ["CHAPTER I", "Produced by the authors", *(f"Line {number}  of the\ttext, broken" for number in range(900))]
    (books / "long.txt").write_text("\n\n".join(lines))
    rows = [{"text": f"Row {number}.\n\nCHAPTER {number}", "id": number} for number in (1, 2, 1)]
    (books / "rows.jsonl").write_text("".join(json.dumps(row | {"id": n}) + "\n" for n, row in enumerate(rows)))
    manifest = run(TextParams, language="und")
    assert list(texts()) == ["books:long", "books:rows-0", "books:rows-1"]
    assert texts()["books:long"].split("\n") == [" ".join(line.split()) for line in lines]
    assert texts()["books:rows-1"] == "Row 2.\nCHAPTER 2"
    assert (manifest["dropped"], manifest["language"]) == ({"duplicate": 1}, "und")


def test_clean_books_ids_begin_with_the_source_name(books: Path) -> None:
    other = books.parents[1] / "poems/fetched-files"
    books.rename(other.parent.mkdir() or other)
    (other / "one.txt").write_text("A poem of nine words that is long enough.")
    stage.run("poems", BooksParams(entry="x"))
    (document,) = read_documents(clean_text("poems"))
    assert document.id == "poems:one" and read_manifest(clean_text("poems"))["language"] == "en"
