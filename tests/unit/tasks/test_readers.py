"""Every table format: what is kept to the letter, and what is refused with file, line and value."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.readers import IOB1, LONG, NO_WORDS, READERS, SHORT, as_iob2, read_columns, read_sentences
from pipeline_src.tasks.spec import Columns, Layout, TaskSpec, load_spec

HEADER = "sentence\tlabel\n"


def read(task: str, path: Path, row: str | None = None):
    spec = load_spec(task)
    return make_task(spec).read(path, row)


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
        ("sst2", HEADER, "no rows in the file"),
        ("sst2", "text\tlabel\na\t0\n", "a column is missing: sentence[\\s\\S]*text, label"),
        ("sst2", HEADER + "a\t0\nb\t2\n", "unknown label: '2'[\\s\\S]*bad.tsv:3"),
        ("sst2", HEADER + "a\t0\nb\n", "no value for a column: label[\\s\\S]*bad.tsv:3"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tnan\n", "unknown label: 'nan'[\\s\\S]*bad.tsv:2"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\t5.1\n", "between 0 and 5"),
        ("cola", "gj04\t1\ta\n", "no value for a column: 4[\\s\\S]*bad.tsv:1"),
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
    with pytest.raises(PipelineError, match=r"not UTF-8: b'caf\\xe9\\t0[\s\S]*latin.tsv:2"):
        read("sst2", path)


QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


def test_broken_rows_of_qqp_are_dropped_and_counted(tmp_path: Path):
    path = write(tmp_path / "train.tsv", QQP + "1\t2\t3\ta ?\tb ?\t1\n4\t5\n6\t7\t8\tc ?\td ?\t0\n")
    counts: Counter[str] = Counter()
    examples = make_task(load_spec("qqp")).read(path, counts=counts)
    assert [example.label for example in examples] == [1, 0]
    assert counts == {SHORT: 1}
    with pytest.raises(PipelineError, match="no rows in the file"):
        read("qqp", write(tmp_path / "all.tsv", QQP + "4\t5\n"))


def test_a_stray_tab_is_counted(tmp_path: Path):
    path = write(tmp_path / "dev.tsv", "label\tsentence\n0\tone\ttwo\n1\tthree\n")
    counts: Counter[str] = Counter()
    assert len(make_task(load_spec("sst2")).read(path, counts=counts)) == 2
    assert counts == {LONG: 1}


def test_a_test_file_has_no_labels_and_loses_no_row(tmp_path: Path):
    def test_file(task: str, text: str, row: str | None = None):
        return make_task(load_spec(task)).read(write(tmp_path / "test.tsv", text), row, test=True)

    assert [(e.id, e.texts, e.label) for e in test_file("cola", "index\tsentence\n0\ta b\n")] == [("0", ("a b",), None)]
    header = "index\tsentence1\tsentence2\n"
    assert test_file("mnli", header + "0\tp\th\n", "ax")[0].texts == ("p", "h")
    with pytest.raises(PipelineError, match="no value for a column: question2[\\s\\S]*test.tsv:3"):
        test_file("qqp", "id\tquestion1\tquestion2\n0\ta\tb\n1\ta\n")  # dropped elsewhere; here each row is awaited
    with pytest.raises(PipelineError, match="no test file is declared"):
        make_task(mine("sst2", ".tsv")).read(tmp_path / "test.tsv", test=True)


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
        ("a,b,c\n", "no value for a column: ending1[\\s\\S]*bad.csv:2"),
    ],
)
def test_bad_csv_names_the_line(tmp_path: Path, rows: str, message: str):
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


def test_every_format_is_tried():
    assert set(FORMATS) == set(READERS)


@pytest.mark.parametrize("suffix", FORMATS)
def test_all_formats_read_the_same(tmp_path: Path, suffix: str):
    rows = [("one 'two'", "\u00e9\u2028\u4e2d\U0001f600", "yes"), ("", "b", "no")]
    examples = read_mine(tmp_path, "classes", suffix, "\ufeff" + FORMATS[suffix](rows))
    assert [(*example.texts, ("no", "yes")[example.label]) for example in examples] == rows


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("classes", ("a", "b", "maybe"), "unknown label: 'maybe'"),
        ("classes", ("a", "b", ""), "unknown label: ''"),
        ("classes", ("a", "b"), "no value for a column: y"),
        ("number", ("a", "b", "nan"), "unknown label: 'nan'"),
        ("number", ("a", "b", "5.01"), "unknown label: '5.01'"),
        ("number", ("a", "b", "-inf"), "unknown label: '-inf'"),
        ("number", ("a", "b", "3,5"), "unknown label: '3,5'"),
    ],
)
def test_a_bad_row_is_named_in_every_format(tmp_path: Path, suffix: str, name: str, row: tuple, message: str):
    good = ("a", "b", "yes" if name == "classes" else "5")
    content = FORMATS[suffix]([good, row, good])
    line = 2 if suffix == ".jsonl" else 3
    with pytest.raises(PipelineError, match=rf"{message}[\s\S]*bad{suffix}:{line}\b"):
        read_mine(tmp_path, name, suffix, content)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_bad_file_is_named_in_every_format(tmp_path: Path, suffix: str):
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
        ("a\tb\tyes", "a line is not JSON"),
        ('["a", "b", "yes"]', 'not a JSON object: \\["a"'),
        ('{"a": null, "b": "y", "y": "yes"}', "a value is no text: a = null"),
        ('{"a": "x", "b": ["y"], "y": "yes"}', 'a value is no text: b = \\["y"\\]'),
        ('{"a": "x", "b": "y", "y": true}', "a value is no text: y = true"),
        ('{"a": "x", "y": "yes"}', "no value for a column: b"),
    ],
)
def test_a_bad_line_of_json_is_named(tmp_path: Path, line: str, message: str):
    good = '{"a": "x", "b": "y", "y": "yes"}\n'
    with pytest.raises(PipelineError, match=rf"{message}[\s\S]*bad.jsonl:3\b"):
        read_mine(tmp_path, "classes", ".jsonl", good + "\n" + line + "\n" + good)


def test_numbers_of_json_are_taken_as_written(tmp_path: Path):
    content = '{"a": 2012, "b": "x\\ty\\nz", "y": 4.50, "more": [1]}\n{"a": "", "b": "", "y": 1e0}\n'
    examples = read_mine(tmp_path, "number", ".jsonl", content)
    assert [(example.texts, example.label) for example in examples] == [(("2012", "x\ty\nz"), 4.5), (("", ""), 1.0)]
    with pytest.raises(PipelineError, match=r"unknown label: 'NaN'[\s\S]*bad.jsonl:1"):
        read_mine(tmp_path, "number", ".jsonl", '{"a": "", "b": "", "y": NaN}\n')


def test_another_suffix_is_refused(tmp_path: Path):
    with pytest.raises(PipelineError, match=r"no reader for this kind of file: \.xlsx[\s\S]*\.tsv, \.csv, \.jsonl"):
        read_mine(tmp_path, "classes", ".xlsx", "")


def test_choices_are_read_from_every_format(tmp_path: Path):
    row = ["she sat", "and", "ate", "ran", "0"]
    names = ["c", "s", "e0", "e1", "y"]
    columns = {"texts": ["c", "s"], "choices": ["e0", "e1"], "label": "y"}
    scores = {"mine": {"title": "Mine", "file": "dev", "metrics": ["accuracy"]}}
    spec = TaskSpec.model_validate({"name": "mine", "kind": "choice", "columns": columns, "scores": scores})
    contents = {
        ".tsv": "\t".join(names) + "\n" + "\t".join(row),
        ".csv": ",".join(names) + "\n" + ",".join(row),
        ".jsonl": json.dumps({**dict(zip(names, row, strict=True)), "y": 0}),
    }
    for suffix, content in contents.items():
        (example,) = make_task(spec).read(write(tmp_path / f"dev{suffix}", content + "\n"))
        assert (example.context, example.endings, example.label) == ("she sat", ("and ate", "and ran"), 0)


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


def test_a_label_of_another_name_is_named_in_lines_of_json(tmp_path: Path):
    path = tmp_path / "all.jsonl"
    path.write_text('{"text": "a", "gold": "1"}\n')
    for drop_short in (True, False):
        layout = Layout(Columns(texts=("text",), label="label"), True, ("0", "1"), drop_short)
        with pytest.raises(PipelineError, match="column.*: label"):
            list(read_columns("mine", path, layout))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", '{"text": "\\ud800", "label": "1"}', "half a character"),
        ("a.jsonl", "[" * 20000, "nested too deeply|not JSON"),
        ("a.jsonl", '{"text": ' + "1" * 5000 + "x}", "not JSON"),
        ("a.csv", "text,label\n" + "a" * 140000 + ",1\n", "a field is too long"),
        ("a.csv", 'text,label\n"a,1\n', "a quote is not closed"),
    ],
)
def test_what_a_reader_cannot_take_is_one_error(tmp_path: Path, name: str, content: str, said: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(PipelineError, match=said):
        list(
            read_columns("mine", tmp_path / name, Layout(Columns(texts=("text",), label="label"), True, ("1",), False))
        )


@given(st.sampled_from([".tsv", ".csv", ".jsonl"]), st.one_of(st.binary(max_size=60), st.text(max_size=40).map(
    lambda text: b"text\tlabel\n" + text.encode("utf-8", "replace"))))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_any_bytes_are_rows_or_one_error(suffix: str, content: bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a{suffix}")
        path.write_bytes(content)
        try:
            rows = list(read_columns("mine", path, Layout(Columns(texts=("text",), label="label"), True, ("1",), True)))
        except PipelineError:
            return
        assert rows and all(set(fields) == {"text", "label"} for _, fields in rows)


NER, POS = load_spec("ner"), load_spec("pos")

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
# # B-NP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER


-DOCSTART- -X- -X- O

. . O O"""

