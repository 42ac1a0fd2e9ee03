"""Reader of a task's data, prediction files and ``run.json``. Each file is read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, read_json_lines
from pipeline_src.base.paths import TASKS, predictions_folder, task_predictions
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.task import Prediction, Task

HINT = "run the stage `finetune` for this task again"
RUN = {
    "runs": [{"weights": str, "dev": {str: float}}],
    "counts": {str: {str: int}},
    "recipe": {"select": str},
}
Json = dict[str, Any]
Rows = list[Prediction]

# Name of a system -> the predictions of each of its runs. The first system is `pretrained`, with one run per seed.
Systems = dict[str, list[Rows]]


@dataclass(frozen=True)
class EvalSetFiles:
    # `counts`: reason -> number of dropped examples.

    examples: Sequence[Any]
    counts: Counter[str]
    systems: Systems


@dataclass(frozen=True)
class TaskFiles:
    """All data of a task that its evaluation reads.

    Attributes:
        training: examples of the training file; empty if no baseline needs them.
        eval_sets: name of an evaluation set -> its examples and predictions.
        parts: number of labelled examples -> predictions for the first evaluation set after training on that many
            examples, in ascending order.
        runs: the runs of all seeds, each with its ``seed``.
        counts: file -> reason -> number of dropped or truncated examples.
        select: which epoch of each run was selected, ``last`` or ``best``.
    """

    task: Task
    seeds: Sequence[int]
    training: Sequence[Any]
    eval_sets: dict[str, EvalSetFiles]
    parts: dict[int, Systems]
    runs: list[Json]
    counts: dict[str, dict[str, int]]
    select: str


def read_task(spec: TaskSpec, seeds: Sequence[int], with_training: bool, label_counts: Sequence[int]) -> TaskFiles:
    task = make_task(spec)
    folder = TASKS / spec.name
    training = task.read(folder / spec.train) if with_training else []
    eval_sets = {}
    for name, eval_set in spec.scores.items():
        dropped: Counter[str] = Counter()
        examples = task.read(folder / eval_set.file, name, counts=dropped)
        eval_sets[name] = EvalSetFiles(examples, dropped, read_systems(spec.name, seeds, name))

    # A count that is not smaller than the training file was not trained separately.
    first_set = next(iter(spec.scores))
    parts = {}
    for count in sorted(label_counts):
        if count < len(training):
            parts[count] = read_systems(spec.name, seeds, first_set, count)

    runs: list[Json] = []
    counts: dict[str, dict[str, int]] = {}
    for seed in seeds:
        record = read_json(task_predictions(spec.name, seed) / "run.json", RUN)
        runs += [{"seed": seed, **run} for run in record["runs"]]
        # The counts are the same for every seed.
        counts |= record["counts"]
        select = record["recipe"]["select"]
    return TaskFiles(task, seeds, training, eval_sets, parts, runs, counts, select)


def read_systems(task: str, seeds: Sequence[int], eval_set: str, labels: int | None = None) -> Systems:
    # Example with labels=100: {task}/{seed}/predicted/pretrained-100-labels/rte.jsonl. None: the whole training file.
    folder = predictions_folder("pretrained", labels)
    systems = {"pretrained": [read_predictions(predictions_path(task, seed, folder, eval_set)) for seed in seeds]}

    # Predictions after training from random weights are optional.
    folder = predictions_folder("random", labels)
    paths = [predictions_path(task, seed, folder, eval_set) for seed in seeds]
    from_random = [read_predictions(path) for path in paths if path.parent.exists()]
    if from_random:
        systems["random_weights"] = from_random
    return systems


def predictions_path(task: str, seed: int, weights: str, file: str) -> Path:
    return task_predictions(task, seed) / weights / f"{file}.jsonl"


def read_predictions(path: Path) -> Rows:
    if not path.exists():
        raise PipelineError("predictions not found", path, hint=HINT)
    return list(read_json_lines(path, {"id": str, "prediction": object}, "invalid prediction", HINT))
