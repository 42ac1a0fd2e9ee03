"""DVC's command line, and its errors as one sentence with a hint."""

from __future__ import annotations

import re
import subprocess
import sys

from snakemake.logging import logger

from fatal_error import FatalError
from lock_repair import has_merge_markers, is_mapping, read_text
from pipeline_src.engine.dvc_lock import LOCK


# DVC cannot read dvc.lock.
class LockFileError(FatalError):
    pass


def dvc(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def answer(process: subprocess.Popen[str], show_log: bool = False) -> str:
    """Wait for a DVC command to end, and return its standard output.

    Args:
        show_log: whether to log its stderr too.

    Raises:
        FatalError: the command failed. The text is DVC's message and a hint.
    """
    output, errors = process.communicate()
    if not process.returncode:
        if show_log and errors.strip():
            logger.info(errors.strip())
        return output
    if has_merge_markers(read_text(LOCK)):
        raise FatalError(
            "dvc.lock holds both sides of a merge: keep one by `git checkout --ours dvc.lock` or `--theirs`; what the "
            "other had comes back from DVC's run-cache."
        )
    if "'./dvc.lock' is invalid" in errors and "duplicate key" in errors:
        raise FatalError(
            "dvc.lock has entries twice, as after a merge that keeps the lines of both sides (merge=union): take one "
            "side by `git checkout HEAD^ -- dvc.lock` if the merge is committed, else `git checkout HEAD -- dvc.lock`; "
            "what the other had comes back from DVC's run-cache."
        )
    error, hint = FatalError, ""
    # A truncated hash may look like a number, which makes DVC fail with an unexpected error.
    if re.search("'./dvc.lock' validation failed|unexpected error", errors) or not is_mapping(read_text(LOCK)):
        error = LockFileError
        hint = " If a kill has truncated dvc.lock: git checkout dvc.lock; newer entries are still in the run-cache."
    elif "'./dvc.lock' is invalid" in errors:
        hint = " Restore it: git checkout HEAD -- dvc.lock; newer entries are still in the run-cache."
    message = errors.strip().removeprefix("ERROR: ").partition("\nHaving any troubles?")[0].strip()
    raise error(f"DVC: {message}{hint}")
