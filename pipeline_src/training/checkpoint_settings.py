"""Where checkpoints stand and how often they are written: variables of the environment, which decide no result."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline_src.common.environment import number_of
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import CHECKPOINTS

FOLDER = "PIPELINE_CHECKPOINTS"
MINUTES = "PIPELINE_CHECKPOINT_MINUTES"
EXPERIMENTS = Path(".dvc/tmp/exps").parts  # where `dvc exp run --temp` and the queue's workers run


def checkpoint_root(folder: Path) -> Path:
    """Where a study in ``folder`` keeps its checkpoints.

    DVC deletes the folder of an experiment that was stopped; its checkpoints are kept in the main checkout, so that the
    same command continues from them.
    """
    parts = folder.parts
    for place in range(len(parts) - len(EXPERIMENTS)):
        if parts[place : place + len(EXPERIMENTS)] == EXPERIMENTS:
            return Path(*parts[:place]) / CHECKPOINTS
    return CHECKPOINTS


ROOT = Path(os.environ.get(FOLDER) or checkpoint_root(Path.cwd()))


def check_settings() -> None:
    """Hold the environment's settings of checkpoints to what they may be, before any work.

    Raises:
        PipelineError: the folder cannot be made or written, or the minutes are no number.
    """
    minutes()
    reason = None
    try:
        ROOT.mkdir(parents=True, exist_ok=True)
        if not os.access(ROOT, os.W_OK | os.X_OK):
            reason = "no permission to write there"
    except OSError as error:
        reason = error.strerror
    if reason:
        raise PipelineError(
            "checkpoints cannot be written", ROOT, where=reason,
            remedy=f"name a folder that you may write in ${FOLDER}, or unset it",
        )  # fmt: skip


def minutes() -> float:
    """Between two checkpoints, by ``$PIPELINE_CHECKPOINT_MINUTES``.

    Raises:
        PipelineError: it is not a number from 0 on.
    """
    return number_of("minutes", MINUTES, 10)
