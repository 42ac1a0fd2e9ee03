"""Queries and passages, from tables of pairs, SQuAD's JSON and BEIR's layout."""

import json
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.examples import read_examples
from pipeline_src.tasks.queries import Query

METRICS = ["ndcg_at_10", "recall_at_100", "mrr_at_10"]


def make_spec(score: dict | None = None, **keys) -> TaskSpec:
    score = {"title": "Mine", "file": "dev.tsv", "metrics": METRICS, **(score or {})}
    columns = {"texts": ["q", "p"]}
    return TaskSpec.model_validate(
        {"name": "mine", "kind": "retrieval", "columns": columns, "scores": {"mine": score}, **keys}
    )


def write(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_read_queries_rows_with_equal_query_are_merged(tmp_path: Path):
    spec = make_spec(columns={"texts": ["q", "p"], "negatives": ["n"], "group": "g"})
    rows = ("q\tp\tn\tg", "w1\tw10 w11\tw13\t", "w2 w3\tw12\tw13\tg", "w2 w3\tw10 w11\tw12\tg")
    queries = read_examples(spec, write(tmp_path / "dev.tsv", *rows), "mine")
    assert queries[1] == Query("1", "w2 w3", ("w10 w11", "w13", "w12"), ((2, 1), (0, 2)), "g")
    assert queries[0].group is None and queries[0].relevant == {0} and queries[1].relevant == {0, 2}
    assert queries[0].corpus is queries[1].corpus


def test_read_queries_rows_with_another_label_are_dropped(tmp_path: Path):
    rows = ("index\tquestion\tsentence\tlabel", "0\tq\ta\tentailment", "1\tr\tb\tnot_entailment", "2\tr\tc\tentailment")
    queries = read_examples(load_spec("qnli_retrieval"), write(tmp_path / "dev.tsv", *rows), "qnli_retrieval")
    assert [(query.query, query.corpus) for query in queries] == [("q", ("a", "c")), ("r", ("a", "c"))]


def test_read_queries_squad_paragraphs_become_the_corpus(tmp_path: Path):
    def question(number: int, text: str, answers: list[str]) -> dict:
        answers = [{"text": answer, "answer_start": 0} for answer in answers]
        return {"id": str(number), "question": text, "answers": answers, "is_impossible": not answers}

    paragraphs = [
        {"context": "a b", "qas": [question(0, "q", ["a"]), question(1, "r", ["a"])]},
        {"context": "c d", "qas": [question(2, "q", ["c"]), question(3, "s", [])]},
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    spec = make_spec({"file": "dev.json"}, train="train.json", columns=None, unanswerable=True)
    counts = Counter()
    queries = read_examples(spec, tmp_path / "dev.json", "mine", counts=counts)
    assert [(query.query, query.pairs, query.group) for query in queries] == [
        ("q", ((0,), (1,)), "a b"),
        ("r", ((0,),), "a b"),
    ]
    assert queries[0].corpus == ("a b", "c d") and not +counts


BEIR = {
    "file": "qrels/test.tsv",
    "corpus": "corpus.jsonl",
    "queries": "queries.jsonl",
    "columns": {"texts": ["query-id", "corpus-id"], "label": "score"},
    "labels": ["1"],
}
QRELS = ("query-id\tcorpus-id\tscore", "q2\td3\t1", "q1\td1\t0", "q1\td2\t1")


def write_beir(folder: Path, *qrels: str) -> Path:
    """BEIR's layout, with a repeated and an empty passage, and a query that no row has."""
    texts = {"corpus": {"d1": "a", "d2": "b", "d3": "a", "d4": ""}, "queries": {"q1": "x", "q2": "x", "q3": "y"}}
    for name, by_id in texts.items():
        write(folder / f"{name}.jsonl", *(json.dumps({"_id": key, "text": text}) for key, text in by_id.items()))
    (folder / "qrels").mkdir()
    return write(folder / "qrels/test.tsv", *qrels)


def test_read_queries_beir_corpus_includes_unused_passages(tmp_path: Path):
    queries = read_examples(make_spec(BEIR), write_beir(tmp_path, *QRELS), "mine")
    corpus = ("a", "b", "a", "")
    assert queries == [Query("0", "x", corpus, ((2,),)), Query("1", "x", corpus, ((1,),))]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("w1\t", "w2\tp"), r"a query's passage is empty: ''.*dev.tsv:2"),
        (("w1\tp", " \tp2"), r"a pair has an empty text: ' '.*dev.tsv:3"),
        (("w1\tp", "w2\tp"), "too few passages or queries: 1 passages of 2 queries"),
        (("w1",), r"a row has no value for a column: p.*dev.tsv:2"),
    ],
    ids=["no passage", "no query", "one passage", "short row"],
)
def test_read_queries_bad_pairs_are_rejected(tmp_path: Path, rows, message: str):
    with pytest.raises(PipelineError, match=f"(?s){message}"):
        read_examples(make_spec(), write(tmp_path / "dev.tsv", "q\tp", *rows), "mine")


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        ("qrels/test.tsv", "q1\td9\t1", "unknown passage id: 'd9'"),
        ("qrels/test.tsv", "q9\td1\t1", "unknown query id: 'q9'"),
        ("qrels/test.tsv", "q1\td4\t1", "a query's passage is empty: 'd4'"),
        ("corpus.jsonl", '{"_id": "d1", "text": "z"}', r"duplicate _id: 'd1'\n.*corpus\.jsonl:5"),
        ("queries.jsonl", '{"_id": "q1", "text": "z"}', r"duplicate _id: 'q1'\n.*queries\.jsonl:4"),
        ("corpus.jsonl", '{"_id": "new"}', r"a row has no value for a column: text\n.*corpus\.jsonl:5"),
    ],
)
def test_read_queries_beir_bad_row_is_rejected(tmp_path: Path, file: str, row: str, message: str):
    path = write_beir(tmp_path, *QRELS)
    with open(tmp_path / file, "a") as opened:
        opened.write(f"{row}\n")
    with pytest.raises(PipelineError, match=message):
        read_examples(make_spec(BEIR), path, "mine")


