"""Classification of texts that have any number of labels, each predicted by the sigmoid of its own logit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from pipeline_src.tasks.classification import Classification, gold_labels
from pipeline_src.tasks.examples import TextExample
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.metrics import METRICS
from pipeline_src.tasks.task import Prediction, Rows

# Candidate thresholds, the nearest to 0.5 first. Hundredths reach low enough: for calibrated probabilities, the
# threshold with the best F1 is half of that F1 (Lipton et al. 2014).
THRESHOLDS = sorted((number / 100 for number in range(1, 100)), key=lambda threshold: abs(threshold - 0.5))


class MultiLabel(Classification):
    """Classification of one text or a pair of texts into any number of labels.

    A label is predicted if its probability is at least the threshold, which is the same for all labels.
    """

    def predict(
        self,
        examples: Sequence[TextExample],
        features: Features | None,
        outputs: np.ndarray,
        threshold: float | None = None,
    ) -> list[Prediction]:
        """Make predictions from logits, float [items, labels].

        Returns:
            For each example, ``id``, ``probabilities`` by label, ``prediction`` (the labels whose probability reaches
            the threshold) and ``threshold``: by default 0.5, until ``decide`` replaces it.
        """
        self.check_outputs(outputs, (len(examples), self.num_outputs))
        # The sigmoid is written with tanh, because exp would overflow.
        probabilities = 0.5 + 0.5 * np.tanh(outputs.astype(float) / 2)
        by_label = [dict(zip(self.spec.labels, values, strict=True)) for values in probabilities.tolist()]
        rows = [{"id": example.id, "probabilities": row} for example, row in zip(examples, by_label, strict=True)]
        return at_threshold(rows, threshold or 0.5)

    answers = predict

    def decide(self, examples: Sequence[TextExample], predictions: Mapping[str, Rows]) -> dict[str, Rows]:
        # The threshold has the best main metric on the first evaluation set, and is applied to all sets. If several
        # thresholds are equally good, it is the one nearest to 0.5.
        first, *_ = predictions.values()
        probabilities = np.array([[*row["probabilities"].values()] for row in first])
        gold = np.array(gold_labels(examples))
        statistics = METRICS[self.spec.eval_set(None).metrics[0]]

        def score_at(threshold: float) -> float:
            return statistics(gold, [probabilities >= threshold]).score()

        best = max(THRESHOLDS, key=score_at)
        return {name: at_threshold(rows, best) for name, rows in predictions.items()}

    def score(self, eval_set: str, examples: Sequence[TextExample], predictions: Rows) -> dict[str, float]:
        """Compute the metrics of an evaluation set, in percent.

        The predictions of a model have a ``threshold``, chosen on the first evaluation set. The result then has it too,
        and the metrics at a threshold of 0.5 (``micro_f1_at_half`` and so on), which was not chosen on any data.
        """
        scores = super().score(eval_set, examples, predictions)
        if "threshold" in predictions[0]:
            at_half = super().score(eval_set, examples, at_threshold(predictions, 0.5))
            scores |= {f"{metric}_at_half": value for metric, value in at_half.items()}
            scores["threshold"] = predictions[0]["threshold"]
        return scores

    def label_text(self, number: Any) -> str:
        return json.dumps([*compress(self.spec.labels, number)], ensure_ascii=False)

    def _number(self, value: Any) -> Any:
        # Returns whether each label is predicted.
        if not isinstance(value, list):
            raise self.not_a_prediction(value, "allowed: a list of labels")
        indices = {*map(super()._number, value)}
        return tuple(index in indices for index in range(self.num_outputs))


def at_threshold(rows: Rows, threshold: float) -> list[Prediction]:
    decided = []
    for row in rows:
        names = [label for label, probability in row["probabilities"].items() if probability >= threshold]
        decided.append({**row, "prediction": names, "threshold": threshold})
    return decided