CONLLU = """# global.columns = ID FORM LEMMA UPOS
# newdoc id = first
# sent_id = 1
1-2\tdon't\t_\t_\t_
1\tdo\tdo\tAUX\t_
2\tn't\tnot\tPART\t_
3\tNew York\tNew York\tPROPN\t_

# sent_id = 2
# newpar
1\t#\t#\tSYM\t_
1.1\thas\thave\tVERB\t_

# newdoc
# sent_id = 3
1\tyes\tyes\tINTJ\t_

"""


def write_words(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_marks_part_documents_and_blank_lines_sentences(tmp_path: Path):
    for text in (CONLL, CONLL.replace(" ", "\t"), CONLL.replace("\n", "\r\n"), f"\ufeff{CONLL}\n\n"):
        found = read_sentences(NER, write_words(tmp_path / "train.txt", text))
        assert [(e.id, e.document) for e in found] == [("0", 1), ("1", 1), ("2", 2)]
        assert [e.words for e in found] == [("EU", "#"), ("Peter", "Blackburn"), (".",)]
        assert [e.tags for e in found] == [("B-ORG", "O"), ("B-PER", "I-PER"), ("O",)]


def test_a_word_keeps_every_character_but_blank_and_tab(tmp_path: Path):
    (example,) = read_sentences(NER, write_words(tmp_path / "x.txt", "a\u00a0b x x O\n\u2028 x x O\nc\rd x x O\n"))
    assert example.words == ("a\u00a0b", "\u2028", "c\rd")


def test_conllu_passes_over_what_is_no_word_and_counts_it(tmp_path: Path):
    counts: Counter[str] = Counter()
    found = read_sentences(POS, write_words(tmp_path / "dev.conllu", CONLLU), counts=counts)
    assert [(e.document, e.words) for e in found] == [(1, ("do", "n't", "New York")), (1, ("#",)), (2, ("yes",))]
    assert [e.tags for e in found] == [("AUX", "PART", "PROPN"), ("SYM",), ("INTJ",)]
    assert counts == {
        "comment lines passed over": 7,
        "multiword ranges passed over": 1,
        "empty nodes passed over": 1,
    }


def test_without_marks_each_sentence_is_a_document(tmp_path: Path):
    found = read_sentences(NER, write_words(tmp_path / "x.txt", "a x x O\n\nb x x O\n"))
    assert [example.document for example in found] == [0, 1]


def test_a_sentence_without_words_is_counted(tmp_path: Path):
    counts: Counter[str] = Counter()
    text = "# sent_id = 1\n\n# sent_id = 2\n1\ta\ta\tX\n\n8.1\tb\tb\tX\n"
    (example,) = read_sentences(POS, write_words(tmp_path / "x.conllu", text), counts=counts)
    assert example.words == ("a",)
    assert counts[NO_WORDS] == 2


@pytest.mark.parametrize(
    ("iob1", "iob2"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),
        ("I-PER B-PER I-PER I-ORG", "B-PER B-PER I-PER B-ORG"),
        ("O O", "O O"),
        ("B-PER I-PER B-PER", "B-PER I-PER B-PER"),
        ("", ""),
    ],
)
def test_iob1_becomes_iob2(iob1: str, iob2: str):
    assert as_iob2(iob1.split()) == iob2.split()
    assert as_iob2(iob2.split()) == iob2.split()


