"""Scores of one task over its seeds, computed from prediction files and the task's files; analysis of errors."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, read_json_lines, schema_error
from pipeline_src.common.paths import TASKS, task_predictions
from pipeline_src.evaluation.bag_of_words import applies, predict
from pipeline_src.evaluation.significance import compare, make_units, resampled_values, score_interval
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.spec import EvalSetSpec, TaskSpec
from pipeline_src.tasks.task import ExampleResult

HINT = "run the stage `finetune` for this task again"
OPTIONAL = {
    "outputs": [float],
    "confidence": float,
    "null_score_difference": float,
    "nbest": [{"text": str, "probability": float}],
}
Rows = list[dict[str, Any]]


def predictions_path(task: str, seed: int, weights: str, eval_set: str, test: bool = False) -> Path:
    """Return the path of the predictions for an evaluation set, or with ``test`` for its test file."""
    return task_predictions(task, seed) / weights / f"{eval_set}{'.test' if test else ''}.jsonl"


def read_predictions(path: Path) -> Rows:
    """Read a file of predictions (JSON lines)."""
    if not path.exists():
        raise PipelineError("no predictions here", path, hint=HINT)
    rows = list(read_json_lines(path, {"id": str, "prediction": object}, "not a prediction", HINT))
    for number, row in enumerate(rows, start=1):
        optional = {key: shape for key, shape in OPTIONAL.items() if row.get(key) is not None}
        if mismatch := schema_error(row, optional):
            raise PipelineError("not a prediction", mismatch, where=f"{path}:{number}", hint=HINT)
    return rows


def read_baseline_predictions(task: str, seeds: Sequence[int], weights: str, eval_set: str) -> list[Rows]:
    """Read the predictions in folder ``weights`` of the seeds that have it: baselines are optional."""
    paths = [predictions_path(task, seed, weights, eval_set) for seed in seeds]
    return [read_predictions(path) for path in paths if path.parent.exists()]


def read_runs(task: str, seeds: Sequence[int]) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]], str]:
    """Read the runs of all seeds.

    Returns:
        The runs, each with its ``seed``; file -> reason -> number of dropped or truncated examples; which epoch was
        selected, ``last`` or ``best``.
    """
    runs: list[dict[str, Any]] = []
    counts: dict[str, dict[str, int]] = {}
    for seed in seeds:
        path = task_predictions(task, seed) / "run.json"
        record = read_json(path, {"runs": [{"weights": str, "dev": {str: float}}]})
        if mismatch := schema_error(record.get("counts", {}), {str: {str: int}}, "counts"):
            raise PipelineError("not what its stage writes", mismatch, where=path, hint=HINT)
        if not record["runs"]:
            raise PipelineError("no runs are listed, each with its weights and scores", path, hint=HINT)
        runs += [{"seed": seed, **run} for run in record["runs"]]
        counts |= record.get("counts", {})  # the same in every seed
    return runs, counts, record.get("recipe", {}).get("select", "last")


@dataclass(frozen=True)
class EvalResult:
    """Results on one evaluation set.

    Attributes:
        scores: for each seed, metric -> percent; a kind of task may add further figures.
        random_weights: the same for training from random weights, for the seeds that have it.
        majority_baseline: metric -> percent of the best constant answer.
        counts: reason -> number of dropped examples.
        best: predictions of the best seed.
        uncertainty: metric -> intervals and comparisons, see ``confidence_intervals``.
    """

    examples: Sequence[Any]
    scores: list[dict[str, float]]
    random_weights: list[dict[str, float]]
    majority_baseline: dict[str, float]
    counts: Counter[str]
    best: Rows
    uncertainty: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskScores:
    """A task's results by evaluation set; ``best`` is the best seed by the main metric on the first set."""

    spec: TaskSpec
    seeds: tuple[int, ...]
    best: int
    results: dict[str, EvalResult]

    def table(self) -> list[dict[str, Any]]:
        """Return rows of ``results/scores.json``, one per evaluation set and metric.

        ``values`` are in the order of seeds. ``best`` is the value of the task's best seed; another seed may have a
        higher value in this set and metric.
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
            "best": values[self.seeds.index(self.best)],
            "best_seed": self.best,
            "majority_baseline": result.majority_baseline[metric],
            "random_weights": fmean(random_weights) if random_weights else None,
            **result.uncertainty[metric],
        }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Return the mean, and the sample standard deviation if there is more than one value."""
    return {"mean": fmean(values), "deviation": stdev(values) if len(values) > 1 else None}


def score_task(spec: TaskSpec, seeds: Sequence[int], bag_of_words: bool = False) -> TaskScores:
    """Score one task over ``seeds``, and the bag-of-words baseline too if ``bag_of_words``."""
    task = make_task(spec)
    best: int | None = None
    results = {}
    training = task.read(TASKS / spec.name / spec.train) if bag_of_words and applies(spec) else None
    for name, eval_set in spec.scores.items():
        counts: Counter[str] = Counter()
        examples = task.read(TASKS / spec.name / eval_set.file, name, counts=counts)
        predicted = [read_predictions(predictions_path(spec.name, seed, "pretrained", name)) for seed in seeds]
        from_random = read_baseline_predictions(spec.name, seeds, "random", name)
        scores = [task.score(name, examples, rows) for rows in predicted]
        if best is None:  # the first set decides; if seeds are equal, the first seed is the best
            best = max(range(len(scores)), key=lambda index: scores[index][eval_set.metrics[0]])
        baselines = {"random_weights": from_random} if from_random else {}
        if training is not None:
            baselines["bag_of_words"] = [predict(spec, training, examples)]
        results[name] = EvalResult(
            examples=examples,
            scores=scores,
            random_weights=[task.score(name, examples, rows) for rows in from_random],
            majority_baseline=task.majority_baseline(name, examples),
            counts=counts,
            best=predicted[best],
            uncertainty=confidence_intervals(spec, name, examples, predicted, baselines),
        )
    assert best is not None  # a task has at least one evaluation set
    return TaskScores(spec, tuple(seeds), seeds[best], results)


