"""Do two experiments differ by more than chance? Their answers to the same examples, compared example by example."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import TASKS, task_predictions
from pipeline_src.report.experiments import Experiment, Folders
from pipeline_src.report.traced import JsonRef

OURS, FIRST = "ours", "first"


def compared_with(first: Experiment, other: Experiment) -> JsonRef:
    """What parts ``other`` from ``first``, for each evaluation set and metric that both have.

    Both experiments' predictions and data are read where they lie. A set is left out where one of them has its
    predictions neither here nor in DVC's cache, or where their examples are not the same.

    Returns:
        By ``<evaluation set>/<metric>`` a :class:`pipeline_src.evaluation.uncertainty.Comparison` as a block:
        McNemar's exact test or a permutation test, and the interval of the difference, ``other`` less ``first``.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        sides = [Folders(experiment, Path(folder) / name) for experiment, name in ((other, OURS), (first, FIRST))]
        for task, eval_set, file in rows_of(first, other):
            try:
                found |= _tests(task, eval_set, file, sides)
            except PipelineError:  # nothing of it here: the page shows a dash
                continue
    return JsonRef(found, f"{other.name} against {first.name}")


def rows_of(first: Experiment, other: Experiment) -> list[tuple[str, str, str]]:
    """Task, evaluation set and file of the sets that both have scores of."""
    keys = [
        dict.fromkeys((row["task"], row["eval_set"], row["file"]) for row in experiment.scores.value["rows"])
        for experiment in (first, other)
    ]
    return [key for key in keys[0] if key in keys[1]]


def _tests(task: str, eval_set: str, file: str, sides: Sequence[Folders]) -> dict[str, Any]:
    """The comparison of each metric of one evaluation set.

    Raises:
        PipelineError: predictions or data of one side are not at hand, or damaged.
    """
    from pipeline_src.evaluation.task_scores import how_sure
    from pipeline_src.tasks.files.spec import load_spec
    from pipeline_src.tasks.handlers import HANDLERS

    files = [side.folder(TASKS / task) / file for side in sides]
    if files[0].read_bytes() != files[1].read_bytes():
        return {}
    spec = load_spec(task)
    examples = HANDLERS[spec.kind].read(spec, files[0], eval_set)
    ours, first = ([_predicted(side, task, restart, eval_set) for restart in side.restarts] for side in sides)
    sure = how_sure(spec, eval_set, examples, ours, {FIRST: first})
    return {f"{eval_set}/{metric}": of["baselines"][FIRST]["against"] for metric, of in sure.items()}


def _predicted(side: Folders, task: str, restart: int, eval_set: str) -> list[dict[str, Any]]:
    """A restart's prediction rows.

    Raises:
        PipelineError: as :func:`_tests`.
    """
    from pipeline_src.evaluation.prediction_files import predictions_path, read_predictions

    kept = task_predictions(task, restart)
    path = predictions_path(task, restart, "pretrained", eval_set)
    return read_predictions(side.folder(kept) / path.relative_to(kept))
