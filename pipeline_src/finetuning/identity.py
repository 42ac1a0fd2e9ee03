"""What decides the result of fine-tuning one task, by which its checkpoints are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_src.common.checksum import checksum
from pipeline_src.common.fingerprint import fingerprint
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
    teacher: Mapping[str, int],
) -> dict[str, Any]:
    """Parameters, data and code of a task and restart, by key.

    ``model`` names the architecture, whose code counts, and how random weights start; ``data`` holds the sums of the
    task's files by name, ``teacher`` those of what it learns from, none without a teacher.
    """
    return {
        "seed": seed,
        "restart": restart,
        "recipe": recipe.model_dump(),
        "finetune": finetune.model_dump(exclude=OF_OTHERS),
        "task": task.model_dump(),
        "data": dict(data),
        "positions_start": model.positions_start,
        "teacher": dict(teacher),
        "encoder": {path.name: checksum(path) for path in sorted(encoder.iterdir()) if path.is_file()},
        "code": fingerprint("pipeline_src.finetuning.finetune", f"pipeline_src.architectures.{model.architecture}"),
    }


def begun_with(weights: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of the runs of one kind of weights, a value of ``WEIGHTS``.

    Of the encoder random weights have its form alone, unless they learn of a teacher's layers: that goes through
    matrices which the encoder's folder may hold.
    """
    encoder = identity["encoder"]
    if weights == "random" and not identity["teacher"]:
        encoder = {name: encoder[name] for name in FORM if name in encoder}
    return {**identity, "weights": weights, "encoder": encoder}
