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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dvc import dvcfile
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.utils.serialize import _yaml

LOCK = Path("dvc.lock")
CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)  # git's markers
COPY = "dvc.lock.whole"  # in DVC's folder for temporary files


def write_whole() -> None:
    """From now on this process writes dvc.lock under another name first."""
    dvcfile.modify_yaml = _modify_whole


def keep_copy(repo: Repo) -> None:
    """Keep a copy of dvc.lock for :func:`mend`; call it where dvc.lock is known to be whole."""
    if LOCK.exists():
        partial = Path(repo.tmp_dir, f"{COPY}.partial")
        shutil.copy(LOCK, partial)
        os.replace(partial, Path(repo.tmp_dir, COPY))


class MergeConflictError(Exception):
    """dvc.lock holds both sides of a merge."""


def refuse_conflict() -> None:
    """Leave a dvc.lock with git's conflict markers to the user, who alone knows which side is wanted.

    Raises:
        MergeConflictError: there are such markers; the text says what to do.
    """
    if LOCK.exists() and CONFLICT.search(LOCK.read_text(encoding="utf-8", errors="replace")):
        raise MergeConflictError(
            "dvc.lock holds both sides of a merge: choose one (git checkout --ours dvc.lock, or --theirs), "
            "then run this command again."
        )


def mend(repo: Repo) -> str | None:
    """Put the last whole dvc.lock in the place of one that is damaged, and remove a damaged table of files in use.

    Returns what was done, in words; None where nothing was damaged.

    Raises:
        MergeConflictError: see :func:`refuse_conflict`.
    """
    refuse_conflict()
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
    if not LOCK.exists():
        return None
    try:
        dvcfile.Lockfile(repo, os.fspath(LOCK.absolute()), verify=False).load()
        return None
    except DvcException:
        pass
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


@contextmanager
def _modify_whole(path: Any, fs: Any = None) -> Iterator[Any]:
    """As DVC's ``modify_yaml``, but the file changes at once, and is not parsed for comments, of which it has none."""
    lock = Path(path)
    data = _yaml.parse_yaml(lock.read_text(encoding="utf-8"), path) if lock.exists() else {}
    yield data
    partial = lock.parent / ".dvc/tmp" / f"{lock.name}.partial"  # where git looks away
    _yaml.dump_yaml(partial, data)
    os.replace(partial, lock)


if __name__ == "__main__":
    try:
        print(mend(Repo(".")) or "dvc.lock is whole")
    except MergeConflictError as conflict:
        sys.exit(str(conflict))
