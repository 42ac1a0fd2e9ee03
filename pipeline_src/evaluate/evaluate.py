"""Stage ``evaluate``: score prediction files against the tasks' files, without a model.

``results/scores.json`` has a row per task, evaluation set and metric: the score of every seed, their mean, deviation
and best, the score of the majority baseline, and the mean score of the same training from random weights.
``results/tasks/<task>.json`` has the details of one task: every run, the number of dropped examples, and the errors of
the best seed. ``results/submissions/`` has files for leaderboards.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, write_json
from pipeline_src.base.paths import SCORES, SUBMISSIONS, TASK_RESULTS
from pipeline_src.base.progress import log
from pipeline_src.evaluate.bag_of_words import applies, predict
from pipeline_src.evaluate.scores import (
    Json,
    TaskScores,
    confidence_intervals,
    error_analysis,
    read_runs,
    read_systems,
    score_task,
    spread,
)
from pipeline_src.evaluate.submissions import submissions, write_submissions
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.schema import NO_TEACHER
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.examples import labelled_part
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.made.from_corpus import RULES as CORPUS_RULES
from pipeline_src.tasks.made.from_corpus import task_origin
from pipeline_src.tasks.made.synthetic import RULES as SYNTHETIC_RULES

# Tasks of these origins come one after another in the tables.
ORDER = ("fetched", "from the corpus", "synthetic")


def run(*, task_source: str, tasks: tuple[str, ...], finetune: FinetuneParams) -> None:
    """Read ``results/predictions`` and ``data/tasks``; write scores, a file per task, and submissions."""
    origins = {task: task_origin(task, task_source) for task in tasks}
    synthetic = [task for task in tasks if origins[task] == "synthetic"]
    from_corpus = [task for task in tasks if origins[task] == "from the corpus"]
    # The user's own tasks have no synthetic form.
    own = [task for task in tasks if task_origin(task, "synthetic") == "fetched"]

    rows: list[Json] = []
    details: dict[str, Json] = {}
    files: dict[str, str] = {}
    missing: dict[str, list[str]] = {}
    for task in sorted(tasks, key=lambda task: ORDER.index(origins[task])):
        spec = load_spec(task)
        label_counts = finetune.recipe(task).label_counts if finetune.teacher == NO_TEACHER else ()
        is_similarity = spec.is_pair and spec.range is not None and task not in synthetic
        # docs/tasks.md lists the tasks with this baseline.
        bag_of_words = task in from_corpus or task in own or is_similarity or bool(label_counts)

        scores = score_task(spec, finetune.seeds, bag_of_words)
        table = scores.table()
        rows += table
        details[task] = {"task": task, "synthetic": task in synthetic, "rows": table, **task_details(scores)}
        if label_counts:
            details[task]["label_curve"] = label_curve(scores, label_counts)

        task_files, without_predictions = submissions(scores)
        repeated = task_files.keys() & files.keys()
        if repeated:
            hint = "give each evaluation set's `test` its own name to submit"
            raise PipelineError("two submissions have one name", min(repeated), where=f"task {task}", hint=hint)
        files |= task_files
        if without_predictions:
            missing[task] = without_predictions

    with atomic_directory(TASK_RESULTS) as folder:
        for task, content in details.items():
            write_json(folder / f"{task}.json", content)
    with atomic_directory(SUBMISSIONS) as folder:
        write_json(folder / "contents.json", write_submissions(folder, files, missing))
    recorded: Json = {
        "synthetic": bool(synthetic),
        "task_source": task_source,
        "rules": {task: SYNTHETIC_RULES[task] for task in synthetic},
        "from_corpus": {task: CORPUS_RULES[task] for task in from_corpus},
        "further": own,
        "best_epoch": [task for task, content in details.items() if content["select"] == "best"],
        "rows": rows,
    }
    # Without a grid there is no such key, so that scores from before it stay as they are.
    grids = [task for task, content in details.items() if has_grid(content["runs"])]
    if grids:
        recorded["best_of_grid"] = grids
    write_json(SCORES, recorded)
    log.info("%d scores of %d tasks", len(rows), len(tasks))


def has_grid(runs: Sequence[Json]) -> bool:
    """Return whether several runs of one seed were compared on the development set."""
    return len({(run["seed"], run["weights"]) for run in runs}) < len(runs)


def task_details(scores: TaskScores) -> Json:
    """Return what ``results/tasks/<task>.json`` has: the runs, their spread, counts of dropped examples, errors."""
    spec = scores.spec
    task = make_task(spec)
    runs, counts, select = read_runs(spec.name, scores.seeds)
    # What a task reports besides the set's metrics, such as a threshold, seed by seed.
    figures: dict[str, dict[str, list[float]]] = {}
    errors = {}
    for name, result in scores.results.items():
        eval_set = spec.scores[name]
        counts[eval_set.file] = {**counts.get(eval_set.file, {}), **result.counts}
        for key in sorted(result.scores[0].keys() - set(eval_set.metrics)):
            figures.setdefault(name, {})[key] = [score[key] for score in result.scores]
        errors[name] = error_analysis(spec, task.example_results(name, result.examples, result.best))
    return {
        "kind": spec.kind,
        "seeds": list(scores.seeds),
        "best_seed": scores.best,
        "select": select,
        "runs": runs,
        "spread": spreads(scores, runs),
        "counts": counts,
        "figures": figures,
        "errors": errors,
    }


def spreads(scores: TaskScores, runs: list[Json]) -> dict[str, Json]:
    """Return mean, deviation, best and count of each metric on the first evaluation set, over seeds and over all runs.

    A seed's score is that of the best run of its grid. A metric that is newer than the runs exists only over seeds.
    """
    name, result = next(iter(scores.results.items()))
    metrics = scores.spec.scores[name].metrics
    by_weights: dict[str, Json] = {}
    for weights, seed_scores in (("pretrained", result.scores), ("random", result.random_weights)):
        # Training from random weights is optional.
        if not seed_scores:
            continue
        run_scores = [run["dev"] for run in runs if run["weights"] == weights]
        by_weights[weights] = {}
        for metric in metrics:
            by_weights[weights][metric] = {
                "seeds": _spread([score[metric] for score in seed_scores]),
                "runs": _spread([score[metric] for score in run_scores if metric in score]),
            }
    return by_weights


def _spread(values: list[float]) -> Json:
    if not values:
        return {"count": 0, "mean": None, "deviation": None, "best": None}
    return {"count": len(values), **spread(values), "best": max(values)}


def label_curve(scores: TaskScores, label_counts: Sequence[int]) -> list[Json]:
    """Return a point for each number of labelled examples, ascending; the last point is the complete training file.

    A point has ``examples``, and ``systems`` (``pretrained``, ``random_weights``, ``bag_of_words``), which are trained
    on the same examples: each system's main score on the first evaluation set, with its interval.
    """
    spec = scores.spec
    task = make_task(spec)
    name, result = next(iter(scores.results.items()))
    metric = spec.scores[name].metrics[0]
    points = []
    for count in sorted(label_counts):
        # The complete file is the last point.
        if count >= len(scores.training):
            break
        predicted, baselines = read_systems(spec.name, scores.seeds, name, count)
        if applies(spec):
            parts = [labelled_part(spec.name, seed, scores.training, count) for seed in scores.seeds]
            baselines["bag_of_words"] = [predict(spec, part, result.examples) for part in parts]
        uncertainty = confidence_intervals(spec, name, result.examples, predicted, baselines)
        values = [task.score(name, result.examples, rows)[metric] for rows in predicted]
        points.append(_curve_point(count, values, uncertainty[metric]))

    values = [score[metric] for score in result.scores]
    points.append(_curve_point(len(scores.training), values, result.uncertainty[metric]))
    return points


def _curve_point(count: int, values: Sequence[float], uncertainty: Json) -> Json:
    systems = {"pretrained": {"score": fmean(values), "interval": uncertainty["interval"]}}
    for name, baseline in uncertainty["baselines"].items():
        systems[name] = {"score": baseline["score"], "interval": baseline["interval"]}
    return {"examples": count, "systems": systems}
