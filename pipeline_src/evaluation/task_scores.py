"""One task's scores over its restarts, from prediction files and the task's own files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from pipeline_src.common.paths import TASKS
from pipeline_src.evaluation.prediction_files import Rows, predictions_path, read_predictions
from pipeline_src.tasks.files.spec import ScoreSpec, TaskSpec
from pipeline_src.tasks.handlers import HANDLERS


@dataclass(frozen=True)
class Judged:
    """One score row: its file's examples, each restart's scores, and what the best restart predicted.

    Attributes:
        examples: of the labelled file.
        scores: metric -> percent for each restart, in their order; a handler may add figures of its own.
        baseline: the same from random weights, for the restarts that have it.
        chance: metric -> percent of a model that learnt nothing.
        counts: what was dropped of the file, by reason.
        best: the best restart's prediction rows.
    """

    examples: Sequence[Any]
    scores: list[dict[str, float]]
    baseline: list[dict[str, float]]
    chance: dict[str, float]
    counts: Counter[str]
    best: Rows


@dataclass(frozen=True)
class TaskScores:
    """A task judged: its score rows by name, and the restart that is best by the first row's main metric."""

    spec: TaskSpec
    restarts: tuple[int, ...]
    best: int
    rows: dict[str, Judged]

    def table(self) -> list[dict[str, Any]]:
        """Rows of ``results/scores.json``, one per score row and metric.

        ``values`` are in the restarts' order. ``best`` is that of the task's best restart, which one metric alone
        decides: another row or metric may have had a higher value in another restart.
        """
        found = []
        for name, judged in self.rows.items():
            row = self.spec.scores[name]
            found += [self._cells(name, row, judged, metric) for metric in row.metrics]
        return found

    def _cells(self, name: str, row: ScoreSpec, judged: Judged, metric: str) -> dict[str, Any]:
        values = [score[metric] for score in judged.scores]
        baseline = [score[metric] for score in judged.baseline]
        return {
            "task": self.spec.name,
            "row": name,
            "title": row.title,
            "file": row.file,
            "metric": metric,
            "main": metric == row.metrics[0],
            "examples": len(judged.examples),
            "values": values,
            **spread(values),
            "best": values[self.restarts.index(self.best)],
            "best_restart": self.best,
            "chance": judged.chance[metric],
            "random_weights": fmean(baseline) if baseline else None,
        }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, and sample standard deviation where there is more than one value."""
    return {"mean": fmean(values), "deviation": stdev(values) if len(values) > 1 else None}


def score_task(spec: TaskSpec, restarts: Sequence[int]) -> TaskScores:
    """Judge one task over the listed restarts alone: others may still lie there.

    Raises:
        PipelineError: a prediction file is missing, malformed, or does not belong to the task's file.
    """
    handler = HANDLERS[spec.kind]
    best: int | None = None
    rows = {}
    for name, row in spec.scores.items():
        counts: Counter[str] = Counter()
        examples = handler.read(spec, TASKS / spec.name / row.file, name, counts=counts)
        predicted = [read_predictions(predictions_path(spec.name, restart, "pretrained", name)) for restart in restarts]
        random = [predictions_path(spec.name, restart, "random", name) for restart in restarts]
        scores = [handler.score(spec, name, examples, one) for one in predicted]
        if best is None:  # the first row decides; of equal restarts the first
            best = max(range(len(scores)), key=lambda place: scores[place][row.metrics[0]])
        rows[name] = Judged(
            examples=examples,
            scores=scores,
            baseline=[
                handler.score(spec, name, examples, read_predictions(path))
                for path in random
                if path.parent.exists()  # the baseline is optional
            ],
            chance=handler.chance(spec, name, examples),
            counts=counts,
            best=predicted[best],
        )
    assert best is not None  # a task has at least one row
    return TaskScores(spec, tuple(restarts), restarts[best], rows)
