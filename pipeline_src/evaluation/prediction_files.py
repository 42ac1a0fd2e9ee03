"""What the stage ``finetune`` left for one task: prediction files and every run of every restart, read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import task_predictions
from pipeline_src.common.shapes import misfit

REMEDY = "run the stage `finetune` for this task again"
PREDICTED = {"id": str, "prediction": object}
SURE = {"outputs": [float], "confidence": float, "null_score_difference": float}  # where a row has them
Rows = list[dict[str, Any]]


def predictions_path(task: str, restart: int, weights: str, eval_set: str, test: bool = False) -> Path:
    """Where the predictions for an evaluation set's file lie, or for its test file."""
    return task_predictions(task, restart) / weights / f"{eval_set}{'.test' if test else ''}.jsonl"


def read_predictions(path: Path) -> Rows:
    """The rows of a prediction file, JSON lines.

    Raises:
        PipelineError: the file is missing, or a line of it is no prediction.
    """
    try:
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    except (FileNotFoundError, ValueError, RecursionError) as error:
        raise PipelineError("predictions cannot be read", path, where=error, remedy=REMEDY) from None
    for number, row in enumerate(rows, start=1):
        shape = PREDICTED | {key: SURE[key] for key in SURE if isinstance(row, dict) and row.get(key) is not None}
        if wrong := misfit(row, shape, f"line {number}"):
            raise PipelineError("not a prediction", wrong, where=path, remedy=REMEDY)
    return rows


def read_runs(task: str, restarts: Sequence[int]) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    """Every run of the listed restarts, and what was dropped and cut of each file, by reason.

    Returns:
        The runs as ``run.json`` lists them, each with its ``restart``; counts by file of the task.

    Raises:
        PipelineError: a restart's ``run.json`` is missing or malformed.
    """
    runs: list[dict[str, Any]] = []
    counts: dict[str, dict[str, int]] = {}
    for restart in restarts:
        path = task_predictions(task, restart) / "run.json"
        record = read_json(path, {"runs": [{"weights": str, "dev": {str: float}}]})
        if wrong := misfit(record.get("counts", {}), {str: {str: int}}, "counts"):
            raise PipelineError("not what its stage writes", wrong, where=path, remedy=REMEDY)
        listed = record["runs"]
        if not listed:
            raise PipelineError("no runs are listed, each with its weights and scores", path, remedy=REMEDY)
        runs += [{"restart": restart, **run} for run in listed]
        counts |= record.get("counts", {})  # the same in every restart: they read the same files
    return runs, counts
