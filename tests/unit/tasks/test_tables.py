"""Table formats: what is kept exactly, and which errors name file, line and value."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import Columns, Layout, TaskSpec, load_spec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.tables import LONG, READERS, SHORT, read_columns
from tests.unit.tasks.conftest import write

HEADER = "sentence\tlabel\n"


def read(task: str, path: Path, row: str | None = None):
    spec = load_spec(task)
    return make_task(spec).read(path, row)


def test_read_tsv_quotes_and_carriage_returns_are_kept(tmp_path: Path):
    path = write(tmp_path / "dev.tsv", HEADER + 'he said " no\t0\n"quoted"\t1\nlone \r return\t1\r\n')
    texts = [example.texts[0] for example in read("sst2", path)]
    assert texts == ['he said " no', '"quoted"', "lone \r return"]


def test_read_cola_first_row_is_an_example(tmp_path: Path):
    path = write(tmp_path / "dev.tsv", "gj04\t1\t\tone row\ngj04\t0\t*\trow one\n")
    assert [(example.texts, example.label) for example in read("cola", path)] == [(("one row",), 1), (("row one",), 0)]
    with pytest.raises(PipelineError, match="no value for a column: 4[\\s\\S]*bad.tsv:1"):
        read("cola", write(tmp_path / "bad.tsv", "gj04\t1\ta\n"))


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        ("sst2", "bad.tsv", HEADER.encode() + b"caf\xe9\t0\n"),
        ("ner", "bad.txt", b"caf\xe9 x x O\n"),
        ("squad1", "bad.json", b"\xff\xfe{}"),
    ],
)
def test_read_missing_or_not_utf8_file_is_rejected(tmp_path: Path, task: str, name: str, content: bytes):
    for _ in range(2):
        with pytest.raises(PipelineError, match=name):
            read(task, tmp_path / name)
        (tmp_path / name).write_bytes(content)


QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


def test_read_qqp_short_rows_are_dropped_and_counted(tmp_path: Path):
    path = write(tmp_path / "train.tsv", QQP + "1\t2\t3\ta ?\tb ?\t1\n4\t5\n6\t7\t8\tc ?\td ?\t0\n")
    counts: Counter[str] = Counter()
    examples = make_task(load_spec("qqp")).read(path, counts=counts)
    assert [example.label for example in examples] == [1, 0]
    assert counts == {SHORT: 1}
    with pytest.raises(PipelineError, match="no rows in the file"):
        read("qqp", write(tmp_path / "all.tsv", QQP + "4\t5\n"))
    path = write(tmp_path / "dev.tsv", "label\tsentence\n0\tone\ttwo\n1\tthree\n")
    assert len(make_task(load_spec("sst2")).read(path, counts=counts)) == 2
    assert counts == {SHORT: 1, LONG: 1}


def test_read_test_file_has_no_labels_and_drops_no_row(tmp_path: Path):
    def test_file(task: str, text: str, row: str | None = None):
        return make_task(load_spec(task)).read(write(tmp_path / "test.tsv", text), row, test=True)

    assert [(e.id, e.texts, e.label) for e in test_file("cola", "index\tsentence\n0\ta b\n")] == [("0", ("a b",), None)]
    header = "index\tsentence1\tsentence2\n"
    assert test_file("mnli", header + "0\tp\th\n", "ax")[0].texts == ("p", "h")
    with pytest.raises(PipelineError, match="no value for a column: question2[\\s\\S]*test.tsv:3"):
        # A short row of a test file is an error, because every row needs a prediction.
        test_file("qqp", "id\tquestion1\tquestion2\n0\ta\tb\n1\ta\n")
    with pytest.raises(PipelineError, match="evaluation set has no test file"):
        make_task(mine("sst2", ".tsv")).read(tmp_path / "test.tsv", test=True)


SWAG = "sent1,sent2,ending0,ending1,ending2,ending3,label\n"


def test_read_swag_quoted_fields_are_unquoted(tmp_path: Path):
    path = write(tmp_path / "val.csv", SWAG + '"a, ""b""\nc",then,w,x,"y, z",q,2\n')
    (example,) = read("swag", path)
    assert example.context == 'a, "b"\nc'
    assert (example.endings[2], example.label) == ("then y, z", 2)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('a,b,c,d,e,f,0\n"a,b,c,d,e,f,0\na,b,c,d,e,f,1\n', "a quotation mark is not closed[\\s\\S]*bad.csv:3"),
        ("a,b,c,d,e,f,4\n", "unknown label: '4'[\\s\\S]*bad.csv:2"),
        ("a,b,c\n", "no value for a column: ending1[\\s\\S]*bad.csv:2"),
    ],
)
def test_read_csv_bad_row_is_rejected_with_line(tmp_path: Path, rows: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read("swag", write(tmp_path / "bad.csv", SWAG + rows))


def mine(name: str, suffix: str) -> TaskSpec:
    """A task of one's own whose tables are in another format: two texts and a class, a number, or two choices."""
    columns = {"texts": ["a", "b"], "label": "y"}
    answers = {"classes": {"labels": ["no", "yes"]}, "number": {"range": [0, 5]}}.get(name, {"labels": ["0", "1"]})
    metric = "pearson" if name == "number" else "accuracy"
    entry = {"name": name, "kind": "classification", "columns": columns, **answers, "train": f"train{suffix}"}
    return TaskSpec.model_validate(
        {**entry, "scores": {name: {"title": name, "file": f"dev{suffix}", "metrics": [metric]}}}
    )