def test_a_file_in_iob1_is_read_right(tmp_path: Path):
    counts: Counter[str] = Counter()
    text = "U.N. x x I-ORG\nofficial x x O\nEkeus x x I-PER\n\nRolf x x I-PER\n"
    found = read_sentences(NER, write_words(tmp_path / "x.txt", text), counts=counts)
    assert [example.tags for example in found] == [("B-ORG", "O", "B-PER"), ("B-PER",)]
    assert counts == {IOB1: 3}


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("ner", "", "empty file"),
        ("ner", "\n \n", "no words in the file"),
        ("ner", "-DOCSTART- -X- -X- O\n\n", "no words in the file"),
        ("pos", "# text\n\n", "no words in the file"),
        ("ner", "a x x O\nb x O\n", "too short: 3 columns, at least 4[\\s\\S]*bad:2"),
        ("ner", "a x x O\n\n\tx\tx\tO\n", "a word is empty[\\s\\S]*bad:3"),
        ("pos", "1\ta\ta\tX\n2\t\tb\tX\n", "a word is empty[\\s\\S]*bad:2"),
        ("pos", "1\ta\ta\tX\n2 b b X\n", "too short[\\s\\S]*bad:2"),
        ("ner", "a x x O\nb x x B-GEO\n", "unknown label: 'B-GEO'[\\s\\S]*bad:2"),
        ("ner", "a x x S-PER\n", "unknown label: 'S-PER'"),
        ("pos", "1\ta\ta\t_\n", "unknown label: '_'[\\s\\S]*bad:1"),
    ],
)
def test_bad_files_name_line_and_value(tmp_path: Path, task: str, text: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read_sentences(load_spec(task), write_words(tmp_path / "bad", text))


def test_missing_word_files_and_other_encodings(tmp_path: Path):
    with pytest.raises(PipelineError, match="task file not found"):
        read_sentences(NER, tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 x x O\n")
    with pytest.raises(PipelineError, match="not UTF-8"):
        read_sentences(NER, tmp_path / "latin.txt")


ONE, TWO = make_task(load_spec("squad1")), make_task(load_spec("squad2"))


def entry(**changes: Any) -> dict[str, Any]:
    answers = [{"text": "Paris", "answer_start": 12}]
    return {"id": "q0", "question": "Where?", "answers": answers, "is_impossible": False} | changes


def write_questions(tmp_path: Path, *questions: Any, context: Any = "Ada lives in Paris.") -> Path:
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}))
    return path


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in entry().items() if name != key}


