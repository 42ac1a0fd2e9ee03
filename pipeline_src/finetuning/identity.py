"""What decides the result of fine-tuning one task, by which its checkpoints are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_src.common.checksum import checksum
from pipeline_src.common.closure import code_checksum
from pipeline_src.params.base import NO_TEACHER
from pipeline_src.params.finetune import FinetuneParams, Recipe
from pipeline_src.params.model import ModelParams
from pipeline_src.tasks.files.spec import TaskSpec

OF_OTHERS = {"restarts", "default", "tasks", "model"}  # not this task's alone, or said otherwise
FORM = ("config.json", "tokenizer.json")  # of an encoder's folder: what random weights have of it too


def checkpoint_identity(
    *,
    seed: int,
    restart: str,
    recipe: Recipe,
    finetune: FinetuneParams,
    task: TaskSpec,
    encoder: Path,
    model: ModelParams,
    data: Mapping[str, str],
    weights: str,
) -> dict[str, Any]:
    """Parameters, data and code of a task, restart and kind of weights, by key.

    ``model`` names the architecture, whose code counts, and how random weights start; ``data`` holds the sums of the
    task's files by name. Of the encoder random weights have its form alone, unless they learn of a teacher's layers:
    that goes through matrices which the encoder's folder may hold.
    """
    form = weights == "random" and finetune.teacher == NO_TEACHER
    return {
        "weights": weights,
        "seed": seed,
        "restart": restart,
        "recipe": recipe.model_dump(),
        "finetune": finetune.model_dump(exclude=OF_OTHERS),
        "task": task.model_dump(),
        "data": dict(data),
        "positions_start": model.positions_start,
        "encoder": {
            path.name: checksum(path)
            for path in sorted(encoder.iterdir())
            if path.is_file() and (path.name in FORM or not form)
        },
        "code": code_checksum("pipeline_src.finetuning.finetune", {"model.architecture": model.architecture}),
    }
