"""Retrieval: reading of queries and corpora, features, rankings and metrics."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks import retrieval
from pipeline_src.tasks.examples import read_examples
from pipeline_src.tasks.features import RankingFeatures
from pipeline_src.tasks.kinds import make_task
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


QUERIES = [
    Query("0", "w1", ("w10 w11", "w12", "w13"), ((0, 2),)),
    Query("1", "w2 w3", ("w10 w11", "w12", "w13"), ((1, 2), (0, 1)), "g"),
]


def test_read_queries_rows_of_one_query_are_one_query_with_its_negatives(tmp_path: Path):
    spec = make_spec(columns={"texts": ["q", "p"], "negatives": ["n"], "group": "g"})
    rows = ("q\tp\tn\tg", "w1\tw10 w11\tw13\t", "w2 w3\tw12\tw13\tg", "w2 w3\tw10 w11\tw12\tg")
    queries = read_examples(spec, write(tmp_path / "dev.tsv", *rows), "mine")
    assert queries[1] == Query("1", "w2 w3", ("w10 w11", "w13", "w12"), ((2, 1), (0, 2)), "g")
    assert queries[0].group is None and queries[0].relevant == {0} and queries[1].relevant == {0, 2}
    assert queries[0].corpus is queries[1].corpus


def test_read_queries_rows_with_another_label_are_left_out(tmp_path: Path):
    rows = ("index\tquestion\tsentence\tlabel", "0\tq\ta\tentailment", "1\tr\tb\tnot_entailment", "2\tr\tc\tentailment")
    queries = read_examples(load_spec("qnli_retrieval"), write(tmp_path / "dev.tsv", *rows), "qnli_retrieval")
    assert [(query.query, query.corpus) for query in queries] == [("q", ("a", "c")), ("r", ("a", "c"))]


def test_read_queries_squad_searches_paragraphs(tmp_path: Path):
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


def test_read_queries_beir_layout_searches_all_of_the_corpus(tmp_path: Path):
    queries = read_examples(make_spec(BEIR), write_beir(tmp_path, *QRELS), "mine")
    corpus = ("a", "b", "a", "")
    assert queries == [Query("0", "x", corpus, ((2,),)), Query("1", "x", corpus, ((1,),))]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("w1\t", "w2\tp"), r"a query without a passage: ''.*dev.tsv:2"),
        (("w1\tp", " \tp2"), r"a pair with an empty text: ' '.*dev.tsv:3"),
        (("\t", "\t"), "an empty text"),
        (("w1\tp", "w2\tp"), "nothing to rank: 1 passages of 2 queries"),
        (("w1",), r"a row has no value for a column: p.*dev.tsv:2"),
    ],
    ids=["no passage", "no query", "empty columns", "one passage", "short row"],
)
def test_read_queries_bad_pairs_are_rejected(tmp_path: Path, rows, message: str):
    with pytest.raises(PipelineError) as caught:
        read_examples(make_spec(), write(tmp_path / "dev.tsv", "q\tp", *rows), "mine")
    assert re.search(message, str(caught.value), re.DOTALL)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("q1\td9\t1", "no such passage: 'd9'"),
        ("q9\td1\t1", "no such query: 'q9'"),
        ("q1\td4\t1", "a query without a passage: 'd4'"),
    ],
)
def test_read_queries_beir_ids_without_text_are_rejected(tmp_path: Path, row: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read_examples(make_spec(BEIR), write_beir(tmp_path, *QRELS, row), "mine")


@pytest.mark.parametrize("name", ["corpus", "queries"])
def test_read_queries_beir_repeated_id_is_rejected(tmp_path: Path, name: str):
    path = write_beir(tmp_path, *QRELS)
    with open(tmp_path / f"{name}.jsonl", "a") as file:
        file.write(json.dumps({"_id": f"{'d' if name == 'corpus' else 'q'}1", "text": "z"}) + "\n")
    with pytest.raises(PipelineError, match=rf"an earlier row has: '.1'\n.*{name}\.jsonl:\d"):
        read_examples(make_spec(BEIR), path, "mine")


@pytest.mark.parametrize("name", ["corpus", "queries"])
def test_read_queries_beir_row_without_a_text_is_rejected(tmp_path: Path, name: str):
    path = write_beir(tmp_path, *QRELS)
    with open(tmp_path / f"{name}.jsonl", "a") as file:
        file.write(json.dumps({"_id": "new"}) + "\n")
    with pytest.raises(PipelineError, match=rf"a row has no value for a column: text\n.*{name}\.jsonl:\d"):
        read_examples(make_spec(BEIR), path, "mine")


def test_read_queries_no_row_with_the_label_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match="nothing to rank: 4 passages of 0 queries"):
        read_examples(make_spec(BEIR), write_beir(tmp_path, *QRELS[:1], QRELS[2]), "mine")


def test_features_each_text_is_one_sequence_of_several_items(tokenizer):
    features = make_task(make_spec()).features(QUERIES, tokenizer, 5)
    assert isinstance(features, RankingFeatures) and features.items == 3
    assert features.labels.tolist() == [[3, 0, 2], [4, 1, 2], [4, 0, 1]] and features.example.tolist() == [0, 1, 1]
    assert np.diff(features.cu_seqlens).tolist() == [4, 3, 3, 3, 4] and features.lengths.tolist() == [10, 10, 11]
    positions, cu_seqlens = features.tokens_of(np.array([2, 0]))
    texts = [tokenizer.decode(part) for part in np.split(features.ids[positions], cu_seqlens[1:-1])]
    assert texts == ["w2 w3", "w10 w11", "w12", "w1", "w10 w11", "w13"]
    alone = features.as_texts()
    assert alone.items == 5 and alone.labels_of(np.array([4])).tolist() == [4]
    assert make_task(make_spec()).features(QUERIES, tokenizer, 3).counts == {"sequences cut to 3 tokens": 2}


def test_predict_ranks_by_cosine_and_ties_in_order_of_corpus():
    vectors = np.array([[0, 2], [5, 0.1], [0, 4], [0, 3], [9, 0]], np.float32)  # three passages, two queries
    rows = make_task(make_spec()).predict(QUERIES, None, vectors)
    assert rows == [{"id": "0", "prediction": [0, 2, 1]}, {"id": "1", "prediction": [1, 0, 2]}]


def test_rank_passages_every_query_of_every_chunk(monkeypatch):
    rng = np.random.default_rng(0)
    queries, passages = rng.normal(size=(50, 8)), rng.normal(size=(130, 8))
    expected = np.argsort(-(queries @ passages.T), axis=1)[:, :100].tolist()
    monkeypatch.setattr(retrieval, "MAX_BATCH_QUERIES", 7)
    assert retrieval.rank_passages(queries, passages) == expected
    monkeypatch.setattr(retrieval, "MAX_BATCH_SCORES", 3)  # less than a query's
    assert retrieval.rank_passages(queries, passages) == expected


@pytest.mark.parametrize("count", [3, 100, 101, 300])
def test_rank_passages_equal_scores_stay_in_order_of_corpus(count):
    rng = np.random.default_rng(count)
    queries, passages = (rng.integers(-1, 2, (size, 2)).astype(np.float32) for size in (9, count))
    expected = np.argsort(-(queries @ passages.T), axis=1, kind="stable")[:, :100].tolist()
    assert retrieval.rank_passages(queries, passages) == expected


def test_score_by_hand():
    rows = [{"id": "0", "prediction": [1, 2, 0]}, {"id": "1", "prediction": [0, 2, 1]}]
    second, third = 1 / np.log2(3), 1 / np.log2(4)
    ndcg = [third, (1 + third) / (1 + second)]
    task = make_task(make_spec())
    scores = task.score("mine", QUERIES, rows[::-1])
    assert scores == pytest.approx(
        {"ndcg_at_10": 50 * sum(ndcg), "recall_at_100": 100.0, "mrr_at_10": 50 * (1 / 3 + 1)}
    )
    baseline = task.majority_baseline("mine", QUERIES)  # 0 answers two queries, 1 one, 2 none
    assert baseline == pytest.approx(dict.fromkeys(METRICS, 100.0))
    results = task.example_results("mine", QUERIES, rows)
    assert [result.right for result in results] == pytest.approx(ndcg)
    assert (results[1].gold, results[1].predicted, results[1].words) == ("w12", "w10 w11", 2)
    assert [task.group(query) for query in QUERIES] == [None, "g"]


@pytest.mark.parametrize("ranking", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, -1], [0, 1, 2.0], "012", [0, 1, 2, 2]])
def test_score_ranking_that_is_none_is_rejected(ranking):
    rows = [{"id": "0", "prediction": [0, 1, 2]}, {"id": "1", "prediction": ranking}]
    with pytest.raises(PipelineError, match="3 different passages, numbered from 0 to 2"):
        make_task(make_spec()).score("mine", QUERIES, rows)