QUESTION_PLACE = r"dev\.json, data\[0\]\.paragraphs\[0\]\.qas\[0\]"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (without("question"), "key 'question' is missing"),
        (without("id"), "key 'id' is missing"),
        (without("answers"), "key 'answers' is missing"),
        (without("is_impossible"), "key 'is_impossible' is missing"),
        (entry(question=7), "7 is not a text"),
        (entry(question=None), "None is not a text"),
        (entry(id=None), "None is not a text or number"),
        (entry(answers=7), "not iterable"),
        (entry(answers=["Paris"]), "indices"),
        (entry(answers=[{"text": "Paris"}]), "key 'answer_start' is missing"),
        (entry(answers=[{"text": None, "answer_start": 1}]), "None is not a text"),
        (entry(answers=[{"text": "Paris", "answer_start": "12"}]), "'12' is not a whole number"),
        (entry(answers=[{"text": "Paris", "answer_start": 1.5}]), "1.5 is not a whole number"),
        (entry(answers=[{"text": "Paris", "answer_start": True}]), "True is not a whole number"),
        (entry(answers=[{"text": "Paris", "answer_start": float("nan")}]), "nan is not a whole number"),
        (entry(is_impossible="false"), "'false' is not true or false"),
        (entry(answers=[]), "question q0 has no answer"),
        (entry(is_impossible=True), "question q0 has answers, but is_impossible"),
        ("Where?", "indices"),
    ],
)
def test_a_broken_question_is_refused_with_its_place(tmp_path: Path, broken: Any, message: str):
    with pytest.raises(PipelineError, match=QUESTION_PLACE) as caught:
        TWO.read(write_questions(tmp_path, broken))
    assert message in str(caught.value)


