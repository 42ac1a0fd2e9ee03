"""Scores of one task over its seeds, computed from prediction files and the task's files; analysis of errors."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, read_json_lines, schema_error
from pipeline_src.base.paths import TASKS, predictions_folder, task_predictions
from pipeline_src.evaluate.bag_of_words import applies, predict
from pipeline_src.evaluate.significance import compare, make_units, resampled_values, score_interval
from pipeline_src.study.task_spec import EvalSetSpec, TaskSpec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.task import ExampleResult, Prediction

HINT = "run the stage `finetune` for this task again"
OPTIONAL = {
    "outputs": [float],
    "confidence": float,
    "null_score_difference": float,
    "nbest": [{"text": str, "probability": float}],
}
Json = dict[str, Any]
Rows = list[Prediction]


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
        mismatch = schema_error(row, optional)
        if mismatch:
            raise PipelineError("not a prediction", mismatch, where=f"{path}:{number}", hint=HINT)
    return rows


def read_systems(
    task: str, seeds: Sequence[int], eval_set: str, labels: int | None = None
) -> tuple[list[Rows], dict[str, list[Rows]]]:
    """Read the predictions of every seed, of training on the whole file or on ``labels`` examples.

    Returns:
        The predictions of the pretrained model by seed; ``random_weights`` -> predictions of the seeds that have this
        baseline, if there are any.
    """
    # As {task}/{seed}/predicted/pretrained-100-labels/rte.jsonl.
    folder = predictions_folder("pretrained", labels)
    predicted = [read_predictions(predictions_path(task, seed, folder, eval_set)) for seed in seeds]

    folder = predictions_folder("random", labels)
    paths = [predictions_path(task, seed, folder, eval_set) for seed in seeds]
    from_random = [read_predictions(path) for path in paths if path.parent.exists()]
    return predicted, {"random_weights": from_random} if from_random else {}


def read_runs(task: str, seeds: Sequence[int]) -> tuple[list[Json], dict[str, dict[str, int]], str]:
    """Read the runs of all seeds.

    Returns:
        The runs, each with its ``seed``; file -> reason -> number of dropped or truncated examples; which epoch was
        selected, ``last`` or ``best``.
    """
    runs: list[Json] = []
    counts: dict[str, dict[str, int]] = {}
    for seed in seeds:
        path = task_predictions(task, seed) / "run.json"
        record = read_json(path, {"runs": [{"weights": str, "dev": {str: float}}]})
        # Counts, and how an epoch was selected, are the same for every seed.
        recorded = record.get("counts", {})
        mismatch = schema_error(recorded, {str: {str: int}}, "counts")
        if mismatch:
            raise PipelineError("not what its stage writes", mismatch, where=path, hint=HINT)
        if not record["runs"]:
            raise PipelineError("no runs are listed, each with its weights and scores", path, hint=HINT)
        runs += [{"seed": seed, **run} for run in record["runs"]]
        counts |= recorded
        select = record.get("recipe", {}).get("select", "last")
    return runs, counts, select


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
    uncertainty: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskScores:
    """A task's results by evaluation set.

    Attributes:
        best: the best seed by the main metric on the first set.
        training: examples of the training file; empty if no baseline was trained on them.
    """

    spec: TaskSpec
    seeds: tuple[int, ...]
    best: int
    results: dict[str, EvalResult]
    training: Sequence[Any] = ()

    def table(self) -> list[Json]:
        """Return rows of ``results/scores.json``, one per evaluation set and metric.

        ``values`` are in the order of seeds. ``best`` is the value of the task's best seed; another seed may have a
        higher value in this set and metric.
        """
        rows = []
        for name, eval_set in self.spec.scores.items():
            rows += [self._row(name, eval_set, metric) for metric in eval_set.metrics]
        return rows

    def _row(self, name: str, eval_set: EvalSetSpec, metric: str) -> Json:
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
    training = task.read(TASKS / spec.name / spec.train) if bag_of_words else []
    best: int | None = None
    results = {}
    for name, eval_set in spec.scores.items():
        counts: Counter[str] = Counter()
        examples = task.read(TASKS / spec.name / eval_set.file, name, counts=counts)
        predicted, baselines = read_systems(spec.name, seeds, name)
        scores = [task.score(name, examples, rows) for rows in predicted]
        random_weights = [task.score(name, examples, rows) for rows in baselines.get("random_weights", [])]
        if best is None:
            # The first set decides. If seeds are equal, the first seed is the best.
            main = [score[eval_set.metrics[0]] for score in scores]
            best = main.index(max(main))
        if training and applies(spec):
            baselines["bag_of_words"] = [predict(spec, training, examples)]
        results[name] = EvalResult(
            examples=examples,
            scores=scores,
            random_weights=random_weights,
            majority_baseline=task.majority_baseline(name, examples),
            counts=counts,
            best=predicted[best],
            uncertainty=confidence_intervals(spec, name, examples, predicted, baselines),
        )
    # A task has at least one evaluation set.
    assert best is not None
    return TaskScores(spec, tuple(seeds), seeds[best], results, training)


def confidence_intervals(
    spec: TaskSpec, eval_set: str, examples: Sequence[Any], predicted: Sequence[Rows], baselines: dict[str, list[Rows]]
) -> dict[str, Json]:
    """Return, for each metric, the interval of the score, and the score, interval and comparison of each baseline.

    Args:
        predicted: the predictions of each seed.
        baselines: name of another system -> the predictions of each of its runs, on the same examples.
    """
    task = make_task(spec)
    systems = [predicted, *baselines.values()]
    statistics = task.statistics(eval_set, examples, list(chain.from_iterable(systems)))
    groups = [task.group(example) for example in examples]
    result = {}
    for metric, metric_statistics in statistics.items():
        units = make_units(metric_statistics, [len(runs) for runs in systems], groups)
        resampled = resampled_values(units, derive_seed("interval", spec.name, eval_set, metric))
        seed = derive_seed("swaps", spec.name, eval_set, metric)
        compared = {}
        for index, name in enumerate(baselines, start=1):
            compared[name] = {
                "score": units.score(index),
                "interval": score_interval(units, index, resampled[index]),
                "vs_baseline": asdict(compare(units, resampled, len(examples), seed, index)),
            }
        interval = score_interval(units, 0, resampled[0])
        result[metric] = {"interval": interval, "units": units.count, "baselines": compared}
    return result


NUM_LENGTH_CLASSES = 5
NUM_WORST = 20


def error_analysis(spec: TaskSpec, example_results: Sequence[ExampleResult]) -> Json:
    """Return the analysis of errors on one evaluation set, as in ``results/tasks/<task>.json``."""
    matrix = confusion(spec, example_results)
    return {
        "confusion": matrix,
        "classes": class_scores(matrix) if matrix and spec.kind == "classification" else None,
        "lengths": by_length(example_results),
        "wrong": sum(result.right < 1 for result in example_results),
        "worst": worst(example_results),
    }


def confusion(spec: TaskSpec, example_results: Sequence[ExampleResult]) -> Json | None:
    """Return the confusion matrix, ``counts[gold][predicted]`` in the order of ``labels``; None without labels."""
    is_tagging = spec.kind == "tagging"
    if not is_tagging and (spec.kind != "classification" or spec.range is not None):
        return None
    pairs: Counter[tuple[str, str]] = Counter()
    for result in example_results:
        if is_tagging:
            pairs.update(zip(result.gold.split(), result.predicted.split(), strict=True))
        else:
            pairs[result.gold, result.predicted] += 1
    labels = list(spec.labels) or sorted(set(chain.from_iterable(pairs)))
    counts = []
    for gold in labels:
        counts.append([pairs[gold, predicted] for predicted in labels])
    return {"labels": labels, "counts": counts}


def class_scores(confusion: Json) -> list[Json]:
    """Return support, precision, recall and F1 of each class in percent; None if there is nothing to divide by."""
    counts = confusion["counts"]
    rows = []
    for index, label in enumerate(confusion["labels"]):
        correct = counts[index][index]
        support = sum(counts[index])
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
    # The longest text of each class, rounded up: of 12 examples, numbers 3, 5, 8, 10 and 12.
    ends = set()
    for step in range(1, NUM_LENGTH_CLASSES + 1):
        last = -(-len(lengths) * step // NUM_LENGTH_CLASSES)
        ends.add(lengths[last - 1])
    classes: dict[int, list[ExampleResult]] = {end: [] for end in sorted(ends)}
    longest = list(classes)
    for result in example_results:
        end = longest[bisect_left(longest, result.words)]
        classes[end].append(result)
    rows = []
    for end, members in classes.items():
        shortest = min(result.words for result in members)
        right = fmean(result.right for result in members)
        rows.append({"from": shortest, "to": end, "examples": len(members), "right": right})
    return rows


def worst(example_results: Sequence[ExampleResult]) -> list[Json]:
    """Return the worst errors, sorted by lowest ``right``, then highest confidence, then order in the file."""
    wrong = [result for result in example_results if result.right < 1]
    wrong.sort(key=lambda result: (result.right, -(result.confidence or 0.0)))
    return [asdict(result) for result in wrong[:NUM_WORST]]
