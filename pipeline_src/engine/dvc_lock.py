"""Read and repair dvc.lock as text, and take the lock file that all DVC commands wait for.

DVC rewrites the whole dvc.lock when a stage ends. A kill at that moment truncates the file. Two of three truncated
files are still valid for DVC and merely lack stages. An entry states that a command made these outputs from these
inputs. That stays true, so missing entries can be restored from any earlier copy of dvc.lock.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

from pipeline_src.base.yaml_files import parse_yaml

LOCK = Path("dvc.lock")
# Backup of dvc.lock with every entry that it ever had, used if a kill truncates dvc.lock.
LOCK_COPY = Path(".snakemake/dvc/dvc.lock")
COMMAND_LOCK = Path(".dvc/tmp/lock")
# First line of an entry, such as "  tokenize:\n" or "  finetune@rte-1:\n".
ENTRY = re.compile(r"^  ([^\s:#][^:\n]*):\n", re.MULTILINE)
HEADER = "schema: '2.0'\nstages:\n"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.2


# Returns stage -> entry. An entry is the part of the text about one stage: its name, cmd, deps, params and outs.
def split_entries(lock: str) -> dict[str, str]:
    starts = [*ENTRY.finditer(lock)]
    ends = [start.start() for start in starts[1:]] + [len(lock)]
    # If there is no entry, `ends` still has one item, hence strict=False.
    return {start[1]: lock[start.start() : end] for start, end in zip(starts, ends, strict=False)}


def join_entries(entries: Mapping[str, str]) -> str:
    return HEADER + "".join(entries.values())


def parse_entry(entry: str) -> dict[str, Any]:
    # Returns {} if the entry is truncated or malformed.
    try:
        ((_, content),) = parse_yaml(entry).items()
        for kind in ("deps", "outs"):
            hashes(content, kind)
    except (ValueError, AttributeError, TypeError, LookupError):
        return {}
    return dict(content)


def read_entry_text(stage: str, lock: Path = LOCK) -> str:
    try:
        text = lock.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    return split_entries(text).get(stage, "")


def hashes(entry: Mapping[str, Any], kind: str) -> dict[str, str]:
    return {item["path"]: str(item.get("md5", "")) for item in entry.get(kind, [])}


def complete_lock(
    lock: str, earlier: str, declared: Collection[str] | None = None, fresh: Collection[str] = ()
) -> tuple[str, list[str]]:
    """Restore the entries that a kill cut off dvc.lock, from an earlier copy of the file.

    Args:
        lock: text of dvc.lock, perhaps truncated.
        earlier: text of the copy.
        declared: names of the stages in dvc.yaml. Only their entries are restored. None restores all entries.
        fresh: names of the stages that DVC reports as up to date, so that their entries must be complete.

    Returns:
        The completed text, and the names of the stages whose entries were restored.
    """
    entries, copies = split_entries(lock), split_entries(earlier)
    # Only the end of the file can be cut off, so only the last entry can be incomplete.
    last = next(reversed(entries), "")
    if last and (not lock.endswith("\n") or _is_cut_off(entries[last], copies.get(last, ""))):
        if last not in fresh or _output_hashes(entries[last]) == _output_hashes(copies.get(last, "")):
            del entries[last]
        else:
            entries[last] = entries[last].rstrip("\n") + "\n"
    missing = [name for name in copies if name not in entries and (declared is None or name in declared)]
    if lock == earlier or not missing:
        return lock, []
    # Keep the order of the copy. Then a file that was only truncated becomes equal to the copy again.
    completed = {}
    for name in copies:
        if name in entries or name in missing:
            completed[name] = entries.get(name, copies[name])
    return join_entries(completed | entries), missing


def without_cut_entry(lock: str) -> str:
    # Only the last entry can be cut off.
    entries = split_entries(lock)
    if lock.endswith("\n") or not entries:
        return lock
    entries.popitem()
    return join_entries(entries)


def _is_cut_off(entry: str, copy: str) -> bool:
    return bool(_output_keys(copy) - _output_keys(entry))


def _output_hashes(entry: str) -> dict[str, str]:
    return hashes(parse_entry(entry), "outs")


def _output_keys(entry: str) -> set[tuple[str, str]]:
    keys = set()
    for output in parse_entry(entry).get("outs", []):
        keys |= {(output.get("path", ""), key) for key in output}
    return keys


def committed_lock() -> str:
    try:
        command = ["git", "show", f"HEAD:./{LOCK}"]
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False).stdout
    except (OSError, UnicodeDecodeError):
        return ""


def take_dvc_lock(path: Path = COMMAND_LOCK, patience: float | None = None) -> IO[str] | None:
    """Take the lock that every DVC command needs, so that no DVC command writes dvc.lock meanwhile.

    Args:
        path: DVC's lock file.
        patience: seconds to wait for the lock. None waits until the lock is free.

    Returns:
        The locked file. The caller closes it to release the lock. None if DVC uses another kind of lock
        (``core.hardlink_lock``) or the file system has no locks.

    Raises:
        TimeoutError: the lock was not free in time.
    """
    try:
        # Do not create a missing file: with `core.hardlink_lock`, the mere existence of this file means "locked".
        file = open(path, "r+", encoding="utf-8")  # noqa: SIM115  # the caller closes it
    except OSError:
        return None
    deadline = None if patience is None else time.monotonic() + patience
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if deadline is not None and time.monotonic() > deadline:
                file.close()
                raise TimeoutError from None
        except OSError:
            # This file system does not support locks.
            file.close()
            return None
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
