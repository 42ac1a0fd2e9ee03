"""Retrieval: rank the passages of a corpus for each query, by the cosine similarity of their vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks.features import Features, RankingFeatures, encode, pair_features
from pipeline_src.tasks.metrics import BootstrapStatistics, ratio_statistics
from pipeline_src.tasks.queries import Query
from pipeline_src.tasks.task import ExampleResult, Prediction, Rows, Task
from pipeline_src.tokenizer.special_tokens import read_templates

# Number of passages in a prediction.
MAX_RANK = 100

# Limits of a query batch: its number of queries, and its number of scores (queries x passages), which are all in
# memory at once.
MAX_BATCH_QUERIES = 512
MAX_BATCH_SCORES = 1 << 24

# Gains of a hit at ranks 1 to 10: 1, 0.63, 0.5, ... (Järvelin and Kekäläinen 2002).
GAINS = 1 / np.log2(np.arange(2, 12))


def _ndcg(hits: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    top = hits[:, : len(GAINS)]
    gain = top @ GAINS[: top.shape[1]]
    # With 3 relevant passages, the best possible gain is that of hits at ranks 1 to 3.
    num_hits = np.minimum(relevant, len(GAINS))
    best_gain = np.cumsum(GAINS)[num_hits - 1]
    # Rounding would make some perfect rankings less than 1, that is, wrong.
    ranks = np.arange(top.shape[1])
    best = ranks < relevant[:, None]
    is_best = (top == best).all(1)
    return np.where(is_best, 1.0, gain / best_gain)


def _reciprocal_rank(hits: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    top = hits[:, :10]
    ranks = np.arange(1, 1 + top.shape[1])
    return (top / ranks).max(1)


# A metric takes hits (whether the passage at each rank is relevant), bool [queries, ranks], and the number of relevant
# passages of each query, [queries]. It returns the score of each query, from 0 to 1.
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ndcg_at_10": _ndcg,
    "recall_at_100": lambda hits, relevant: hits.sum(1) / relevant,
    "mrr_at_10": _reciprocal_rank,
}


def rank_passages(queries: Any, passages: Any) -> list[list[int]]:
    """Return, for each query, the indices of the passages with the greatest dot products, best first.

    At most ``MAX_RANK`` passages are returned. Passages with equal products keep the order of the corpus. Arguments are
    dense or sparse arrays, [queries, width] and [passages, width].
    """
    rankings: list[list[int]] = []
    batch_size = max(1, min(MAX_BATCH_QUERIES, MAX_BATCH_SCORES // passages.shape[0]))
    for start in range(0, queries.shape[0], batch_size):
        batch_scores = queries[start : start + batch_size] @ passages.T
        if not isinstance(batch_scores, np.ndarray):
            batch_scores = batch_scores.toarray()
        for scores in batch_scores:
            # Only candidates are sorted: the passages that score at least as high as the 100th best. There may be more
            # than 100, if several have the same score as the 100th.
            lowest = -np.inf
            if len(scores) > MAX_RANK:
                lowest = -np.partition(-scores, MAX_RANK - 1)[MAX_RANK - 1]
            candidates = np.flatnonzero(scores >= lowest)
            order = np.argsort(-scores[candidates], kind="stable")
            rankings.append(candidates[order[:MAX_RANK]].tolist())
    return rankings


class Retrieval(Task):
    """Ranking of passages for a query. Evaluation sets of this kind have no test files."""

    head = "embedding"
    num_outputs = 0

    def features(self, examples: Sequence[Query], tokenizer: Tokenizer, max_length: int) -> RankingFeatures:
        # One sequence for each passage of the corpus, followed by one for each query.
        corpus = examples[0].corpus
        queries = [example.query for example in examples]
        # Sequence indices of each item: query, passage and hard negatives.
        items = []
        example_of_item = []
        for index, example in enumerate(examples):
            for pair in example.pairs:
                items.append((len(corpus) + index, *pair))
                example_of_item.append(index)
        texts = ((ids, None) for ids in encode(tokenizer, [*corpus, *queries]))
        templates = read_templates(tokenizer)
        features = pair_features(self.spec.name, texts, np.array(items, np.int64), templates, max_length)
        return RankingFeatures(**{**vars(features), "example": np.array(example_of_item, np.int64)})

    def predict(self, examples: Sequence[Query], features: Features, outputs: np.ndarray) -> list[Prediction]:
        """Make predictions from vectors, float [texts, H]: first those of all passages, then those of the queries.

        ``prediction`` has the indices of the ``MAX_RANK`` passages with the greatest cosines, best first.
        """
        count = len(examples[0].corpus)
        self.check_outputs(outputs, (count + len(examples), outputs.shape[1]))
        unit = outputs / np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-12)
        rankings = rank_passages(unit[count:], unit[:count])
        return [{"id": example.id, "prediction": ranking} for example, ranking in zip(examples, rankings, strict=True)]

    def answers(
        self, examples: Sequence[Query], features: Features, outputs: np.ndarray, threshold: float | None = None
    ) -> list[Prediction]:
        corpus = examples[0].corpus
        rows = self.predict(examples, features, outputs)
        return [{**row, "passage": corpus[row["prediction"][0]]} for row in rows]

    def _hits(self, examples: Sequence[Query], predictions: Rows) -> tuple[np.ndarray, np.ndarray]:
        # Returns the arguments of METRICS.
        hits = []
        relevant = []
        for example, row in zip(examples, self.align(examples, predictions), strict=True):
            answers = example.relevant
            hits.append([passage in answers for passage in row["prediction"]])
            relevant.append(len(answers))
        return np.array(hits), np.array(relevant)

    def statistics(
        self, eval_set: str, examples: Sequence[Query], systems: Sequence[Rows]
    ) -> dict[str, BootstrapStatistics]:
        hits = [self._hits(examples, rows) for rows in systems]
        statistics: dict[str, BootstrapStatistics] = {}
        for metric in self.spec.eval_set(eval_set).metrics:
            points = [METRICS[metric](*system) for system in hits]
            statistics[metric] = ratio_statistics(points)
        return statistics

    def group(self, example: Query) -> str | None:
        return example.group

    def majority_baseline(self, eval_set: str, examples: Sequence[Query]) -> dict[str, float]:
        # Every query gets the same ranking, which starts with the passages that are relevant to the most queries.
        frequencies = Counter(chain.from_iterable(example.relevant for example in examples))
        passages = range(len(examples[0].corpus))
        ranking = sorted(passages, key=lambda passage: -frequencies[passage])[:MAX_RANK]
        return self.score(eval_set, examples, [{"id": example.id, "prediction": ranking} for example in examples])

    def example_results(self, eval_set: str, examples: Sequence[Query], predictions: Rows) -> list[ExampleResult]:
        points = _ndcg(*self._hits(examples, predictions))
        rows = self.align(examples, predictions)
        return [
            ExampleResult(
                id=example.id,
                text=example.query,
                words=len(example.query.split()),
                gold=example.corpus[example.pairs[0][0]],
                predicted=example.corpus[row["prediction"][0]],
                right=float(right),
                confidence=None,
            )
            for example, row, right in zip(examples, rows, points, strict=True)
        ]
