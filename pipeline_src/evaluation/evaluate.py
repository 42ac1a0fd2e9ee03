"""Stage ``evaluate``: score prediction files against the tasks' files, without a model.

``results/scores.json`` is a list of rows, one per task, evaluation set and metric: the score of every seed, their
mean, deviation and best, the majority baseline and the same training from random weights.
``results/tasks/<task>.json`` has the details of one task: every run, dropped examples, and the errors of its best
seed. ``results/submissions/`` has files for leaderboards.
"""

from __future__ import annotations

from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, write_json
from pipeline_src.common.paths import SCORES, SUBMISSIONS, TASK_RESULTS
from pipeline_src.common.progress import log
from pipeline_src.config.finetune import FinetuneParams
from pipeline_src.config.schema import NO_TEACHER
from pipeline_src.download import from_corpus
from pipeline_src.download.synthetic import RULES
from pipeline_src.evaluation.label_curve import label_curve
from pipeline_src.evaluation.scores import TaskScores, error_analysis, read_runs, score_task, spread
from pipeline_src.evaluation.submissions import submissions, write_submissions
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
    further = [task for task in tasks if from_corpus.task_origin(task, "synthetic") == "fetched"]  # not the paper's
    for task in sorted(tasks, key=lambda task: (task in rules, task in made)):  # real ones first
        spec = load_spec(task)
        similarity = task not in rules and spec.is_pair and spec.range is not None
        scores = score_task(spec, finetune.seeds, bag_of_words=task in made or task in further or similarity)
        table = scores.table()
        rows += table
        label_counts = finetune.recipe(task).label_counts if finetune.teacher == NO_TEACHER else ()
        curve = label_curve(spec, finetune.seeds, label_counts)
        by_task[task] = {
            **{"task": task, "synthetic": task in rules, "rows": table, **task_details(scores)},
            **({"label_curve": curve} if curve else {}),
        }
        submitted, without = submissions(scores)
        if twice := submitted.keys() & files.keys():
            hint = "give each evaluation set's `test` a name of its own to submit"
            raise PipelineError("two submissions have one name", min(twice), where=f"task {task}", hint=hint)
        files |= submitted
        missing |= {task: without} if without else {}

    with atomic_directory(TASK_RESULTS) as folder:
        for task, content in by_task.items():
            write_json(folder / f"{task}.json", content)
    with atomic_directory(SUBMISSIONS) as folder:
        write_json(folder / "contents.json", write_submissions(folder, files, missing))
    kinds = {
        "synthetic": bool(rules),
        "task_source": task_source,
        "rules": rules,
        "from_corpus": made,
        "further": further,
    }
    best_epoch = [task for task, content in by_task.items() if content["select"] == "best"]
    write_json(SCORES, {**kinds, "best_epoch": best_epoch, "rows": rows})
    log.info("%d scores of %d tasks", len(rows), len(tasks))


def task_details(scores: TaskScores) -> dict[str, Any]:
    """Return every run, its spread, dropped and truncated examples, and the errors of the best seed."""
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
    """Return mean, deviation, best and count of each metric of the first set, over seeds and over all runs.

    The seeds are the best runs of each grid. The paper reports the best of its runs, others the mean over seeds;
    a grid's spread is not that of seeds. A metric declared after the runs exists for seeds only, whose
    predictions are kept.
    """
    name, result = next(iter(scores.results.items()))
    by_weights = {"pretrained": result.scores, "random": result.random_weights}
    return {
        weights: {
            metric: {
                "seeds": _spread([score[metric] for score in kept]),
                "runs": _spread(
                    [run["dev"][metric] for run in runs if run["weights"] == weights and metric in run["dev"]]
                ),
            }
            for metric in scores.spec.scores[name].metrics
        }
        for weights, kept in by_weights.items()
        if kept
    }


def _spread(values: list[float]) -> dict[str, Any]:
    if not values:
        return {"count": 0, "mean": None, "deviation": None, "best": None}
    return {"count": len(values), **spread(values), "best": max(values)}
