"""The interface of a task, with the checks on model outputs and predictions that all kinds of task share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
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

# The prediction for one example, as a JSON object with at least the keys `id` and `prediction`.
Prediction = dict[str, Any]
Rows = Sequence[Prediction]


@dataclass(frozen=True)
class ExampleResult:
    """The prediction for one example in readable form.

    Attributes:
        words: number of words in the text, split at white space.
        gold, predicted: the correct answer and the model's answer, as text.
        right: how correct the prediction is, from 0 to 1. For classes it is 0 or 1, for spans the word F1, for tagging
            the fraction of correct tags, for regression 1 - |difference| / range, for retrieval nDCG@10.
        confidence: the probability that the model gives to its answer; None if the prediction does not have it.
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

    A PipelineError is raised if predictions do not match the examples, or if a prediction is not a valid answer.

    Attributes:
        head: kind of output layer: ``sequence``, ``choice``, ``span``, ``token``, or ``embedding`` (no output layer).
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
        """Tokenise examples into model inputs of at most ``max_length`` tokens, special tokens included."""

    @abstractmethod
    def predict(self, examples: Sequence[Any], features: Features, outputs: np.ndarray) -> list[Prediction]:
        """Turn model outputs into JSON-serialisable predictions, one per example."""

    def decide(self, examples: Sequence[Any], predictions: Mapping[str, Rows]) -> Mapping[str, Rows]:
        """Choose what a model's predictions need beside its outputs, such as a threshold of probabilities.

        Args:
            examples: labelled examples of the first evaluation set, on which the choice is made.
            predictions: evaluation set -> its predictions, the first set first.

        Returns:
            The predictions that follow from the choice, for all sets.
        """
        return predictions

    def answers(
        self, examples: Sequence[Any], features: Features, outputs: np.ndarray, threshold: float | None = None
    ) -> list[Prediction]:
        """Make predictions for display: the command-line tool ``predict`` prints them.

        Args:
            threshold: for tasks with unanswerable questions, the greatest null score difference at which a question
                is still answered; for sets of labels, the lowest probability of a predicted label.
        """
        return self.predict(examples, features, outputs)

    def score(self, eval_set: str, examples: Sequence[Any], predictions: Rows) -> dict[str, float]:
        """Compute the metrics of an evaluation set, in percent. Some kinds of task add further values."""
        statistics = self.statistics(eval_set, examples, [predictions])
        return {metric: metric_statistics.score() for metric, metric_statistics in statistics.items()}

    @abstractmethod
    def statistics(
        self, eval_set: str, examples: Sequence[Any], systems: Sequence[Rows]
    ) -> dict[str, BootstrapStatistics]:
        """Compute each example's contribution to each metric, for the predictions of each system."""

    @abstractmethod
    def majority_baseline(self, eval_set: str, examples: Sequence[Any]) -> dict[str, float]:
        """Compute the metrics, in percent, of the best system that gives every example the same answer."""

    @abstractmethod
    def example_results(self, eval_set: str, examples: Sequence[Any], predictions: Rows) -> list[ExampleResult]:
        """Describe the prediction for each example, in the order of the examples."""

    @abstractmethod
    def group(self, example: Any) -> object:
        """Return the key of the example's resampling group, such as its paragraph.

        The bootstrap resamples examples with equal keys together, and an example with the key None by itself.
        """

    def submission(
        self, eval_set: str, examples: Sequence[Any], predictions: Rows, threshold: float | None = None
    ) -> dict[str, str]:
        """Return the files to submit to a leaderboard, by file name. Empty if there is no leaderboard.

        Args:
            examples: examples of the set's test file, or of its labelled file if there is no test file.
            threshold: for tasks with unanswerable questions, the greatest null score difference at which a question
                is still answered.
        """
        return {}

    def check_outputs(self, outputs: np.ndarray, shape: tuple[int, ...]) -> None:
        assert outputs.shape == shape, f"{self.spec.name}: outputs are {outputs.shape}, not {shape}"
        if not np.isfinite(outputs).all():
            row = int(np.argwhere(~np.isfinite(outputs))[0][0])
            where = f"task {self.spec.name}"
            hint = "lower the learning rate and train again"
            raise PipelineError("the model's output is NaN or infinite", f"row {row}", where=where, hint=hint)

    def align(self, examples: Sequence[Any], predictions: Rows) -> list[Prediction]:
        # Returns the predictions in the order of the examples.
        by_id = {row["id"]: row for row in predictions}
        ids = {example.id for example in examples}
        missing = ids - by_id.keys()
        unmatched = missing or by_id.keys() - ids
        if unmatched:
            problem = "an example has no prediction" if missing else "a prediction has an unknown example id"
            value = f"{min(unmatched)} and {len(unmatched) - 1} more"
            hint = f"the predictions were made from other data: run the stage `finetune` again for {self.spec.name}"
            raise PipelineError(problem, value, where=f"task {self.spec.name}", hint=hint)
        return [by_id[example.id] for example in examples]

    def not_a_prediction(self, value: Any, allowed: str) -> PipelineError:
        hint = f"{allowed}; make the predictions again"
        return PipelineError("invalid prediction", repr(value), where=f"task {self.spec.name}", hint=hint)