FORMATS = {
    ".tsv": lambda rows: "a\tb\ty\n" + "".join("\t".join(row) + "\n" for row in rows),
    ".csv": lambda rows: "a,b,y\n" + "".join(",".join(f'"{field}"' for field in row) + "\n" for row in rows),
    ".jsonl": lambda rows: "".join(json.dumps(dict(zip("aby", row, strict=False))) + "\n" for row in rows),
}


def read_mine(tmp_path: Path, name: str, suffix: str, content: str | bytes):
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return make_task(mine(name, suffix)).read(path)


def parquet_of(**columns: object) -> bytes:
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("suffix", READERS)
def test_read_every_format_gives_same_examples(tmp_path: Path, suffix: str):
    rows = [("one 'two'", "\u00e9\u2028\u4e2d\U0001f600", "yes"), ("", "b", "no")]
    if suffix == ".parquet":
        content = parquet_of(**dict(zip("aby", zip(*rows, strict=True), strict=True)))
    else:
        content = "\ufeff" + FORMATS[suffix](rows)
    examples = read_mine(tmp_path, "classes", suffix, content)
    assert [(*example.texts, ("no", "yes")[example.label]) for example in examples] == rows


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("classes", ("a", "b", "maybe"), "unknown label: 'maybe'"),
        ("classes", ("a", "b"), "no value for a column: y"),
        ("number", ("a", "b", "nan"), "unknown label: 'nan'"),
        ("number", ("a", "b", "5.01"), "unknown label: '5.01'"),
    ],
)
def test_read_every_format_bad_row_is_rejected_with_line(
    tmp_path: Path, suffix: str, name: str, row: tuple, message: str
):
    good = ("a", "b", "yes" if name == "classes" else "5")
    content = FORMATS[suffix]([good, row, good])
    line = 2 if suffix == ".jsonl" else 3
    with pytest.raises(PipelineError, match=rf"{message}[\s\S]*bad{suffix}:{line}\b"):
        read_mine(tmp_path, name, suffix, content)