def confidence_intervals(
    spec: TaskSpec, eval_set: str, examples: Sequence[Any], predicted: Sequence[Rows], baselines: dict[str, list[Rows]]
) -> dict[str, dict[str, Any]]:
    """Return, for each metric, the interval of the score, and the score, interval and comparison of each baseline.

    Args:
        predicted: the predictions of each seed.
        baselines: name of another system -> the predictions of each of its runs, on the same examples.
    """
    task, systems = make_task(spec), [predicted, *baselines.values()]
    statistics = task.statistics(eval_set, examples, [rows for runs in systems for rows in runs])
    groups = [task.group(example) for example in examples]
    result = {}
    for metric, metric_statistics in statistics.items():
        units = make_units(metric_statistics, [len(runs) for runs in systems], groups)
        resampled = resampled_values(units, derive_seed("interval", spec.name, eval_set, metric))
        seed = derive_seed("swaps", spec.name, eval_set, metric)
        result[metric] = {
            "interval": score_interval(units, 0, resampled[0]),
            "units": units.count,
            "baselines": {
                name: {
                    "score": units.score(index),
                    "interval": score_interval(units, index, resampled[index]),
                    "vs_baseline": asdict(compare(units, resampled, len(examples), seed, index)),
                }
                for index, name in enumerate(baselines, start=1)
            },
        }
    return result


NUM_LENGTH_CLASSES, NUM_WORST = 5, 20


def error_analysis(spec: TaskSpec, example_results: Sequence[ExampleResult]) -> dict[str, Any]:
    """Return the analysis of errors on one evaluation set, as in ``results/tasks/<task>.json``."""
    matrix = confusion(spec, example_results)
    return {
        "confusion": matrix,
        "classes": class_scores(matrix) if matrix and spec.kind == "classification" else None,
        "lengths": by_length(example_results),
        "wrong": sum(result.right < 1 for result in example_results),
        "worst": worst(example_results),
    }


def confusion(spec: TaskSpec, example_results: Sequence[ExampleResult]) -> dict[str, Any] | None:
    """Return the confusion matrix, ``counts[gold][predicted]`` in the order of ``labels``; None without labels."""
    if spec.kind == "tagging":
        sides = [(result.gold.split(), result.predicted.split()) for result in example_results]
        pairs = Counter(pair for gold, predicted in sides for pair in zip(gold, predicted, strict=True))
    elif spec.kind == "classification" and spec.range is None:
        pairs = Counter((result.gold, result.predicted) for result in example_results)
    else:
        return None
    labels = list(spec.labels) or sorted({label for pair in pairs for label in pair})
    return {"labels": labels, "counts": [[pairs[gold, predicted] for predicted in labels] for gold in labels]}


def class_scores(confusion: dict[str, Any]) -> list[dict[str, Any]]:
    """Return support, precision, recall and F1 of each class in percent; None if there is nothing to divide by."""
    counts = confusion["counts"]
    rows = []
    for index, label in enumerate(confusion["labels"]):
        correct, support = counts[index][index], sum(counts[index])
        predicted = sum(of_gold[index] for of_gold in counts)
        row = {
            "label": label,
            "support": support,
            "precision": 100.0 * correct / predicted if predicted else None,
            "recall": 100.0 * correct / support if support else None,
            "f1": 100.0 * 2 * correct / (support + predicted) if support + predicted else None,
        }
        rows.append(row)
    return rows


def by_length(example_results: Sequence[ExampleResult]) -> list[dict[str, float]]:
    """Divide the examples by number of words into classes of about equal size; return the mean ``right`` of each."""
    lengths = sorted(result.words for result in example_results)
    last = [-(-len(lengths) * step // NUM_LENGTH_CLASSES) - 1 for step in range(1, NUM_LENGTH_CLASSES + 1)]
    ends = sorted({lengths[index] for index in last})
    classes: list[list[ExampleResult]] = [[] for _ in ends]
    for result in example_results:
        classes[bisect_left(ends, result.words)].append(result)
    return [
        {
            "from": min(result.words for result in members),
            "to": end,
            "examples": len(members),
            "right": fmean(result.right for result in members),
        }
        for end, members in zip(ends, classes, strict=True)
    ]


def worst(example_results: Sequence[ExampleResult]) -> list[dict[str, Any]]:
    """Return the worst errors, sorted by lowest ``right``, then highest confidence, then order in the file."""
    wrong = [result for result in example_results if result.right < 1]
    wrong.sort(key=lambda result: (result.right, -(result.confidence or 0.0)))
    return [asdict(result) for result in wrong[:NUM_WORST]]
