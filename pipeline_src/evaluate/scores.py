"""Scores of one task over its seeds, with baselines, confidence intervals and error analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import fmean, stdev
from typing import Any

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.evaluate.bag_of_words import applies, predict
from pipeline_src.evaluate.errors import error_analysis
from pipeline_src.evaluate.predictions import Json, Rows, Systems, TaskFiles
from pipeline_src.evaluate.significance import compare, make_units, resampled_values, score_interval
from pipeline_src.tasks.examples import labelled_part
from pipeline_src.tasks.task import Task


@dataclass(frozen=True)
class EvalResult:
    """Results on one evaluation set.

    Attributes:
        scores: for each seed, metric -> percent. Some kinds of task add further values.
        random_weights: like ``scores``, after training from random weights, for the seeds that have such a run.
        majority_baseline: metric -> percent of the best constant answer.
        best: predictions of the best seed.
        errors: error analysis of the predictions in ``best``.
        uncertainty: metric -> intervals and comparisons, from ``confidence_intervals``.
    """

    scores: list[dict[str, float]]
    random_weights: list[dict[str, float]]
    majority_baseline: dict[str, float]
    best: Rows
    errors: Json
    uncertainty: dict[str, Json]


def score_task(files: TaskFiles, bag_of_words: bool) -> tuple[int, dict[str, EvalResult]]:
    """Score every seed on every evaluation set.

    Args:
        bag_of_words: whether to score the bag-of-words baseline too.

    Returns:
        The index of the best seed, and a dictionary from evaluation sets to their results.
    """
    task = files.task
    best = 0
    results: dict[str, EvalResult] = {}
    for name, eval_set in files.eval_sets.items():
        examples = eval_set.examples
        systems = dict(eval_set.systems)
        if bag_of_words and applies(task.spec):
            systems["bag_of_words"] = [predict(task.spec, files.training, examples)]
        scores = [task.score(name, examples, rows) for rows in systems["pretrained"]]
        if not results:
            # The main metric on the first evaluation set decides which seed is best. The first of equal seeds wins.
            main = [score[task.spec.scores[name].metrics[0]] for score in scores]
            best = main.index(max(main))
        best_rows = systems["pretrained"][best]
        results[name] = EvalResult(
            scores=scores,
            random_weights=[task.score(name, examples, rows) for rows in systems.get("random_weights", ())],
            majority_baseline=task.majority_baseline(name, examples),
            best=best_rows,
            errors=error_analysis(task.spec, task.example_results(name, examples, best_rows)),
            uncertainty=confidence_intervals(task, name, examples, systems),
        )
    return best, results


def confidence_intervals(
    task: Task,
    eval_set: str,
    examples: Sequence[Any],
    systems: Systems,
) -> dict[str, Json]:
    """Compute intervals of all systems' scores, and compare the first system with each other system (baseline).

    Returns:
        For each metric, ``interval`` (of the first system), ``units`` (number of resampled units) and ``baselines``:
        for each other system, its ``score``, its ``interval``, and the comparison ``vs_baseline``.
    """
    statistics = task.statistics(eval_set, examples, list(chain.from_iterable(systems.values())))
    groups = [task.group(example) for example in examples]
    _, *baselines = systems
    result = {}
    for metric, metric_statistics in statistics.items():
        units = make_units(metric_statistics, [len(runs) for runs in systems.values()], groups)
        resampled = resampled_values(units, derive_seed("interval", task.spec.name, eval_set, metric))
        seed = derive_seed("swaps", task.spec.name, eval_set, metric)
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


def score_table(files: TaskFiles, best: int, results: dict[str, EvalResult]) -> list[Json]:
    # Returns the rows of scores.json. The `values` of a row are in the order of seeds. Its `best` is the value of the
    # task's best seed, although another seed may have a higher value on this set and metric.
    rows = []
    for name, eval_set in files.task.spec.scores.items():
        result = results[name]
        for metric in eval_set.metrics:
            row = _score_row(files, name, metric, best, result.scores, result.random_weights, result.uncertainty)
            row |= {"majority_baseline": result.majority_baseline[metric], "main": metric == eval_set.metrics[0]}
            rows.append(row)
    return rows


def few_labels_table(files: TaskFiles, best: int, complete: EvalResult) -> list[Json]:
    """Return rows as of ``score_table``, for training on parts of the labels, in ascending order of their number.

    A row has the main metric on the first evaluation set, and ``labels``, the number of training examples. All systems
    of a row are trained on the same examples.

    Args:
        best: index of the best seed after training on the complete file.
        complete: results on the first evaluation set after training on the complete file.
    """
    spec = files.task.spec
    examples = next(iter(files.eval_sets.values())).examples
    rows = []
    for count, predictions in files.parts.items():
        systems = dict(predictions)
        if applies(spec):
            parts = [labelled_part(spec.name, seed, files.training, count) for seed in files.seeds]
            systems["bag_of_words"] = [predict(spec, part, examples) for part in parts]
        row = _few_labels_row(files, best, systems, complete)
        row["title"] += f", {count:,} of {len(files.training):,} examples"
        row["labels"] = count
        rows.append(row)
    return rows


def _few_labels_row(files: TaskFiles, best: int, systems: Systems, complete: EvalResult) -> Json:
    task = files.task
    name, eval_set = next(iter(files.eval_sets.items()))
    metric = task.spec.scores[name].metrics[0]

    def scores_of(system: str) -> list[dict[str, float]]:
        return [task.score(name, eval_set.examples, predictions) for predictions in systems.get(system, ())]

    uncertainty = confidence_intervals(task, name, eval_set.examples, systems)
    scores = scores_of("pretrained")
    row = _score_row(files, name, metric, best, scores, scores_of("random_weights"), uncertainty)
    row["majority_baseline"] = complete.majority_baseline[metric]
    row["main"] = False
    return row


def label_curve(files: TaskFiles, few_labels: Sequence[Json], complete: Json) -> list[Json]:
    """Return the points of the label curve, in ascending order of the number of labelled examples.

    A point has ``examples`` (their number) and ``systems``: for ``pretrained``, ``random_weights`` and
    ``bag_of_words``, the main score on the first evaluation set, with its interval.

    Args:
        few_labels: rows of ``few_labels_table``.
        complete: row of the same metric and evaluation set, after training on the complete file.
    """
    points = []
    for row in (*few_labels, complete):
        systems = {"pretrained": {"score": row["mean"], "interval": row["interval"]}}
        for name, baseline in row["baselines"].items():
            systems[name] = {
                "score": baseline["score"],
                "interval": baseline["interval"],
            }
        examples = row.get("labels", len(files.training))
        points.append({"examples": examples, "systems": systems})
    return points


def _score_row(
    files: TaskFiles,
    eval_set: str,
    metric: str,
    best: int,
    scores: Sequence[dict[str, float]],
    random_scores: Sequence[dict[str, float]],
    uncertainty: dict[str, Json],
) -> Json:
    spec = files.task.spec
    values = [score[metric] for score in scores]
    random_weights = [score[metric] for score in random_scores]
    return {
        "task": spec.name,
        "eval_set": eval_set,
        "title": spec.scores[eval_set].title,
        "file": spec.scores[eval_set].file,
        "metric": metric,
        "examples": len(files.eval_sets[eval_set].examples),
        "values": values,
        **_mean_and_deviation(values),
        "best": values[best],
        "best_seed": files.seeds[best],
        "random_weights": fmean(random_weights) if random_weights else None,
        **uncertainty[metric],
    }


def task_details(files: TaskFiles, best: int, results: dict[str, EvalResult]) -> Json:
    # Returns the content of `results/tasks/<task>.json`.
    spec = files.task.spec
    counts = dict(files.counts)
    # Values other than the set's metrics, such as a threshold: evaluation set -> name -> the value of each seed.
    figures: dict[str, dict[str, list[float]]] = {}
    for name, eval_set in spec.scores.items():
        counts[eval_set.file] = {**counts.get(eval_set.file, {}), **files.eval_sets[name].counts}
        scores = results[name].scores
        for key in sorted(scores[0].keys() - set(eval_set.metrics)):
            figures.setdefault(name, {})[key] = [score[key] for score in scores]
    return {
        "kind": spec.kind,
        "seeds": list(files.seeds),
        "best_seed": files.seeds[best],
        "select": files.select,
        "runs": files.runs,
        "spread": _spreads(files, results),
        "counts": counts,
        "figures": figures,
        "errors": {name: result.errors for name, result in results.items()},
    }


def _spreads(files: TaskFiles, results: dict[str, EvalResult]) -> dict[str, Json]:
    # Returns the spread of each metric on the first evaluation set, over seeds (the best run of each seed's grid) and
    # over all runs.
    name, result = next(iter(results.items()))
    by_weights: dict[str, Json] = {}
    for weights, seed_scores in (("pretrained", result.scores), ("random", result.random_weights)):
        if not seed_scores:
            continue
        run_scores = [run["dev"] for run in files.runs if run["weights"] == weights]
        by_weights[weights] = {}
        for metric in files.task.spec.scores[name].metrics:
            by_weights[weights][metric] = {
                "seeds": _spread([score[metric] for score in seed_scores]),
                # Runs from before a metric was added do not have it.
                "runs": _spread([score[metric] for score in run_scores if metric in score]),
            }
    return by_weights


def _spread(values: list[float]) -> Json:
    if not values:
        return {"count": 0, "mean": None, "deviation": None, "best": None}
    return {"count": len(values), **_mean_and_deviation(values), "best": max(values)}


def _mean_and_deviation(values: Sequence[float]) -> dict[str, float | None]:
    return {"mean": fmean(values), "deviation": stdev(values) if len(values) > 1 else None}
