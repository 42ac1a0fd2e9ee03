"""Where checkpoints stand and how often they are written: variables of the environment, which decide no result."""

from __future__ import annotations

import math
import os
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import CHECKPOINTS

FOLDER = "PIPELINE_CHECKPOINTS"  # elsewhere, a killed `dvc exp run --temp` goes on
MINUTES = "PIPELINE_CHECKPOINT_MINUTES"
ROOT = Path(os.environ.get(FOLDER) or CHECKPOINTS)


def check_settings() -> None:
    """Hold the environment's settings of checkpoints to what they may be, before any work.

    Raises:
        PipelineError: the folder cannot be made or written, or the minutes are no number.
    """
    minutes()
    try:
        ROOT.mkdir(parents=True, exist_ok=True)
        usable = os.access(ROOT, os.W_OK | os.X_OK)
        reason = "no permission to write there"
    except OSError as error:
        usable, reason = False, error.strerror
    if not usable:
        raise PipelineError(
            "checkpoints cannot be written", ROOT, where=reason,
            remedy=f"name a folder that you may write in ${FOLDER}, or unset it",
        )  # fmt: skip


def minutes() -> float:
    """Between two checkpoints, by ``$PIPELINE_CHECKPOINT_MINUTES``.

    Raises:
        PipelineError: it is not a number from 0 on.
    """
    wanted = os.environ.get(MINUTES, "10")
    try:
        number = float(wanted)
    except ValueError:
        number = math.nan
    if not number >= 0:  # nor NaN
        raise PipelineError("not a number of minutes", wanted, where=f"${MINUTES}", remedy="set it to 0 or more")
    return number
