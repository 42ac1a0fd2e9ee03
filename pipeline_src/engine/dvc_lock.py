"""Read and mend dvc.lock as text, and hold the lock that DVC's commands wait for.

DVC rewrites all of dvc.lock when a stage ends. A kill at that moment cuts the file off, and two of three such files are
still valid YAML of DVC's schema: they only lack stages. An entry says that a command made these outputs from these
inputs, which stays true. So entries that are missing can be put back from any earlier copy.
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
# A copy of dvc.lock with all entries that it ever had, in case a kill cuts dvc.lock off.
LOCK_COPY = Path(".snakemake/dvc/dvc.lock")
COMMAND_LOCK = Path(".dvc/tmp/lock")
# "  tokenize:\n" or "  finetune@rte-1:\n": the first line of an entry
ENTRY = re.compile(r"^  ([^\s:#][^:\n]*):\n", re.MULTILINE)
HEADER = "schema: '2.0'\nstages:\n"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.2


# An entry is the text of one stage: its name, cmd, deps, params and outs.
def split_entries(lock: str) -> dict[str, str]:
    starts = [*ENTRY.finditer(lock)]
    ends = [start.start() for start in starts[1:]] + [len(lock)]
    # Without an entry, the end of the text is left over.
    return {start[1]: lock[start.start() : end] for start, end in zip(starts, ends, strict=False)}


def join_entries(entries: Mapping[str, str]) -> str:
    return HEADER + "".join(entries.values())


def parse_entry(entry: str) -> dict[str, Any]:
    # Text that was cut off within an entry gives {}.
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
    """Put entries that a kill cut off back from an earlier copy of dvc.lock.

    Args:
        declared: names of the stages in dvc.yaml; entries of others stay out. None: all are put back.
        fresh: names of stages that DVC calls up to date, so that their entries are complete.

    Returns:
        The completed text, and the names of the stages whose entries were put back.
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
    # In the order of the copy: a file that was only cut off becomes what it was.
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
    """Take the lock that each DVC command takes, so that none writes dvc.lock until the returned file is closed.

    Args:
        patience: seconds to wait for the lock; None: until it is free.

    Returns:
        The locked file; None if there is no such lock, as with ``core.hardlink_lock``.

    Raises:
        TimeoutError: the lock was not free in time.
    """
    try:
        # Not created if it is missing: the other kind of lock is a file of this name that exists.
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
            # A disk without locks.
            file.close()
            return None
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
