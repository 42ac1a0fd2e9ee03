"""Which module handles which kind of task. A new kind is one module with these functions and one line below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks import choice, classification, span
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.spec import TaskSpec


class Handler(Protocol):
    """What a handler's module offers. ``head`` names the model's head: ``sequence``, ``choice`` or ``span``."""

    head: str

    def outputs(self, spec: TaskSpec) -> int:
        """Width of the head."""

    def read(self, spec: TaskSpec, path: str | Path, row: str | None = None) -> list[Any]:
        """Examples of a data file, in its order; ``row`` names a score row whose layout may differ."""

    def features(self, spec: TaskSpec, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int) -> Features:
        """What the model is fed for these examples."""

    def predict(
        self, spec: TaskSpec, examples: Sequence[Any], features: Features, outputs: np.ndarray
    ) -> list[dict[str, Any]]:
        """JSON-able rows, one per example: at least ``id`` and ``prediction``."""

    def score(
        self, spec: TaskSpec, row: str, examples: Sequence[Any], predictions: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        """Metric -> percent, from prediction rows as read back from disk."""

    def chance(self, spec: TaskSpec, row: str, examples: Sequence[Any]) -> dict[str, float]:
        """Metric -> percent that a model which learnt nothing gets."""


HANDLERS: dict[str, Handler] = {
    "classification": classification,
    "choice": choice,
    "span": span,
}