@pytest.mark.parametrize("suffix", FORMATS)
def test_read_every_format_bad_file_is_rejected(tmp_path: Path, suffix: str):
    with pytest.raises(PipelineError, match=rf"empty file: .*bad{suffix}"):
        read_mine(tmp_path, "classes", suffix, "")
    with pytest.raises(PipelineError, match=rf"no rows in the file: .*bad{suffix}"):
        read_mine(tmp_path, "classes", suffix, FORMATS[suffix]([]) + "\n\n")
    bad = FORMATS[suffix]([("a", "b", "yes"), ("caf", "b", "no")]).encode().replace(b"caf", b"caf\xe9")
    line = 2 if suffix == ".jsonl" else 3
    with pytest.raises(PipelineError, match=rf"not UTF-8: b'.*caf\\xe9[\s\S]*bad{suffix}:{line}\b"):
        read_mine(tmp_path, "classes", suffix, bad)
    header = FORMATS[suffix]([("a", "b", "yes")]).replace("y", "z", 1)
    missing = "no value for a column: y" if suffix == ".jsonl" else r"a column is missing: y[\s\S]*z"
    with pytest.raises(PipelineError, match=missing):
        read_mine(tmp_path, "classes", suffix, header)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": "x", "b": "y"', "a line is not JSON: Expecting"),
        ('["a", "b", "yes"]', 'not a JSON object: \\["a"'),
        ('{"a": null, "b": "y", "y": "yes"}', "a value is not a text or a number: a = null"),
        ('{"a": "x", "b": "y", "y": true}', "a value is not a text or a number: y = true"),
    ],
)
def test_read_jsonl_bad_line_is_rejected_with_line(tmp_path: Path, line: str, message: str):
    good = '{"a": "x", "b": "y", "y": "yes"}\n'
    with pytest.raises(PipelineError, match=rf"{message}[\s\S]*bad.jsonl:3\b"):
        read_mine(tmp_path, "classes", ".jsonl", good + "\n" + line + "\n" + good)


def test_read_jsonl_numbers_keep_their_spelling(tmp_path: Path):
    content = '{"a": 2012, "b": "x\\ty\\nz", "y": 4.50, "more": [1]}\n{"a": "", "b": "", "y": 1e0}\n'
    examples = read_mine(tmp_path, "number", ".jsonl", content)
    assert [(example.texts, example.label) for example in examples] == [(("2012", "x\ty\nz"), 4.5), (("", ""), 1.0)]


@pytest.mark.parametrize(
    ("labels", "spellings"),
    [
        (pyarrow.array([1, 0]), ["0", "1"]),
        (pyarrow.array([1, 0], pyarrow.uint8()), ["0", "1"]),
        (pyarrow.array([1.0, 0.0]), ["0.0", "1.0"]),
        (pyarrow.array(["yes", "no"], pyarrow.large_string()), ["no", "yes"]),
        (pyarrow.array(["yes", "no"]).dictionary_encode(), ["no", "yes"]),
    ],
)
def test_read_parquet_labels_are_as_spelled_in_the_entry(tmp_path: Path, labels: pyarrow.Array, spellings: list[str]):
    content = parquet_of(a=["x", "y"], b=pyarrow.array([2012, 7]), y=labels, more=[[1], [2]])
    (tmp_path / "a.parquet").write_bytes(content)
    entry = mine("classes", ".parquet").model_dump() | {"labels": spellings}
    examples = make_task(TaskSpec.model_validate(entry)).read(tmp_path / "a.parquet")
    assert [(example.texts, example.label) for example in examples] == [(("x", "2012"), 1), (("y", "7"), 0)]


def test_read_parquet_choices_are_columns_of_texts(tmp_path: Path):
    columns = {
        "sent1": "He sat.",
        "sent2": "He",
        "ending0": "ran",
        "ending1": "ate",
        "ending2": "sat",
        "ending3": "slept",
    }
    content = parquet_of(**{name: [text] for name, text in columns.items()}, label=[2])
    (tmp_path / "val.parquet").write_bytes(content)
    (example,) = read("swag", tmp_path / "val.parquet")
    assert (example.context, example.endings[2], example.label) == ("He sat.", "He sat", 2)


def test_read_parquet_scores_are_numbers(tmp_path: Path):
    content = parquet_of(a=["x", "y"], b=["x", "y"], y=pyarrow.array([3.75, 5], pyarrow.float32()))
    assert [example.label for example in read_mine(tmp_path, "number", ".parquet", content)] == [3.75, 5]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ([["x", "y"]], r'a = \["x", "y"\]'),
        ([{"en": "x"}], r'a = {"en": "x"}'),
        ([b"\xff"], r'a = "b\'\\\\xff\'"'),
        ([True], "a = true"),
        ([None], "a = null"),
    ],
)
def test_read_parquet_column_that_is_no_text_is_rejected_with_row(tmp_path: Path, column: list, value: str):
    content = parquet_of(a=column, b=["x"], y=["yes"])
    with pytest.raises(PipelineError, match=rf"a value is not a text or a number: {value}[\s\S]*bad.parquet:1\b"):
        read_mine(tmp_path, "classes", ".parquet", content)


