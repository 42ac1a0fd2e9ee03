"""The interface of a task, and the checks on model outputs and predictions that all kinds of task share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.examples import read_examples
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.metrics import BootstrapStatistics

# The prediction for an example has at least `id` and `prediction`, and can be written as JSON.
Prediction = dict[str, Any]
Rows = Sequence[Prediction]


@dataclass(frozen=True)
class ExampleResult:
    """The prediction for one example in readable form.

    Attributes:
        words: number of words in the text, split at white space.
        right: from 0 to 1. Classes: 1 or 0. Spans: word F1. Tagging: fraction of correct tags. Regressions:
            1 - |difference| / range. Retrieval: nDCG@10.
        confidence: the model's probability of its answer; None if it is not known.
    """

    id: str
    text: str
    words: int
    gold: str
    predicted: str
    right: float
    confidence: float | None


class Task(ABC):
    """A task: reads its files, makes model inputs, and makes and scores predictions.

    Predictions that do not belong to the examples, or are no possible answer, raise an error.

    Attributes:
        head: kind of output layer of the task's models: ``sequence``, ``choice``, ``span``, ``token`` or
            ``embedding``, which is none.
    """

    head: ClassVar[str]

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec

    @property
    @abstractmethod
    def num_outputs(self) -> int: ...

    def read(
        self, path: str | Path, eval_set: str | None = None, test: bool = False, counts: Counter[str] | None = None
    ) -> list[Any]:
        return read_examples(self.spec, path, eval_set, test, counts)

    @abstractmethod
    def features(self, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int) -> Features:
        """Tokenise examples into model inputs of at most ``max_length`` tokens."""

    @abstractmethod
    def predict(self, examples: Sequence[Any], features: Features, outputs: np.ndarray) -> list[Prediction]:
        """Turn model outputs into JSON-serialisable predictions, one per example."""

    def answers(
        self, examples: Sequence[Any], features: Features, outputs: np.ndarray, threshold: float | None = None
    ) -> list[Prediction]:
        """Make predictions as ``predict`` does, in the form that the tool ``predict`` prints.

        Args:
            threshold: greatest null score difference of an answered question (tasks with unanswerable questions).
        """
        return self.predict(examples, features, outputs)

    def score(self, eval_set: str, examples: Sequence[Any], predictions: Rows) -> dict[str, float]:
        """Compute the metrics of an evaluation set, in percent; a kind of task may add further figures."""
        statistics = self.statistics(eval_set, examples, [predictions])
        return {metric: metric_statistics.score() for metric, metric_statistics in statistics.items()}

    @abstractmethod
    def statistics(
        self, eval_set: str, examples: Sequence[Any], systems: Sequence[Rows]
    ) -> dict[str, BootstrapStatistics]:
        """Compute each example's contribution to each metric, for the predictions of several systems."""

    @abstractmethod
    def majority_baseline(self, eval_set: str, examples: Sequence[Any]) -> dict[str, float]:
        """Compute the metrics, in percent, of the best constant answer."""

    @abstractmethod
    def example_results(self, eval_set: str, examples: Sequence[Any], predictions: Rows) -> list[ExampleResult]:
        """Describe the prediction for each example, in the order of the examples."""

    @abstractmethod
    def group(self, example: Any) -> object:
        """Return a key, such as a paragraph, that examples to be resampled together share; None: resampled alone."""

    def submission(
        self, eval_set: str, examples: Sequence[Any], predictions: Rows, threshold: float | None = None
    ) -> dict[str, str]:
        """Return the files that a leaderboard accepts, name -> content; empty if there is no leaderboard.

        Args:
            examples: examples of the set's test file, or of its labelled file if there is no test file.
            threshold: greatest null score difference of an answered question (tasks with unanswerable questions).
        """
        return {}

    def check_outputs(self, outputs: np.ndarray, shape: tuple[int, ...]) -> None:
        assert outputs.shape == shape, f"{self.spec.name}: outputs are {outputs.shape}, not {shape}"
        if not np.isfinite(outputs).all():
            row = int(np.argwhere(~np.isfinite(outputs))[0][0])
            where = f"task {self.spec.name}"
            hint = "lower the learning rate and train again"
            raise PipelineError("the model's output is not a number", f"row {row}", where=where, hint=hint)

    def align(self, examples: Sequence[Any], predictions: Rows) -> list[Prediction]:
        # In the order of the examples.
        by_id = {row["id"]: row for row in predictions}
        ids = {example.id for example in examples}
        missing = ids - by_id.keys()
        unmatched = missing or by_id.keys() - ids
        if unmatched:
            problem = "no prediction for an example" if missing else "a prediction for no example"
            value = f"{min(unmatched)} and {len(unmatched) - 1} more"
            hint = f"its predictions belong to other data: run `python -m pipeline_src finetune` for {self.spec.name}"
            raise PipelineError(problem, value, where=f"task {self.spec.name}", hint=hint)
        return [by_id[example.id] for example in examples]

    def not_a_prediction(self, value: Any, allowed: str) -> PipelineError:
        hint = f"{allowed}; make the predictions again"
        return PipelineError("not a prediction", repr(value), where=f"task {self.spec.name}", hint=hint)
