"""Every table format: what is kept to the letter, and what is refused with file, line and value."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import Columns, Layout, TaskSpec, load_spec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.readers import (
    IOB1,
    LEFT_OUT,
    LONG,
    MOVED,
    NO_WORDS,
    READERS,
    SHORT,
    Answer,
    as_iob2,
    find_answer,
    read_columns,
    read_sentences,
)
from pipeline_src.tasks.task import Task

HEADER = "sentence\tlabel\n"


def read(task: str, path: Path, row: str | None = None):
    spec = load_spec(task)
    return make_task(spec).read(path, row)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_read_tsv_quotes_and_carriage_returns_are_text(tmp_path: Path):
    path = write(tmp_path / "dev.tsv", HEADER + 'he said " no\t0\n"quoted"\t1\nlone \r return\t1\r\n')
    texts = [example.texts[0] for example in read("sst2", path)]
    assert texts == ['he said " no', '"quoted"', "lone \r return"]


def test_read_cola_has_no_header(tmp_path: Path):
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
        test_file("qqp", "id\tquestion1\tquestion2\n0\ta\tb\n1\ta\n")  # dropped elsewhere; here each row is awaited
    with pytest.raises(PipelineError, match="no test file is declared"):
        make_task(mine("sst2", ".tsv")).read(tmp_path / "test.tsv", test=True)


SWAG = "sent1,sent2,ending0,ending1,ending2,ending3,label\n"


def test_read_swag_fields_are_quoted(tmp_path: Path):
    path = write(tmp_path / "val.csv", SWAG + '"a, ""b""\nc",then,w,x,"y, z",q,2\n')
    (example,) = read("swag", path)
    assert example.context == 'a, "b"\nc'
    assert (example.endings[2], example.label) == ("then y, z", 2)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('a,b,c,d,e,f,0\n"a,b,c,d,e,f,0\na,b,c,d,e,f,1\n', "a quote is not closed[\\s\\S]*bad.csv:3"),
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


@pytest.mark.parametrize("suffix", READERS)
def test_read_every_format_gives_same_examples(tmp_path: Path, suffix: str):
    rows = [("one 'two'", "\u00e9\u2028\u4e2d\U0001f600", "yes"), ("", "b", "no")]
    examples = read_mine(tmp_path, "classes", suffix, "\ufeff" + FORMATS[suffix](rows))
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
        ('{"a": null, "b": "y", "y": "yes"}', "a value is no text: a = null"),
        ('{"a": "x", "b": "y", "y": true}', "a value is no text: y = true"),
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


def test_read_unknown_suffix_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match=r"no reader for this kind of file: \.xlsx[\s\S]*\.tsv, \.csv, \.jsonl"):
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
        ("a.jsonl", '{"text": "\\ud800", "label": "1"}', "half a character"),
        ("a.jsonl", "[" * 20000, "nested too deeply|not JSON"),
        ("a.csv", "text,label\n" + "a" * 140000 + ",1\n", "a field is too long"),
    ],
)
def test_read_columns_unreadable_value_is_rejected(tmp_path: Path, name: str, content: str, message: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(PipelineError, match=message):
        list(read_columns("mine", tmp_path / name, TEXT_AND_LABEL))


def test_read_columns_group_may_be_one_of_the_texts(tmp_path: Path):
    columns = Columns(texts=("passage", "question"), label="label", group="passage")
    path = write(tmp_path / "a.tsv", "passage\tquestion\tlabel\nA b.\tC?\t1\n")
    assert [
        fields["passage"] for _, fields in read_columns("mine", path, replace(TEXT_AND_LABEL, columns=columns))
    ] == ["A b."]


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


def test_read_sentences_docstart_separates_documents_and_blank_line_sentences(tmp_path: Path):
    for text in (CONLL, CONLL.replace(" ", "\t"), CONLL.replace("\n", "\r\n"), f"\ufeff{CONLL}\n\n"):
        result = read_sentences(NER, write(tmp_path / "train.txt", text))
        assert [(e.id, e.document) for e in result] == [("0", 1), ("1", 1), ("2", 2)]
        assert [e.words for e in result] == [("EU", "#"), ("Peter", "Blackburn"), (".",)]
        assert [e.tags for e in result] == [("B-ORG", "O"), ("B-PER", "I-PER"), ("O",)]


def test_read_sentences_word_keeps_unicode_spaces(tmp_path: Path):
    first, second = read_sentences(NER, write(tmp_path / "x.txt", "a\u00a0b x x O\n\u2028 x x O\n\nc\rd x x O\n"))
    assert (*first.words, *second.words) == ("a\u00a0b", "\u2028", "c\rd")
    assert (first.document, second.document) == (0, 1)  # without marks each sentence is a document


def test_read_sentences_conllu_counts_skipped_lines(tmp_path: Path):
    counts: Counter[str] = Counter()
    result = read_sentences(POS, write(tmp_path / "dev.conllu", CONLLU), counts=counts)
    assert [(e.document, e.words) for e in result] == [(1, ("do", "n't", "New York")), (1, ("#",)), (2, ("yes",))]
    assert [e.tags for e in result] == [("AUX", "PART", "PROPN"), ("SYM",), ("INTJ",)]
    assert counts == {
        "comment lines passed over": 7,
        "multiword ranges passed over": 1,
        "empty nodes passed over": 1,
    }


def test_read_sentences_sentence_without_words_is_counted(tmp_path: Path):
    counts: Counter[str] = Counter()
    text = "# sent_id = 1\n\n# sent_id = 2\n1\ta\ta\tX\n\n8.1\tb\tb\tX\n"
    (example,) = read_sentences(POS, write(tmp_path / "x.conllu", text), counts=counts)
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
def test_as_iob2_converts_iob1(iob1: str, iob2: str):
    assert as_iob2(iob1.split()) == iob2.split()
    assert as_iob2(iob2.split()) == iob2.split()


def test_read_sentences_iob1_file_is_converted_and_counted(tmp_path: Path):
    counts: Counter[str] = Counter()
    text = "U.N. x x I-ORG\nofficial x x O\nEkeus x x I-PER\n\nRolf x x I-PER\n"
    result = read_sentences(NER, write(tmp_path / "x.txt", text), counts=counts)
    assert [example.tags for example in result] == [("B-ORG", "O", "B-PER"), ("B-PER",)]
    assert counts == {IOB1: 3}


def test_read_sentences_evaluation_set_has_its_own_columns(tmp_path: Path):
    own = NER.scores["ner"].model_copy(update={"columns": Columns(texts=("1",), label="2")})
    spec = NER.model_copy(update={"scores": {**NER.scores, "ner": own}})
    path = write(tmp_path / "x.txt", "Rolf B-PER x O\n")
    tags = [read_sentences(spec, path, eval_set)[0].tags for eval_set in ("ner", "ner_test", None)]
    assert tags == [("B-PER",), ("O",), ("O",)]


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("ner", "", "empty file"),
        ("ner", "-DOCSTART- -X- -X- O\n\n", "no words in the file"),
        ("ner", "a x x O\nb x O\n", "too short: 3 columns, at least 4[\\s\\S]*bad:2"),
        ("ner", "a x x O\n\n\tx\tx\tO\n", "a word is empty[\\s\\S]*bad:3"),
        ("pos", "1\ta\ta\tX\n2 b b X\n", "too short[\\s\\S]*bad:2"),
        ("ner", "a x x O\nb x x B-GEO\n", "unknown label: 'B-GEO'[\\s\\S]*bad:2"),
    ],
)
def test_read_sentences_bad_file_is_rejected_with_line(tmp_path: Path, task: str, text: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read_sentences(load_spec(task), write(tmp_path / "bad", text))


ONE, TWO = make_task(load_spec("squad1")), make_task(load_spec("squad2"))


def entry(**changes: Any) -> dict[str, Any]:
    answers = [{"text": "Paris", "answer_start": 12}]
    return {"id": "q0", "question": "Where?", "answers": answers, "is_impossible": False} | changes


def write_questions(tmp_path: Path, *questions: Any, context: Any = "Ada lives in Paris.") -> Path:
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}))
    return path


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"id": "q0", "question": "Where?", "answers": []}, "qas[0] lacks is_impossible"),
        (entry(question=7), "qas[0].question is 7, not a text"),
        (entry(id=None), "the id None is not a text or number"),
        (entry(answers=[{"text": "Paris"}]), "answers[0] lacks answer_start"),
        (entry(answers=[{"text": "Paris", "answer_start": 1.5}]), "not a whole number"),
        (entry(answers=[{"text": "Paris", "answer_start": True}]), "not a whole number"),
        (entry(is_impossible="false"), "qas[0].is_impossible is 'false'"),
        (entry(answers=[]), "question q0 has no answer"),
        (entry(is_impossible=True), "question q0 has answers, but is_impossible"),
        (entry(question="\ud800"), "half a character"),
        (entry(id="\ud800"), "half a character"),
        ("Where?", "qas[0] is 'Where?', not an object"),
    ],
)
def test_read_squad_bad_question_is_rejected_with_position(tmp_path: Path, broken: Any, message: str):
    with pytest.raises(PipelineError, match=re.escape(message)) as error:
        TWO.read(write_questions(tmp_path, broken))
    assert "data[0].paragraphs[0].qas[0]" in str(error.value)


def test_read_squad_duplicate_id_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match=r"a second question has the id 'q0'\n.*qas\[1\]"):
        ONE.read(write_questions(tmp_path, entry(), entry()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a JSON file"),
        ('{"version": "1.1"}', "lacks data"),
        ('{"data": []}', "no questions in the file"),
    ],
)
def test_read_squad_bad_file_is_rejected(tmp_path: Path, content: str, message: str):
    with pytest.raises(PipelineError, match=message):
        ONE.read(write(tmp_path / "dev.json", content))


@pytest.mark.parametrize("start", [-1, 3, 10_000])
def test_read_squad_misplaced_answer_is_counted(tmp_path: Path, start: int):
    counts: Counter[str] = Counter()
    answers = [{"text": "Paris", "answer_start": start}, {"text": "Paris", "answer_start": 13}]
    (example,) = ONE.read(write_questions(tmp_path, entry(answers=answers)), "squad1", counts=counts)
    assert counts == {"answers that are not in the context where the file says": 1}
    assert [answer.text for answer in example.answers] == ["Paris", "Paris"]


def test_read_squad_empty_texts_are_counted(tmp_path: Path):
    counts: Counter[str] = Counter({"before": 1})
    path = write_questions(tmp_path, entry(question=" ", answers=[], is_impossible=True), entry(id=7), context="")
    examples = TWO.read(path, "squad2", counts=counts)
    assert [example.id for example in examples] == ["q0", "7"]
    assert counts == {
        "before": 1,
        "questions without words": 1,
        "questions about an empty context": 2,
        "answers that are not in the context where the file says": 1,
    }


EMOJI = "\U0001f642\U0001f642 Ada lives in Paris, not in London, not in London."


def in_units(context: str, text: str) -> int:
    """Where a text begins, counted in units of UTF-16."""
    return len(context[: context.index(text)].encode("utf-16-le")) // 2


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        ("Paris", EMOJI.index("Paris"), EMOJI.index("Paris")),
        ("Paris", in_units(EMOJI, "Paris"), EMOJI.index("Paris")),
        ("Paris", EMOJI.index("Paris") + 1, EMOJI.index("Paris")),
        ("Paris", EMOJI.index("Paris") - 3, EMOJI.index("Paris")),
        ("Paris", EMOJI.index("Paris") - 4, None),
        ("\U0001f642 Ada", 2, 1),
        ("\U0001f642 Ada", 3, 1),
        ("Ada", -1, 3),
        ("in", EMOJI.index("in London") + 1, EMOJI.index("in London")),
        ("London", EMOJI.rindex("London") + 1, EMOJI.rindex("London")),
        ("Berlin", EMOJI.index("Paris"), None),
        ("", 3, None),
        (" ", 2, None),
        ("Ada", 10**9, None),
    ],
)
def test_find_answer_by_characters_utf16_units_or_near(text: str, start: int, found: int | None):
    assert find_answer(Answer(text, start), EMOJI) == (None if found is None else Answer(text, found))


@pytest.mark.parametrize("task", [ONE, TWO])
def test_read_squad_training_question_without_its_answer_is_left_out(tmp_path: Path, task: Task, caplog):
    starts = {"right": 15, "utf-16": 16, "off by one": 14, "nowhere": 40}
    questions = [entry(id=name, answers=[{"text": "Paris", "answer_start": start}]) for name, start in starts.items()]
    path = write_questions(tmp_path, *questions, context="\U0001f642 Ada lives in Paris.")
    counts: Counter[str] = Counter()
    examples = task.read(path, counts=counts)
    assert [(example.id, example.answers[0].start) for example in examples] == [
        ("right", 15),
        ("utf-16", 15),
        ("off by one", 15),
    ]
    assert counts[LEFT_OUT] == 1 and counts[MOVED] == 2
    assert f"1 {LEFT_OUT}" in caplog.text and f"2 {MOVED}" in caplog.text
    evaluated = task.read(path, task.spec.name)
    assert [example.answers[0].start for example in evaluated] == list(starts.values())


def test_read_squad_training_file_without_any_answer_in_place_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match="no answer is where the file says"):
        ONE.read(write_questions(tmp_path, entry(answers=[{"text": "London", "answer_start": 0}])))


def test_read_squad_test_file_needs_no_answers(tmp_path: Path):
    path = write_questions(tmp_path, {"id": "q0", "question": "Where?"}, entry(id="q1"))
    assert [example.answers for example in ONE.read(path, test=True)] == [(), ()]