def test_read_queries_beir_parquet_with_integer_ids_is_read(tmp_path: Path):
    names = {"file": "pairs.parquet", "corpus": "corpus.parquet", "queries": "queries.parquet"}
    tables = {
        "pairs": {"query-id": [7, 7], "corpus-id": [1, 2], "score": [1, 0]},
        "corpus": {"_id": ["1", "2"], "title": ["t", "t"], "text": ["a", "b"]},
        "queries": {"_id": ["7"], "text": ["q"]},
    }
    for name, columns in tables.items():
        parquet.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")
    (query,) = read_examples(make_spec(BEIR | names), tmp_path / "pairs.parquet", "mine")
    assert (query.query, query.corpus, query.relevant) == ("q", ("a", "b"), {0})


def test_read_queries_file_without_labelled_pairs_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match="too few passages or queries: 4 passages of 0 queries"):
        read_examples(make_spec(BEIR), write_beir(tmp_path, *QRELS[:1], QRELS[2]), "mine")


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        (".", "qrels/test.tsv"),
        ("qrels", "test.tsv"),
        ("qrels", "./test.tsv"),
        ("qrels/inner", "../test.tsv"),
        ("..", "beir/qrels/test.tsv"),
    ],
)
def test_read_queries_beir_path_relative_to_any_folder_is_read(tmp_path: Path, monkeypatch, folder: str, path: str):
    beir = tmp_path / "beir"
    beir.mkdir()
    write_beir(beir, *QRELS)
    (beir / "qrels/inner").mkdir()
    monkeypatch.chdir(beir / folder)
    assert [query.query for query in read_examples(make_spec(BEIR), path, "mine")] == ["x", "x"]


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl"])
def test_read_queries_beir_without_texts_is_rejected(tmp_path: Path, monkeypatch, file: str):
    path = write_beir(tmp_path, *QRELS)
    (tmp_path / file).unlink()
    with pytest.raises(PipelineError, match=f"(?s)task file not found: .*{file}.*test.tsv.*put it there"):
        read_examples(make_spec(BEIR), path, "mine")
    # A file whose path is shorter than that of the set's file has no folder above it.
    monkeypatch.chdir("/")
    with pytest.raises(PipelineError, match="task file not found: .*corpus.jsonl"):
        read_examples(make_spec(BEIR), "test.tsv", "mine")
