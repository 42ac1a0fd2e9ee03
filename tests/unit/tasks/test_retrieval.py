"""Retrieval: features, rankings and metrics."""

import numpy as np
import pytest

from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks import retrieval
from pipeline_src.tasks.features import RankingFeatures
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.queries import Query

TASK = make_task(load_spec("qnli_retrieval"))
METRICS = ["ndcg_at_10", "recall_at_100", "mrr_at_10"]
QUERIES = [
    Query("0", "w1", ("w10 w11", "w12", "w13"), ((0, 2),)),
    Query("1", "w2 w3", ("w10 w11", "w12", "w13"), ((1, 2), (0, 1)), "g"),
]


def test_retrieval_features_items_share_one_sequence_per_text(tokenizer):
    features = TASK.features(QUERIES, tokenizer, 5)
    assert isinstance(features, RankingFeatures) and features.items == 3
    assert features.labels.tolist() == [[3, 0, 2], [4, 1, 2], [4, 0, 1]] and features.example.tolist() == [0, 1, 1]
    assert np.diff(features.cu_seqlens).tolist() == [4, 3, 3, 3, 4] and features.lengths.tolist() == [10, 10, 11]
    positions, cu_seqlens = features.tokens_of(np.array([2, 0]))
    texts = [tokenizer.decode(part) for part in np.split(features.ids[positions], cu_seqlens[1:-1])]
    assert texts == ["w2 w3", "w10 w11", "w12", "w1", "w10 w11", "w13"]
    alone = features.as_texts()
    assert alone.items == 5 and alone.labels_of(np.array([4])).tolist() == [4]
    assert TASK.features(QUERIES, tokenizer, 3).counts == {"sequences cut to 3 tokens": 2}


def test_retrieval_predict_ranks_by_cosine_and_keeps_ties_in_corpus_order():
    vectors = np.array([[0, 2], [5, 0.1], [0, 4], [0, 3], [9, 0]], np.float32)  # three passages, two queries
    rows = TASK.predict(QUERIES, None, vectors)
    assert rows == [{"id": "0", "prediction": [0, 2, 1]}, {"id": "1", "prediction": [1, 0, 2]}]


@pytest.mark.parametrize("count", [3, 100, 101, 300])
def test_rank_passages_equals_stable_sort(monkeypatch, count):
    rng = np.random.default_rng(count)
    # Many scores are equal. Passages with equal scores keep the order of the corpus.
    queries, passages = (rng.integers(-1, 2, (size, 2)).astype(np.float32) for size in (50, count))
    expected = np.argsort(-(queries @ passages.T), axis=1, kind="stable")[:, :100].tolist()
    assert retrieval.rank_passages(queries, passages) == expected
    monkeypatch.setattr(retrieval, "MAX_BATCH_QUERIES", 7)
    assert retrieval.rank_passages(queries, passages) == expected
    monkeypatch.setattr(retrieval, "MAX_BATCH_SCORES", 3)  # fewer scores than one query has
    assert retrieval.rank_passages(queries, passages) == expected


def test_retrieval_scores_equal_values_computed_by_hand():
    rows = [{"id": "0", "prediction": [1, 2, 0]}, {"id": "1", "prediction": [0, 2, 1]}]
    second, third = 1 / np.log2(3), 1 / np.log2(4)
    ndcg = [third, (1 + third) / (1 + second)]
    task = TASK
    scores = task.score("qnli_retrieval", QUERIES, rows[::-1])
    assert scores == pytest.approx(
        {"ndcg_at_10": 50 * sum(ndcg), "recall_at_100": 100.0, "mrr_at_10": 50 * (1 / 3 + 1)}
    )
    # Passage 0 answers two queries, passage 1 answers one, and passage 2 none.
    baseline = task.majority_baseline("qnli_retrieval", QUERIES)
    assert baseline == pytest.approx(dict.fromkeys(METRICS, 100.0))
    results = task.example_results("qnli_retrieval", QUERIES, rows)
    assert [result.right for result in results] == pytest.approx(ndcg)
    assert (results[1].gold, results[1].predicted, results[1].words) == ("w12", "w10 w11", 2)
    assert [task.group(query) for query in QUERIES] == [None, "g"]


@pytest.mark.parametrize("ranks", [2, 10, 100])
def test_ndcg_of_best_ranking_is_exactly_one(ranks: int):
    relevant = np.arange(1, ranks + 1)
    best = np.arange(ranks) < relevant[:, None]
    assert (retrieval.METRICS["ndcg_at_10"](best, relevant) == 1).all()
    worse = best.copy()
    worse[:, 0] = False
    assert (retrieval.METRICS["ndcg_at_10"](worse, relevant) < 1).all()


def test_ndcg_of_one_relevant_passage_is_the_gain_of_its_rank():
    hits = np.eye(12, dtype=bool)
    expected = [*retrieval.GAINS, 0.0, 0.0]
    assert retrieval.METRICS["ndcg_at_10"](hits, np.ones(12, int)).tolist() == expected
