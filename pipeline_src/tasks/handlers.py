"""Which module handles which kind of task. A new kind is one module with these functions and one line below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks import choice, classification, span, tagging
from pipeline_src.tasks.example_result import ExampleResult
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.sums import Sums


class Handler(Protocol):
    """What a handler's module offers. ``head`` names the model's: ``sequence``, ``choice``, ``span`` or ``token``.

    A handler may also have ``submission(spec, eval_set, examples, predictions) -> dict[name, content]``: what a
    leaderboard wants of an evaluation set's test file, or of its labelled file where the set has no other.
    """

    head: str

    def outputs(self, spec: TaskSpec) -> int:
        """Width of the head."""

    def read(
        self,
        spec: TaskSpec,
        path: str | Path,
        eval_set: str | None = None,
        test: bool = False,
        counts: Counter[str] | None = None,
    ) -> list[Any]:
        """Examples of a data file, in its order; ``eval_set`` names an evaluation set whose layout may differ.

        With ``test`` it is the set's file without labels; ``counts`` is filled with what was dropped, by reason.
        """

    def features(self, spec: TaskSpec, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int) -> Features:
        """What the model is fed for these examples."""

    def predict(
        self, spec: TaskSpec, examples: Sequence[Any], features: Features, outputs: np.ndarray
    ) -> list[dict[str, Any]]:
        """JSON-able rows, one per example: at least ``id`` and ``prediction``."""

    def score(
        self, spec: TaskSpec, eval_set: str, examples: Sequence[Any], predictions: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        """Metric -> percent, from prediction rows as read back from disk; there may be more than the set's metrics."""

    def sums(
        self, spec: TaskSpec, eval_set: str, examples: Sequence[Any], systems: Sequence[Sequence[dict[str, Any]]]
    ) -> dict[str, Sums]:
        """Metric -> what each example adds to it, for the prediction rows of several systems."""

    def group(self, example: Any) -> object:
        """What an example shares with others that it was taken with, such as its paragraph; None for nothing."""

    def majority_baseline(self, spec: TaskSpec, eval_set: str, examples: Sequence[Any]) -> dict[str, float]:
        """Metric -> percent that the best constant answer gets: what a model can do that learnt nothing."""

    def example_results(
        self, spec: TaskSpec, eval_set: str, examples: Sequence[Any], predictions: Sequence[dict[str, Any]]
    ) -> list[ExampleResult]:
        """What the model answered to each example, in the examples' order."""


HANDLERS: dict[str, Handler] = {
    "classification": classification,
    "choice": choice,
    "span": span,
    "tagging": tagging,
}
