"""Damaged files of others are read, or refused in one error without control codes; nothing is written elsewhere."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pipeline_src.base.mistakes import explain
from pipeline_src.study.data import BooksParams
from pipeline_src.study.task_spec import Columns, Layout, load_spec
from pipeline_src.tasks.conll import read_sentences
from pipeline_src.tasks.questions import read_questions
from pipeline_src.tasks.tables import READERS, read_columns
from pipeline_src.text.books.clean_books import clean_document
from pipeline_src.text.books.readers import ROW_READERS, find_books, read_books
from tests.damage import HOSTILE, damaged, mutated
from tests.unit.text.books.published import epub_files, html_page, write_zip

cases = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = "The old man went to the café and said “no” — £5 for a well-\nknown [1] house.\n\nHe left.\n\n| a |\n" * 9


@contextmanager
def read_or_refused() -> Iterator[Path]:
    """Yield a folder for input and output; fail on a bug's error, and if a file is written around the folder."""
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around, "deep/er/folder")
        folder.mkdir(parents=True)
        try:
            yield folder
        except Exception as error:
            explained = explain(error)
            if explained is None:
                raise
            assert str(explained).replace("\n", "").isprintable()
        assert all(path.is_relative_to(folder) for path in Path(around).rglob("*") if path.is_file())


@cases
@given(st.data(), st.sampled_from(sorted(READERS)), st.booleans())
def test_read_columns_damaged_table_is_read_or_rejected(data: st.DataObject, suffix: str, header: bool) -> None:
    field = st.sampled_from([*HOSTILE, "a b", "0", "1"])
    rows = data.draw(st.lists(st.fixed_dictionaries({"text": field, "label": field}), max_size=5))
    separator = "\t" if suffix == ".tsv" else ","
    lines = ["text" + separator + "label", *(separator.join(row.values()) for row in rows)]
    if suffix == ".jsonl":
        lines = [json.dumps(row) for row in rows]
    content = "\n".join(lines).encode("utf-8", "replace")
    if suffix == ".parquet":
        sink = pyarrow.BufferOutputStream()
        columns = {}
        for name in ("text", "label"):
            values = [row[name].encode("utf-8", "surrogatepass") for row in rows]
            # Arrow does not check that these bytes are UTF-8.
            columns[name] = pyarrow.array(values, pyarrow.binary()).view(pyarrow.string())
        parquet.write_table(pyarrow.table(columns), sink)
        content = sink.getvalue().to_pybytes()
    layout = Layout(Columns(texts=("text",), label="label"), True, ("0", "1"), header)
    with read_or_refused() as folder:
        path = folder / f"a{suffix}"
        path.write_bytes(data.draw(damaged(content)))
        for _, fields in read_columns("mine", path, layout, Counter()):
            "".join(fields.values()).encode()


@cases
@given(st.data(), st.sampled_from([("ner", "EU NNP B-NP B-ORG\n"), ("pos", "1\tA\ta\tDET\t_\t_\t2\tdet\t_\t_\n")]))
def test_read_sentences_damaged_tag_file_is_read_or_rejected(data: st.DataObject, task: tuple[str, str]) -> None:
    name, line = task
    head = data.draw(st.sampled_from(["", "-DOCSTART- -X- O O\n\n", "# newdoc\n"]))
    with read_or_refused() as folder:
        (folder / "a.txt").write_bytes(data.draw(damaged((head + (line * 3 + "\n") * 2).encode())))
        read_sentences(load_spec(name), folder / "a.txt", counts=Counter())


@cases
@given(st.data(), st.sampled_from(["squad1", "squad2"]))
def test_read_questions_damaged_json_is_read_or_rejected(data: st.DataObject, task: str) -> None:
    question = {"id": "1", "question": "Who?", "is_impossible": False, "answers": [{"text": "a", "answer_start": 0}]}
    tree = {"data": [{"paragraphs": [{"context": "a b c", "qas": [question]}]}]}
    text = json.dumps(data.draw(mutated(tree))).encode()
    with read_or_refused() as folder:
        (folder / "a.json").write_bytes(data.draw(st.just(text) | damaged(text)))
        read_questions(load_spec(task), folder / "a.json", counts=Counter())


@pytest.mark.parametrize("suffix", [".txt", ".md", ".html", ".epub", *sorted(set(ROW_READERS) - {".parquet"})])
@cases
@given(st.data(), st.sampled_from(["utf-8", "cp1252", "mac-roman", "utf-16", "cp437"]))
def test_clean_document_damaged_book_is_read_or_rejected(suffix: str, data: st.DataObject, encoding: str) -> None:
    content = TEXT.encode(encoding, "replace")
    with read_or_refused() as folder:
        if suffix in ROW_READERS:
            content = json.dumps(data.draw(mutated({"id": 1, "title": "t", "text": TEXT}))).encode()
        if suffix == ".html":
            content = html_page([("t", [TEXT])]).encode()
        if suffix == ".epub":
            content = write_zip(folder / ".book", epub_files([("t", [TEXT])])).read_bytes()
        if suffix.endswith(".gz"):
            content = gzip.compress(content, mtime=0)
        (folder / f"book{suffix}").write_bytes(data.draw(damaged(content)))
        params = BooksParams(entry="x", encoding=data.draw(st.sampled_from([None, "cp1252", "utf-16"])))
        for piece in read_books("books", find_books(folder), params, Counter()):
            for document in clean_document(piece, params).documents:
                document.text.encode()
