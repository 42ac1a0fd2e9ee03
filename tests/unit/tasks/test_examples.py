"""Examples to predict: in the layout of any of the task's files, without labels, and as texts that a user has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.examples import labelled_part, read_unlabelled

MNLI = "index\tsentence1\tsentence2"
SQUAD = {"data": [{"paragraphs": [{"context": "She was born in Paris.", "qas": [{"id": "q", "question": "Where?"}]}]}]}
LABELLED_SQUAD = json.loads(json.dumps(SQUAD))
LABELLED_SQUAD["data"][0]["paragraphs"][0]["qas"][0]["answers"] = [{"text": "Paris", "answer_start": 16}]
RANKED = {
    "kind": "retrieval",
    "columns": {"texts": ["_q", "_p"]},
    "scores": {
        "beir": {
            "title": "BEIR", "file": "qrels/test.tsv", "columns": {"texts": ["q", "p"]}, "corpus": "corpus.tsv",
            "queries": "queries.tsv", "metrics": ["mrr_at_10"],
        }
    },
}  # fmt: skip


def read(task: str, folder: Path, name: str, content: str | bytes) -> list[Any]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_unlabelled(load_spec(task), path)


@pytest.mark.parametrize(
    ("task", "name", "content", "texts"),
    [
        ("sst2", "test.tsv", "index\tsentence\n0\tone\n1\ttwo\n", [("one",), ("two",)]),
        ("sst2", "dev.tsv", "sentence\tlabel\none\t1\n", [("one",)]),
        ("sst2", "dev.csv", 'sentence,x\n"one, two",1\n', [("one, two",)]),
        ("sst2", "a.jsonl", '{"sentence": "one", "label": "no label"}\n', [("one",)]),
        ("sst2", "a.jsonl", '{"text": "one"}\n', [("one",)]),
        ("sst2", "a.txt", "one\n\ntwo\tthree\r\n", [("one",), ("two\tthree",)]),
        ("cola", "test.tsv", "index\tsentence\n0\tone\n", [("one",)]),
        ("cola", "dev.tsv", "gj04\t1\t\tone\n", [("one",)]),
        ("cola", "a.jsonl", '{"sentence": "one"}\n', [("one",)]),
        ("word_swap", "a.jsonl", '{"text": "one"}\n', [("one",)]),
        ("mnli", "test.tsv", f"{MNLI}\n0\tone\ttwo\n", [("one", "two")]),
        ("mnli", "dev.tsv", f"{MNLI}\tgold_label\n0\tone\ttwo\tneutral\n", [("one", "two")]),
        ("mnli", "diagnostic.tsv", "Premise\tHypothesis\tLabel\none\ttwo\tx\n", [("one", "two")]),
        ("mnli", "a.txt", "one\ttwo\nthree\tfour\n", [("one", "two"), ("three", "four")]),
        ("mnli", "a.jsonl", '{"text1": "one", "text2": "two"}\n', [("one", "two")]),
        ("stsb", "a.txt", "one\ttwo\n", [("one", "two")]),
    ],
)
def test_read_unlabelled_accepts_every_layout(tmp_path, task, name, content, texts):
    examples = read(task, tmp_path, name, content)
    assert [example.texts for example in examples] == texts
    assert all(example.label is None for example in examples)


@pytest.mark.parametrize(
    ("task", "columns", "texts"),
    [
        ("sst2", {"sentence": ["one", "two"], "label": [-1, -1]}, [("one",), ("two",)]),
        ("sst2", {"text": ["one"], "more": [[1]]}, [("one",)]),
        ("cola", {"sentence": ["one"]}, [("one",)]),
        ("word_swap", {"text": ["one"]}, [("one",)]),
        ("mnli", {"text1": ["one"], "text2": ["two"]}, [("one", "two")]),
    ],
)
def test_read_unlabelled_parquet_is_accepted(tmp_path, task, columns, texts):
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    examples = read_unlabelled(load_spec(task), tmp_path / "a.parquet")
    assert [(example.texts, example.label) for example in examples] == [(pair, None) for pair in texts]


def test_read_unlabelled_parquet_of_retrieval_keeps_labelled_rows(tmp_path):
    columns = {"question": ["one", "four"], "sentence": ["two", "five"]}
    spec = load_spec("qnli_retrieval")
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert read_unlabelled(spec, tmp_path / "a.parquet")[0].corpus == ("two", "five")
    labels = {"label": ["entailment", "not_entailment", "entailment"]}
    rows = {name: [texts[0], "three", texts[1]] for name, texts in columns.items()}
    parquet.write_table(pyarrow.table(rows | labels), tmp_path / "a.parquet")
    assert read_unlabelled(spec, tmp_path / "a.parquet")[0].corpus == ("two", "five")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("sst2", r"a column is missing: sentence[\s\S]*a.parquet, columns found: t\n"),
        ("squad1", r"unsupported file format: .parquet[\s\S]*squad1 reads .json\n?"),
    ],
)
def test_read_unlabelled_parquet_of_another_layout_is_rejected(tmp_path, task, message):
    parquet.write_table(pyarrow.table({"t": ["one"]}), tmp_path / "a.parquet")
    with pytest.raises(PipelineError, match=message):
        read_unlabelled(load_spec(task), tmp_path / "a.parquet")


def test_read_unlabelled_txt_example_id_is_line_number(tmp_path):
    assert [example.id for example in read("sst2", tmp_path, "a.txt", "one\n\ntwo\n")] == ["0", "2"]


def test_read_unlabelled_choice_file_without_labels_is_accepted(tmp_path):
    names = "sent1,sent2,ending0,ending1,ending2,ending3"
    (example,) = read("swag", tmp_path, "test.csv", f"{names}\nHe sat.,He,ran,sat,ate,slept\n")
    assert example.endings[0] == "He ran" and example.label is None
    assert [example] == read("swag", tmp_path, "val.csv", f"{names},label\nHe sat.,He,ran,sat,ate,slept,9\n")


@pytest.mark.parametrize("content", [SQUAD, LABELLED_SQUAD])
def test_read_unlabelled_questions_without_answers_are_accepted(tmp_path, content):
    for task in ("squad1", "squad2"):
        (question,) = read(task, tmp_path, "a.json", json.dumps(content))
        assert (question.id, question.question, question.answers) == ("q", "Where?", ())


@pytest.mark.parametrize("rows", ["He\nruns\n\nYes\n", "He x x O\nruns x x none\n\nYes x x O\n"])
def test_read_unlabelled_words_without_tags_are_accepted(tmp_path, rows):
    sentences = read("ner", tmp_path, "a.txt", rows)
    assert [sentence.words for sentence in sentences] == [("He", "runs"), ("Yes",)]
    assert not any(sentence.tags for sentence in sentences)


def test_read_retrieval_keeps_only_passages_labelled_as_answers(tmp_path):
    rows = ["one\ttwo\tentailment", "one\tthree\tnot_entailment", "four\tfive\tentailment"]
    labelled = read("qnli_retrieval", tmp_path, "a.tsv", "\n".join(["question\tsentence\tlabel", *rows, ""]))
    assert labelled[0].corpus == ("two", "five") and [query.query for query in labelled] == ["one", "four"]
    without = "\n".join(["question\tsentence", *(row.rpartition("\t")[0] for row in rows), ""])
    assert read("qnli_retrieval", tmp_path, "b.tsv", without)[0].corpus == ("two", "three", "five")


def test_read_unlabelled_retrieval_paragraphs_without_answers_are_accepted(tmp_path):
    second = {"context": "He was not.", "qas": [{"id": "r", "question": "Who?"}]}
    content = {"data": [{"paragraphs": [*SQUAD["data"][0]["paragraphs"], second]}]}
    queries = read("squad_retrieval", tmp_path, "a.json", json.dumps(content))
    assert [query.query for query in queries] == ["Where?", "Who?"] and len(queries[0].corpus) == 2


def test_read_unlabelled_retrieval_ids_are_replaced_by_texts(tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.tsv").write_text("_id\ttext\nd1\tone\nd2\ttwo\n")
    (tmp_path / "queries.tsv").write_text("_id\ttext\nq1\twhere\n")
    (tmp_path / "qrels/test.tsv").write_text("q\tp\nq1\td2\n")
    spec = TaskSpec.model_validate({"name": "mine", **RANKED})
    (query,) = read_unlabelled(spec, tmp_path / "qrels/test.tsv")
    assert (query.query, query.corpus) == ("where", ("one", "two"))


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("sst2", "a.tsv", "", "empty file: .*a.tsv"),
        ("squad1", "a.json", "\n", "empty file: .*a.json"),
        ("ner", "a.txt", " \n", "empty file"),
        ("sst2", "a.txt", b"one\ncaf\xe9\n", r"not UTF-8: [\s\S]*a.txt:2"),
        ("squad1", "a.json", b'{"data":\n"caf\xe9"}', r"not UTF-8: [\s\S]*a.json:2"),
        (
            "sst2",
            "a.docx",
            "one\n",
            r"unsupported file format: .docx[\s\S]*sst2 reads .tsv, .csv, .jsonl, .parquet, .txt",
        ),
        ("sst2", "a", "one\n", "unsupported file format: no suffix"),
        ("swag", "a.txt", "one\n", r"unsupported file format: .txt[\s\S]*swag reads .tsv, .csv, .jsonl"),
        ("squad1", "a.txt", "one\n", r"unsupported file format: .txt[\s\S]*squad1 reads .json"),
        ("squad_retrieval", "a.tsv", "one\n", r"unsupported file format: .tsv[\s\S]*reads .json\b"),
        ("squad1", "a.json", "one\n", r"invalid JSON file: [\s\S]*fix the file"),
        ("squad1", "a.json", "{}", "not in SQuAD's layout: the file lacks data"),
        (
            "sst2",
            "a.tsv",
            "text\tlabel\none\t1\n",
            r"a column is missing: sentence[\s\S]*a.tsv:1, columns found: text, label",
        ),
        ("sst2", "a.jsonl", '{"t": "one"}\n', r"no value for a column: sentence[\s\S]*a.jsonl:1"),
        ("word_swap", "a.jsonl", '{"t": "one"}\n', "no value for a column: text"),
        ("sst2", "a.jsonl", "one\n", "a line is not JSON"),
        ("sst2", "a.tsv", "sentence\n", "no rows in the file"),
        ("cola", "a.tsv", "a\tgenre\tb\tscore\n1\t2\t3\t4\n", "a column is missing: sentence"),
        ("word_swap", "a.tsv", "one\ntwo\n", "no value for a column: 4"),
        ("mnli", "a.txt", "one\ttwo\nthree\n", r"does not have two texts: 'three'[\s\S]*a.txt:2"),
        ("qnli_retrieval", "a.tsv", "a\tb\n1\t2\n", "a column is missing: question"),
        ("ner", "a.txt", "The cat sat.\nIt slept.\n", "not in CoNLL format: rows have 2 to 3 columns"),
        ("pos", "a.conllu", "He\n", "too few columns: 1 columns, at least 2"),
    ],
)
def test_read_unlabelled_invalid_file_is_rejected(tmp_path, task, name, content, message):
    with pytest.raises(PipelineError, match=message):
        read(task, tmp_path, name, content)


def test_labelled_part_smaller_sample_is_subset_of_larger_sample():
    few = labelled_part("sst2", 1, range(90), 10)
    many = labelled_part("sst2", 1, range(90), 60)
    others = labelled_part("sst2", 2, range(90), 10)
    assert set(few) < set(many) and few != others and len(others) == 10 and few == sorted(few)
    assert labelled_part("sst2", "1", range(90), 10) == few  # a seed of the command line is a text
