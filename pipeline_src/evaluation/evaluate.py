"""Stage ``evaluate``: score prediction files against the tasks' files, without a model.

``results/scores.json`` has a row per task, evaluation set and metric: the score of every seed, their mean, deviation
and best, the score of the majority baseline, and the mean score of the same training from random weights.
``results/tasks/<task>.json`` has the details of one task: every run, the number of dropped examples, and the errors of
the best seed. ``results/submissions/`` has files for leaderboards.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, write_json
from pipeline_src.common.paths import SCORES, SUBMISSIONS, TASK_RESULTS, TASKS, predictions_folder
from pipeline_src.common.progress import log
from pipeline_src.config.finetune import FinetuneParams
from pipeline_src.config.schema import NO_TEACHER
from pipeline_src.download import from_corpus
from pipeline_src.download.synthetic import RULES
from pipeline_src.evaluation.bag_of_words import applies, predict
from pipeline_src.evaluation.scores import (
    TaskScores,
    confidence_intervals,
    error_analysis,
    predictions_path,
    read_baseline_predictions,
    read_predictions,
    read_runs,
    score_task,
    spread,
)
from pipeline_src.evaluation.submissions import submissions, write_submissions
from pipeline_src.tasks.examples import labelled_part
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.spec import load_spec


def run(*, task_source: str, tasks: tuple[str, ...], finetune: FinetuneParams) -> None:
    """Read ``results/predictions`` and ``data/tasks``; write scores, a file per task, and submissions."""
    origins = {task: from_corpus.task_origin(task, task_source) for task in tasks}
    rules = {task: RULES[task] for task in tasks if origins[task] == "synthetic"}
    rows: list[dict[str, Any]] = []
    by_task: dict[str, dict[str, Any]] = {}
    files: dict[str, str] = {}
    missing: dict[str, list[str]] = {}
    made = {task: from_corpus.RULES[task] for task in tasks if origins[task] == "from the corpus"}
    custom = [
        task for task in tasks if from_corpus.task_origin(task, "synthetic") == "fetched"
    ]  # these have no synthetic form
    for task in sorted(tasks, key=lambda task: (task in rules, task in made)):  # real ones first
        spec = load_spec(task)
        similarity = task not in rules and spec.is_pair and spec.range is not None
        label_counts = finetune.recipe(task).label_counts if finetune.teacher == NO_TEACHER else ()
        bag_of_words = task in made or task in custom or similarity or bool(label_counts)
        scores = score_task(spec, finetune.seeds, bag_of_words)
        table = scores.table()
        rows += table
        by_task[task] = {"task": task, "synthetic": task in rules, "rows": table, **task_details(scores)}
        if label_counts:
            by_task[task]["label_curve"] = label_curve(scores, label_counts)
        task_files, without_predictions = submissions(scores)
        if repeated := task_files.keys() & files.keys():
            hint = "give each evaluation set's `test` its own name to submit"
            raise PipelineError("two submissions have one name", min(repeated), where=f"task {task}", hint=hint)
        files |= task_files
        if without_predictions:
            missing[task] = without_predictions

    with atomic_directory(TASK_RESULTS) as folder:
        for task, content in by_task.items():
            write_json(folder / f"{task}.json", content)
    with atomic_directory(SUBMISSIONS) as folder:
        write_json(folder / "contents.json", write_submissions(folder, files, missing))
    recorded: dict[str, Any] = {
        "synthetic": bool(rules),
        "task_source": task_source,
        "rules": rules,
        "from_corpus": made,
        "further": custom,
        "best_epoch": [task for task, details in by_task.items() if details["select"] == "best"],
        "rows": rows,
    }
    # Without a grid there is no such key, so that scores from before it stay as they are.
    grids = [task for task, details in by_task.items() if has_grid(details["runs"])]
    if grids:
        recorded["best_of_grid"] = grids
    write_json(SCORES, recorded)
    log.info("%d scores of %d tasks", len(rows), len(tasks))


def has_grid(runs: Sequence[dict[str, Any]]) -> bool:
    """Return whether several runs of one seed were compared on the development set."""
    return len({(run["seed"], run["weights"]) for run in runs}) < len(runs)


def task_details(scores: TaskScores) -> dict[str, Any]:
    """Return what ``results/tasks/<task>.json`` has: the runs, their spread, counts of dropped examples, errors."""
    spec, task = scores.spec, make_task(scores.spec)
    runs, counts, select = read_runs(spec.name, scores.seeds)
    for name, result in scores.results.items():
        file = spec.scores[name].file
        counts[file] = {**counts.get(file, {}), **result.counts}
    return {
        "kind": spec.kind,
        "seeds": list(scores.seeds),
        "best_seed": scores.best,
        "select": select,
        "runs": runs,
        "spread": spreads(scores, runs),
        "counts": counts,
        "figures": {  # what a task reports besides the set's metrics, such as a threshold, seed by seed
            name: {key: [score[key] for score in result.scores] for key in sorted(extra)}
            for name, result in scores.results.items()
            if (extra := set(result.scores[0]) - set(spec.scores[name].metrics))
        },
        "errors": {
            name: error_analysis(spec, task.example_results(name, result.examples, result.best))
            for name, result in scores.results.items()
        },
    }


def spreads(scores: TaskScores, runs: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return mean, deviation, best and count of each metric on the first evaluation set, over seeds and over all runs.

    A seed's score is that of the best run of its grid. A metric that is newer than the runs exists only over seeds.
    """
    name, result = next(iter(scores.results.items()))
    by_weights = {"pretrained": result.scores, "random": result.random_weights}
    return {
        weights: {
            metric: {
                "seeds": _spread([score[metric] for score in seed_scores]),
                "runs": _spread(
                    [run["dev"][metric] for run in runs if run["weights"] == weights and metric in run["dev"]]
                ),
            }
            for metric in scores.spec.scores[name].metrics
        }
        for weights, seed_scores in by_weights.items()
        if seed_scores
    }


