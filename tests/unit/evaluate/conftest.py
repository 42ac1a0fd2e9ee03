"""Prediction files as the stage ``finetune`` leaves them, written without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_src.base.files import write_json
from pipeline_src.base.paths import task_predictions


def write_predictions(task: str, seed: str, file: str, predictions: Sequence[Any]) -> None:
    """``file`` is ``<weights>/<row>.jsonl``; a prediction is a value, or a whole row without its id."""
    path = task_predictions(task, seed) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [value if isinstance(value, dict) else {"prediction": value} for value in predictions]
    path.write_text("".join(json.dumps({"id": str(place), **row}) + "\n" for place, row in enumerate(rows)))


def write_run(task: str, seed: str, *runs: dict[str, Any], **more: Any) -> None:
    """``run.json`` of one seed."""
    record = {"runs": runs, "counts": {}, "recipe": {"select": "last"}, **more}
    write_json(task_predictions(task, seed) / "run.json", record)


def write_table(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