def test_a_question_without_an_answer_is_refused_in_1_1(tmp_path: Path):
    with pytest.raises(PipelineError, match="question q0 has no answer"):
        ONE.read(write_questions(tmp_path, entry(answers=[])))


def test_two_questions_of_one_id_are_refused(tmp_path: Path):
    with pytest.raises(PipelineError, match=r"a second question has the id 'q0'\n.*qas\[1\]"):
        ONE.read(write_questions(tmp_path, entry(), entry()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a JSON file"),
        ("{", "not a JSON file"),
        ("[]", "not in SQuAD's layout"),
        ("3", "not in SQuAD's layout"),
        ('{"data": 3}', "not in SQuAD's layout"),
        ('{"data": null}', "not in SQuAD's layout"),
        ('{"version": "1.1"}', "key 'data' is missing"),
        ('{"data": [{"title": "x"}]}', "key 'paragraphs' is missing"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "key 'context' is missing"),
        ('{"data": [{"paragraphs": [{"context": ["x"], "qas": []}]}]}', "is not a text"),
        ('{"data": [{"paragraphs": [{"context": "x"}]}]}', "key 'qas' is missing"),
        ('{"data": []}', "no questions in the file"),
        ('{"data": [{"paragraphs": [{"context": "x", "qas": []}]}]}', "no questions in the file"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, content: str, message: str):
    path = tmp_path / "dev.json"
    path.write_text(content)
    with pytest.raises(PipelineError, match=r"dev\.json") as caught:
        ONE.read(path)
    assert message in str(caught.value)


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path):
    path = tmp_path / "dev.json"
    with pytest.raises(PipelineError, match=r"dev\.json"):
        ONE.read(path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(PipelineError, match="not a JSON file"):
        ONE.read(path)


@pytest.mark.parametrize("start", [-1, -8, 3, 10_000])
def test_an_answer_that_is_not_where_the_file_says_is_judged_but_counted(tmp_path: Path, start: int):
    counts: Counter[str] = Counter()
    answers = [{"text": "Paris", "answer_start": start}, {"text": "Paris", "answer_start": 13}]
    (example,) = ONE.read(write_questions(tmp_path, entry(answers=answers)), counts=counts)
    assert counts == {"answers that are not in the context where the file says": 1}
    assert [answer.text for answer in example.answers] == ["Paris", "Paris"]


def test_empty_texts_are_counted(tmp_path: Path):
    counts: Counter[str] = Counter({"before": 1})
    path = write_questions(tmp_path, entry(question=" ", answers=[], is_impossible=True), entry(id=7), context="")
    examples = TWO.read(path, counts=counts)
    assert [example.id for example in examples] == ["q0", "7"]
    assert counts == {
        "before": 1,
        "questions without words": 1,
        "questions about an empty context": 2,
        "answers that are not in the context where the file says": 1,
    }


def test_a_file_of_a_test_needs_no_answers(tmp_path: Path):
    path = write_questions(tmp_path, {"id": "q0", "question": "Where?"}, entry(id="q1"))
    assert [example.answers for example in ONE.read(path, test=True)] == [(), ()]