def test_read_parquet_bad_row_is_rejected_with_its_number(tmp_path: Path):
    texts = ["x", "x", "x"]
    with pytest.raises(PipelineError, match=r"unknown label: '-1'[\s\S]*bad.parquet:3\b"):
        read_mine(tmp_path, "ints", ".parquet", parquet_of(a=texts, b=texts, y=[0, 1, -1]))
    with pytest.raises(PipelineError, match=r"a value is not a text or a number: b = null[\s\S]*bad.parquet:2\b"):
        read_mine(tmp_path, "ints", ".parquet", parquet_of(a=texts, b=["x", None, "x"], y=[0, 1, 1]))


def test_read_parquet_missing_column_is_rejected(tmp_path: Path):
    names = r"a column is missing: y[\s\S]*bad.parquet, columns found: a, b, z\n"
    with pytest.raises(PipelineError, match=names):
        read_mine(tmp_path, "classes", ".parquet", parquet_of(a=["x"], b=["x"], z=["yes"]))
    with pytest.raises(PipelineError, match=r"a column is missing: 4[\s\S]*a.parquet, columns found: 4, 2\n"):
        # The columns of CoLA are numbers. Parquet has only names, even if a name is "4".
        path = tmp_path / "a.parquet"
        path.write_bytes(parquet_of(**{"4": ["x"], "2": ["1"]}))
        read("cola", path)


def test_read_parquet_without_rows_or_file_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match=r"no rows in the file: .*bad.parquet"):
        read_mine(tmp_path, "classes", ".parquet", parquet_of(a=[], b=[], y=[]))
    with pytest.raises(PipelineError, match=r"the file is damaged or not Parquet[\s\S]*bad.parquet, after row 0"):
        read_mine(tmp_path, "classes", ".parquet", FORMATS[".jsonl"]([("a", "b", "yes")]))
    with pytest.raises(PipelineError, match=r"task file not found: .*none.parquet"):
        read("sst2", tmp_path / "none.parquet")


def test_read_unknown_suffix_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match=r"unsupported file format: \.xlsx[\s\S]*\.tsv, \.csv, \.jsonl, \.parquet"):
        read_mine(tmp_path, "classes", ".xlsx", "")


TEXT_AND_LABEL = Layout(Columns(texts=("text",), label="label"), True, ("1",), False)


def test_read_columns_jsonl_without_label_column_is_rejected(tmp_path: Path):
    path = write(tmp_path / "all.jsonl", '{"text": "a", "gold": "1"}\n')
    for layout in (TEXT_AND_LABEL, replace(TEXT_AND_LABEL, drop_short=True)):
        with pytest.raises(PipelineError, match="column.*: label"):
            list(read_columns("mine", path, layout))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "\\ud800", "label": "1"}', "unpaired surrogate"),
        ("a.jsonl", "[" * 20000, "nested too deeply|not JSON"),
        ("a.csv", "text,label\n" + '"' + "a" * 140000 + ",1\n", "a quotation mark is not closed"),
    ],
)
def test_read_columns_unreadable_value_is_rejected(tmp_path: Path, name: str, content: str, message: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(PipelineError, match=message):
        list(read_columns("mine", tmp_path / name, TEXT_AND_LABEL))


def test_read_columns_text_column_can_also_be_the_group(tmp_path: Path):
    columns = Columns(texts=("passage", "question"), label="label", group="passage")
    path = write(tmp_path / "a.tsv", "passage\tquestion\tlabel\nA b.\tC?\t1\n")
    assert [
        fields["passage"] for _, fields in read_columns("mine", path, replace(TEXT_AND_LABEL, columns=columns))
    ] == ["A b."]


@pytest.mark.parametrize("suffix", READERS)
def test_read_every_format_long_text_is_read(tmp_path: Path, suffix: str):
    rows = [("a " * 100_000, "b", "yes")]
    content = parquet_of(a=[rows[0][0]], b=["b"], y=["yes"]) if suffix == ".parquet" else FORMATS[suffix](rows)
    (example,) = read_mine(tmp_path, "classes", suffix, content)
    assert example.texts == rows[0][:2]
