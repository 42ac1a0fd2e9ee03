"""One task's scores over its restarts, from prediction files and the task's own files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.paths import TASKS
from pipeline_src.evaluation.bag_of_words import predict
from pipeline_src.evaluation.prediction_files import Rows, predictions_path, read_predictions
from pipeline_src.evaluation.uncertainty import compare, make_units, resampled_values, score_interval
from pipeline_src.tasks.files.spec import EvalSetSpec, TaskSpec
from pipeline_src.tasks.handlers import HANDLERS


@dataclass(frozen=True)
class EvalResult:
    """One evaluation set: its examples, each restart's scores, and what the best restart predicted.

    Attributes:
        examples: of the labelled file.
        scores: metric -> percent for each restart, in their order; a handler may add figures of its own.
        random_weights: the same from random weights, for the restarts that have it.
        majority_baseline: metric -> percent of the best constant answer.
        counts: what was dropped of the file, by reason.
        best: the best restart's prediction rows.
        certainty: by metric, how sure its row is (:func:`how_sure`).
    """

    examples: Sequence[Any]
    scores: list[dict[str, float]]
    random_weights: list[dict[str, float]]
    majority_baseline: dict[str, float]
    counts: Counter[str]
    best: Rows
    certainty: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskScores:
    """A task's scores by evaluation set, and the restart that is best by the first set's main metric."""

    spec: TaskSpec
    restarts: tuple[int, ...]
    best: int
    results: dict[str, EvalResult]

    def table(self) -> list[dict[str, Any]]:
        """Rows of ``results/scores.json``, one per evaluation set and metric.

        ``values`` are in the restarts' order. ``best`` is that of the task's best restart, which one metric alone
        decides: another set or metric may have had a higher value in another restart.
        """
        return [
            self._row(name, eval_set, metric)
            for name, eval_set in self.spec.scores.items()
            for metric in eval_set.metrics
        ]

    def _row(self, name: str, eval_set: EvalSetSpec, metric: str) -> dict[str, Any]:
        result = self.results[name]
        values = [score[metric] for score in result.scores]
        random_weights = [score[metric] for score in result.random_weights]
        return {
            "task": self.spec.name,
            "eval_set": name,
            "title": eval_set.title,
            "file": eval_set.file,
            "metric": metric,
            "main": metric == eval_set.metrics[0],
            "examples": len(result.examples),
            "values": values,
            **spread(values),
            "best": values[self.restarts.index(self.best)],
            "best_restart": self.best,
            "majority_baseline": result.majority_baseline[metric],
            "random_weights": fmean(random_weights) if random_weights else None,
            **result.certainty[metric],
        }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, and sample standard deviation where there is more than one value."""
    return {"mean": fmean(values), "deviation": stdev(values) if len(values) > 1 else None}


def score_task(spec: TaskSpec, restarts: Sequence[int], bag_of_words: bool = False) -> TaskScores:
    """Score one task over the listed restarts alone: others may still lie there.

    Args:
        spec: the task.
        restarts: whose predictions are read.
        bag_of_words: whether what words alone tell is a baseline too; it is trained here.

    Raises:
        PipelineError: a prediction file is missing, malformed, or does not belong to the task's file.
    """
    handler = HANDLERS[spec.kind]
    best: int | None = None
    results = {}
    for name, eval_set in spec.scores.items():
        counts: Counter[str] = Counter()
        examples = handler.read(spec, TASKS / spec.name / eval_set.file, name, counts=counts)
        predicted = [read_predictions(predictions_path(spec.name, restart, "pretrained", name)) for restart in restarts]
        random = [predictions_path(spec.name, restart, "random", name) for restart in restarts]
        # training from random weights is optional
        from_random = [read_predictions(path) for path in random if path.parent.exists()]
        scores = [handler.score(spec, name, examples, rows) for rows in predicted]
        if best is None:  # the first set decides; of equal restarts the first
            best = max(range(len(scores)), key=lambda place: scores[place][eval_set.metrics[0]])
        baselines = {"random_weights": from_random} if from_random else {}
        if bag_of_words:
            training = handler.read(spec, TASKS / spec.name / spec.train)
            baselines["bag_of_words"] = [predict(spec, training, examples)]
        results[name] = EvalResult(
            examples=examples,
            scores=scores,
            random_weights=[handler.score(spec, name, examples, rows) for rows in from_random],
            majority_baseline=handler.majority_baseline(spec, name, examples),
            counts=counts,
            best=predicted[best],
            certainty=how_sure(spec, name, examples, predicted, baselines),
        )
    assert best is not None  # a task has at least one evaluation set
    return TaskScores(spec, tuple(restarts), restarts[best], results)


def how_sure(
    spec: TaskSpec, eval_set: str, examples: Sequence[Any], predicted: Sequence[Rows], baselines: dict[str, list[Rows]]
) -> dict[str, dict[str, Any]]:
    """For each metric the interval of the score, and of each baseline its score, interval and what parts it from ours.

    Args:
        predicted: prediction rows of every restart.
        baselines: the same of other systems on these examples, by name.
    """
    handler, systems = HANDLERS[spec.kind], [predicted, *baselines.values()]
    sums = handler.sums(spec, eval_set, examples, [rows for runs in systems for rows in runs])
    groups = [handler.group(example) for example in examples]
    found = {}
    for metric, added in sums.items():
        units = make_units(added, [len(runs) for runs in systems], groups)
        drawn = resampled_values(units, derive_seed("interval", spec.name, eval_set, metric))
        stream = derive_seed("swaps", spec.name, eval_set, metric)
        found[metric] = {
            "interval": score_interval(units, 0, drawn[0]),
            "units": units.count,
            "baselines": {
                name: {
                    "score": units.score(place),
                    "interval": score_interval(units, place, drawn[place]),
                    "against": asdict(compare(units, drawn, len(examples), stream, 0, place)),
                }
                for place, name in enumerate(baselines, start=1)
            },
        }
    return found
