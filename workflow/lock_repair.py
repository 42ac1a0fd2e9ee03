"""dvc.lock after a kill or a merge: what was cut off comes back from a copy."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

import yaml
from snakemake.logging import logger

from files_in_use import IN_USE, clear_stale
from pipeline_src.engine.dvc_lock import LOCK, LOCK_COPY, committed_lock, complete_lock, without_cut_entry


def restore_lock(lock: str, declared: Collection[str] | None, fresh: Collection[str]) -> bool:
    """Restore the entries that a kill cut off dvc.lock, from Snakemake's backup or the committed file.

    The arguments are those of ``complete_lock``.

    Returns:
        Whether dvc.lock was changed.
    """
    copies = [read_text(LOCK_COPY), committed_lock()]
    if not LOCK.exists() or (lock in copies and is_mapping(lock)) or has_merge_markers(lock):
        return False
    completed = lock
    returned: dict[str, None] = {}
    for earlier in copies:
        completed, names = complete_lock(completed, earlier, declared, fresh)
        returned |= dict.fromkeys(names)
    if not is_mapping(completed):
        completed = next(filter(is_mapping, copies), lock)
    if completed == lock and declared is None:
        # The last entry is truncated and in no copy, so drop it. DVC restores its outputs from the run-cache.
        completed = without_cut_entry(lock)
    if completed == lock or not is_settled(lock):
        return False
    write_text(LOCK_COPY.with_suffix(".damaged"), lock)
    write_text(LOCK, completed)
    if returned:
        logger.warning(
            f"dvc.lock lacked entries that it had before, as after a kill; they are back: {', '.join(returned)}."
        )
    else:
        logger.warning("dvc.lock was cut off, as by a kill; what it lacks now comes from the run-cache.")
    return True


def has_merge_markers(lock: str) -> bool:
    return bool(re.search("^<{7} ", lock, re.MULTILINE))


def is_settled(lock: str) -> bool:
    # Returns whether dvc.lock still has the text `lock` and no live process uses DVC's files. DVC writes dvc.lock only
    # while it holds the lock that each of its commands waits for. So if the text is the same before and after a DVC
    # command, no other DVC was writing the file.
    return read_text(LOCK) == lock and not clear_stale(IN_USE)


def is_mapping(text: str) -> bool:
    try:
        return isinstance(yaml.safe_load(text), dict)
    except yaml.YAMLError:
        return False


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def write_text(path: Path, text: str, time: int | None = None) -> None:
    """Replace ``path`` by a new file, so that a kill cannot truncate it.

    A new file is needed to set the time too: only the owner may, and the file at ``path`` may belong to another user.

    Args:
        time: mtime of the new file, in seconds. None: now.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    if time is not None:
        os.utime(partial, (time, time))
    partial.replace(path)
