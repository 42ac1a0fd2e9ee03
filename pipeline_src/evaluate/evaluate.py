"""Stage ``evaluate``: score prediction files against the tasks' files, without a model.

It writes:

- ``results/scores.json``: a row for each task, evaluation set and metric. A row has the score of every seed, their
  mean, standard deviation and best, and the scores of the baselines (majority, random weights, bag of words). Rows of
  training on a part of the labels are apart, in ``few_labels``.
- ``results/tasks/<task>.json``: details of one task, such as all runs, the number of dropped examples, and the errors
  of the best seed.
- ``results/submissions/``: files for leaderboards.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, write_json
from pipeline_src.base.paths import SCORES, SUBMISSIONS, TASK_RESULTS
from pipeline_src.base.progress import log
from pipeline_src.evaluate.predictions import Json, read_task
from pipeline_src.evaluate.scores import few_labels_table, label_curve, score_table, score_task, task_details
from pipeline_src.evaluate.submissions import MAJORITY, submissions, write_submissions
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.schema import NO_TEACHER
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.made.from_corpus import RULES as CORPUS_RULES
from pipeline_src.tasks.made.from_corpus import task_origin
from pipeline_src.tasks.made.synthetic import RULES as SYNTHETIC_RULES

# Order of tasks in the tables, by origin.
ORDER = ("fetched", "from the corpus", "synthetic")


def run(*, task_source: str, tasks: tuple[str, ...], finetune: FinetuneParams) -> None:
    """Read ``results/predictions`` and ``data/tasks``, and write scores, details of each task, and submissions."""
    origins = {task: task_origin(task, task_source) for task in tasks}
    synthetic = [task for task in tasks if origins[task] == "synthetic"]
    from_corpus = [task for task in tasks if origins[task] == "from the corpus"]
    # Tasks that are fetched although `task_source` is "synthetic" have no synthetic form, such as the user's own tasks.
    own = [task for task in tasks if task_origin(task, "synthetic") == "fetched"]

    rows: list[Json] = []
    few_labels: list[Json] = []
    details: dict[str, Json] = {}
    files: dict[str, str] = {}
    missing: dict[str, list[str]] = {}
    for task in sorted(tasks, key=lambda task: ORDER.index(origins[task])):
        spec = load_spec(task)
        label_counts = finetune.recipe(task).label_counts if finetune.teacher == NO_TEACHER else ()
        is_similarity = spec.is_pair and spec.range is not None and task not in synthetic
        # docs/tasks.md lists the tasks with this baseline.
        bag_of_words = task in from_corpus or task in own or is_similarity or bool(label_counts)

        read = read_task(spec, finetune.seeds, bag_of_words or task in MAJORITY, label_counts)
        best, results = score_task(read, bag_of_words)
        table = score_table(read, best, results)
        rows += table
        details[task] = {
            "task": task,
            "synthetic": task in synthetic,
            "rows": table,
            **task_details(read, best, results),
        }
        if label_counts:
            of_parts = few_labels_table(read, best, next(iter(results.values())))
            few_labels += of_parts
            details[task]["label_curve"] = label_curve(read, of_parts, table[0])

        task_files, without_predictions = submissions(read, best, results)
        repeated = task_files.keys() & files.keys()
        if repeated:
            hint = "give each evaluation set a different file name in `test.submit`"
            raise PipelineError("duplicate submission file name", min(repeated), where=f"task {task}", hint=hint)
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
    # Keys without content are left out, so that scores.json stays equal to files written before they existed.
    if few_labels:
        recorded["few_labels"] = few_labels
    grids = [task for task, content in details.items() if has_grid(content["runs"])]
    if grids:
        recorded["best_of_grid"] = grids
    write_json(SCORES, recorded)
    log.info("%d scores of %d tasks", len(rows), len(tasks))


def has_grid(runs: Sequence[Json]) -> bool:
    # Returns whether several runs of the same seed were compared on the development set. The scores are those of
    # pretrained weights, so the grid of the random baseline does not count.
    seeds = [run["seed"] for run in runs if run["weights"] == "pretrained"]
    return len(set(seeds)) < len(seeds)