def _spread(values: list[float]) -> dict[str, Any]:
    if not values:
        return {"count": 0, "mean": None, "deviation": None, "best": None}
    return {"count": len(values), **spread(values), "best": max(values)}


def label_curve(scores: TaskScores, label_counts: Sequence[int]) -> list[dict[str, Any]]:
    """Return a point for each number of labelled examples, ascending; the last point is the complete training file.

    A point has ``examples``, and ``systems`` (``pretrained``, ``random_weights``, ``bag_of_words``), which are trained
    on the same examples: each system's main score on the first evaluation set, with its interval.
    """
    spec, seeds, task = scores.spec, scores.seeds, make_task(scores.spec)
    (name, result), metric = next(iter(scores.results.items())), spec.eval_set(None).metrics[0]
    training = task.read(TASKS / spec.name / spec.train)

    def point(count: int, seed_scores: Sequence[dict[str, float]], uncertainty: dict[str, Any]) -> dict[str, Any]:
        pretrained = {"score": fmean(score[metric] for score in seed_scores), "interval": uncertainty["interval"]}
        baselines = {
            system: {key: value[key] for key in ("score", "interval")}
            for system, value in uncertainty["baselines"].items()
        }
        return {"examples": count, "systems": {"pretrained": pretrained, **baselines}}

    points = []
    for count in sorted(count for count in label_counts if count < len(training)):
        folder = predictions_folder("pretrained", count)
        predicted = [read_predictions(predictions_path(spec.name, seed, folder, name)) for seed in seeds]
        random = read_baseline_predictions(spec.name, seeds, predictions_folder("random", count), name)
        baselines = {"random_weights": random} if random else {}
        if applies(spec):
            parts = [labelled_part(spec.name, seed, training, count) for seed in seeds]
            baselines["bag_of_words"] = [predict(spec, part, result.examples) for part in parts]
        uncertainty = confidence_intervals(spec, name, result.examples, predicted, baselines)[metric]
        points.append(point(count, [task.score(name, result.examples, rows) for rows in predicted], uncertainty))
    return [*points, point(len(training), result.scores, result.uncertainty[metric])]
