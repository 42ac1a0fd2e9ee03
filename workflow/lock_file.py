"""dvc.lock kept whole: DVC writes it in place, so that a process killed in that moment leaves half of it or nothing.

Snakemake's runs write it whole and mend it at their start. After a killed ``dvc repro``, DVC itself stops with
"'./dvc.lock' validation failed": then ``python workflow/lock_file.py`` does the same. Nothing is lost by it: what the
older dvc.lock lacks, both engines take from DVC's run-cache without running a stage. DVC's table of files in use,
``.dvc/tmp/rwlock``, is written in place as well, and removed where it cannot be read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from engine_api import DvcException, PipelineStage, Repo, WorkflowError, read_lock_file, write_lock_file

LOCK = Path("dvc.lock")
CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)  # git's markers
COPY = "dvc.lock.whole"  # in DVC's folder for temporary files


def record(stages: Collection[PipelineStage]) -> None:
    """Write what these stages, of one repository, read and made to dvc.lock, which changes at once."""
    partial = Path(next(iter(stages)).repo.tmp_dir, f"{LOCK}.partial")
    write_lock_file(LOCK, stages, to=partial)
    os.replace(partial, LOCK)


def keep_copy(repo: Repo) -> None:
    """Keep a copy of dvc.lock for :func:`mend`; call it where dvc.lock is known to be whole."""
    if LOCK.exists():
        partial = Path(repo.tmp_dir, f"{COPY}.partial")
        shutil.copy(LOCK, partial)
        os.replace(partial, Path(repo.tmp_dir, COPY))


def is_damaged(repo: Repo) -> bool:
    """Whether there is a dvc.lock that DVC cannot read.

    Raises:
        WorkflowError: it holds both sides of a merge, which is for the user to resolve.
    """
    if not LOCK.exists():
        return False
    try:
        read_lock_file(repo, LOCK)
        return False
    except DvcException:
        if CONFLICT.search(LOCK.read_text(encoding="utf-8", errors="replace")):
            raise WorkflowError(
                "dvc.lock holds both sides of a merge: choose one (git checkout --ours dvc.lock, or --theirs), "
                "then run this command again."
            ) from None
        return True


def mend(repo: Repo) -> str | None:
    """Put the last whole dvc.lock in the place of one that is damaged, and remove a damaged table of files in use.

    Returns what was done, in words; None where nothing was damaged.

    Raises:
        WorkflowError: see :func:`is_damaged`.
    """
    return "; ".join(filter(None, (_mend_table(repo), _mend_lock(repo)))) or None


def _mend_table(repo: Repo) -> str | None:
    table = Path(repo.tmp_dir, "rwlock")
    for _ in range(3):  # a living command may be writing it
        try:
            json.loads(table.read_text(encoding="utf-8"))
            return None
        except FileNotFoundError:
            return None
        except json.JSONDecodeError:
            time.sleep(0.2)
    table.unlink(missing_ok=True)
    return "DVC's table of files in use was damaged by a kill and is removed"


def _mend_lock(repo: Repo) -> str | None:
    """Our copy, or else what is in git."""
    if not is_damaged(repo):
        return None
    os.replace(LOCK, Path(repo.tmp_dir, "dvc.lock.damaged"))
    copy = Path(repo.tmp_dir, COPY)
    if copy.exists():
        shutil.copy(copy, LOCK)
        return "dvc.lock was damaged by a kill; its last copy is in place, and the run-cache has the rest"
    shown = subprocess.run(["git", "show", f"HEAD:./{LOCK}"], capture_output=True)
    if shown.returncode == 0:
        LOCK.write_bytes(shown.stdout)
        return "dvc.lock was damaged by a kill; the one in git is in place, and the run-cache has the rest"
    return "dvc.lock was damaged by a kill and is removed; the run-cache has what it held"


if __name__ == "__main__":
    try:
        print(mend(Repo(".")) or "dvc.lock is whole")
    except WorkflowError as refused:
        sys.exit(str(refused))
