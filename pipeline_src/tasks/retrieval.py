"""Retrieval: rank the passages of a corpus for each query, by the cosine of their vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks.features import Features, RankingFeatures, encode, pair_features
from pipeline_src.tasks.metrics import BootstrapStatistics, ratio_statistics
from pipeline_src.tasks.readers import Query
from pipeline_src.tasks.task import ExampleResult, Rows, Task
from pipeline_src.tokenizer.special_tokens import read_templates

MAX_RANK = 100  # passages in a prediction
QUERIES_AT_ONCE, SCORES_AT_ONCE = 512, 1 << 24
GAINS = 1 / np.log2(np.arange(2, 12))  # of the ranks 1 to 10 (Järvelin and Kekäläinen 2002)


def _ndcg(hits: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    top = hits[:, : len(GAINS)]
    return top @ GAINS[: top.shape[1]] / np.cumsum(GAINS)[np.minimum(relevant, len(GAINS)) - 1]


def _reciprocal_rank(hits: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    top = hits[:, :10]
    return (top / np.arange(1, 1 + top.shape[1])).max(1)


# from hits, bool [queries, ranks], and the number of each query's relevant passages, to its points, 0 to 1
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ndcg_at_10": _ndcg,
    "recall_at_100": lambda hits, relevant: hits.sum(1) / relevant,
    "mrr_at_10": _reciprocal_rank,
}


def rank_passages(queries: Any, passages: Any) -> list[list[int]]:
    """Return for each query the indices of the passages with the greatest dot products, at most ``MAX_RANK``.

    Of equal passages, the first in the corpus is first. Arguments are arrays, or sparse arrays, [count, width].
    """
    rankings: list[list[int]] = []
    batch_size = max(1, min(QUERIES_AT_ONCE, SCORES_AT_ONCE // passages.shape[0]))
    for start in range(0, queries.shape[0], batch_size):
        products = queries[start : start + batch_size] @ passages.T
        for scores in products if isinstance(products, np.ndarray) else products.toarray():
            lowest = -np.partition(-scores, MAX_RANK - 1)[MAX_RANK - 1] if len(scores) > MAX_RANK else -np.inf
            best = np.flatnonzero(scores >= lowest)
            rankings.append(best[np.argsort(-scores[best], kind="stable")[:MAX_RANK]].tolist())
    return rankings


class Retrieval(Task[Query]):
    """Passages ranked for a query. No evaluation set of this kind has a test file."""

    head = "embedding"
    num_outputs = 0

    def features(self, examples: Sequence[Query], tokenizer: Tokenizer, max_length: int) -> RankingFeatures:
        """Make one sequence of at most ``max_length`` tokens for each passage of the corpus and each query."""
        corpus = examples[0].corpus
        texts = encode(tokenizer, [*corpus, *(example.query for example in examples)])
        pairs = [(number, pair) for number, example in enumerate(examples) for pair in example.pairs]
        labels = np.array([(len(corpus) + number, *pair) for number, pair in pairs], np.int64)
        features = pair_features(
            self.spec.name, ((text, None) for text in texts), labels, read_templates(tokenizer), max_length
        )
        return RankingFeatures(**{**vars(features), "example": np.array([number for number, _ in pairs], np.int64)})

    def predict(self, examples: Sequence[Query], features: Features, outputs: np.ndarray) -> list[dict[str, Any]]:
        """Make predictions from the vectors of the corpus and the queries, float [texts, H].

        ``prediction`` has the indices of the ``MAX_RANK`` passages with the greatest cosines, the best first.
        """
        count = len(examples[0].corpus)
        self.check_outputs(outputs, (count + len(examples), outputs.shape[1]))
        unit = outputs / np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-12)
        rankings = rank_passages(unit[count:], unit[:count])
        return [{"id": example.id, "prediction": ranking} for example, ranking in zip(examples, rankings, strict=True)]

    def answers(
        self, examples: Sequence[Query], features: Features, outputs: np.ndarray, threshold: float | None = None
    ) -> list[dict[str, Any]]:
        """Make predictions with the text of the best passage."""
        corpus = examples[0].corpus
        rows = self.predict(examples, features, outputs)
        return [{**row, "passage": corpus[row["prediction"][0]]} for row in rows]

    def _hits(self, examples: Sequence[Query], predictions: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return the arguments of the metrics."""
        count = len(examples[0].corpus)
        length = min(count, MAX_RANK)
        rankings = [row["prediction"] for row in self.align(examples, predictions)]
        for ranking in rankings:
            valid = isinstance(ranking, list) and all(type(p) is int and 0 <= p < count for p in ranking)
            if not valid or not len(ranking) == len({*ranking}) == length:
                raise self.not_a_prediction(ranking, f"{length} different passages, numbered from 0 to {count - 1}")
        relevant = [example.relevant for example in examples]
        hits = [[passage in answers for passage in row] for answers, row in zip(relevant, rankings, strict=True)]
        return np.array(hits), np.array([len(answers) for answers in relevant])

    def statistics(
        self, eval_set: str, examples: Sequence[Query], systems: Sequence[Rows]
    ) -> dict[str, BootstrapStatistics]:
        hits = [self._hits(examples, rows) for rows in systems]
        metrics = self.spec.eval_set(eval_set).metrics
        return {metric: ratio_statistics([METRICS[metric](*system) for system in hits]) for metric in metrics}

    def group(self, example: Query) -> str | None:
        return example.group

    def majority_baseline(self, eval_set: str, examples: Sequence[Query]) -> dict[str, float]:
        """Compute the metrics if every query gets one ranking: the passages that answer the most queries first."""
        frequencies = Counter(passage for example in examples for passage in example.relevant)
        ranking = sorted(range(len(examples[0].corpus)), key=lambda passage: -frequencies[passage])[:MAX_RANK]
        return self.score(eval_set, examples, [{"id": example.id, "prediction": ranking} for example in examples])

    def example_results(self, eval_set: str, examples: Sequence[Query], predictions: Rows) -> list[ExampleResult]:
        points, rows = _ndcg(*self._hits(examples, predictions)), self.align(examples, predictions)
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
