from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.errors import PipelineError
from pipeline_src.tasks.handlers import HANDLERS
from pipeline_src.tasks.spec import load_spec

HEADER = "sentence\tlabel\n"


def read(task: str, path: Path, row: str | None = None):
    spec = load_spec(task)
    return HANDLERS[spec.kind].read(spec, path, row)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_quotes_are_text_in_tab_separated_files(tmp_path: Path):
    path = write(tmp_path / "dev.tsv", HEADER + 'he said " no\t0\n"quoted"\t1\nlone \r return\t1\r\n')
    texts = [example.texts[0] for example in read("sst2", path)]
    assert texts == ['he said " no', '"quoted"', "lone \r return"]


def test_byte_order_mark_is_skipped(tmp_path: Path):
    path = write(tmp_path / "train.tsv", "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta b\tc d\n")
    (example,) = read("mrpc", path)
    assert (example.id, example.texts, example.label) == ("0", ("a b", "c d"), 1)


def test_no_header_in_cola(tmp_path: Path):
    path = write(tmp_path / "dev.tsv", "gj04\t1\t\tone row\ngj04\t0\t*\trow one\n")
    assert [(example.texts, example.label) for example in read("cola", path)] == [(("one row",), 1), (("row one",), 0)]


def test_diagnostics_are_read_with_their_columns(tmp_path: Path):
    header = "Lexical Semantics\tDomain\tPremise\tHypothesis\tLabel\n"
    path = write(tmp_path / "diagnostic-full.tsv", header + "\t\tp\th\tneutral\n")
    (example,) = read("mnli", path, "ax")
    assert (example.texts, example.label) == (("p", "h"), 2)
    with pytest.raises(PipelineError, match="a column is missing: sentence1"):
        read("mnli", path, "mnli")


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("sst2", "", "empty file"),
        ("sst2", HEADER, "no rows below the header"),
        ("sst2", "text\tlabel\na\t0\n", "a column is missing: sentence[\\s\\S]*text, label"),
        ("sst2", HEADER + "a\t0\nb\t2\n", "unknown label: '2'[\\s\\S]*bad.tsv:3"),
        ("sst2", HEADER + "a\t0\nb\n", "too short[\\s\\S]*bad.tsv:3"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tnan\n", "unknown label: 'nan'[\\s\\S]*bad.tsv:2"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\t5.1\n", "between 0 and 5"),
        ("cola", "gj04\t1\ta\n", "too short[\\s\\S]*bad.tsv:1"),
        ("swag", "", "empty file"),
    ],
)
def test_bad_tables_name_file_line_and_value(tmp_path: Path, task: str, text: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read(task, write(tmp_path / "bad.tsv", text))


def test_missing_file_and_other_encodings(tmp_path: Path):
    with pytest.raises(PipelineError, match="task file not found"):
        read("sst2", tmp_path / "none.tsv")
    path = tmp_path / "latin.tsv"
    path.write_bytes(HEADER.encode() + b"caf\xe9\t0\n")
    with pytest.raises(PipelineError, match="not UTF-8"):
        read("sst2", path)


def test_broken_rows_of_qqp_are_dropped(tmp_path: Path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    path = write(tmp_path / "train.tsv", header + "1\t2\t3\ta ?\tb ?\t1\n4\t5\n6\t7\t8\tc ?\td ?\t0\n")
    assert [example.label for example in read("qqp", path)] == [1, 0]


SWAG = "sent1,sent2,ending0,ending1,ending2,ending3,label\n"


def test_swag_is_quoted(tmp_path: Path):
    path = write(tmp_path / "val.csv", SWAG + '"a, ""b""\nc",then,w,x,"y, z",q,2\n')
    (example,) = read("swag", path)
    assert example.context == 'a, "b"\nc'
    assert (example.endings[2], example.label) == ("then y, z", 2)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('a,b,c,d,e,f,0\n"a,b,c,d,e,f,0\na,b,c,d,e,f,1\n', "a quote is not closed[\\s\\S]*bad.csv:3"),
        ("a,b,c,d,e,f,4\n", "unknown label: '4'[\\s\\S]*bad.csv:2"),
        ("a,b,c,d,e,f,-1\n", "unknown label"),
        ("a,b,c\n", "too short[\\s\\S]*bad.csv:2"),
    ],
)
def test_bad_csv_names_the_line(tmp_path: Path, rows: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read("swag", write(tmp_path / "bad.csv", SWAG + rows))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [', "not a JSON file"),
        ('{"data": []}', "no questions"),
        ('{"version": "1.1"}', "key 'data' is missing"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "x", "answers": []}]}]}]}', "qas\\[0\\]"),
        ('{"data": [{"paragraphs": [{"context": 3, "qas": []}]}]}', "3 is not a text"),
    ],
)
def test_bad_json_names_the_place(tmp_path: Path, text: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read("squad1", write(tmp_path / "dev.json", text))
