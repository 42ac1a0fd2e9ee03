"""DVC's table of the files that its running processes use, ``.dvc/tmp/rwlock``, after kills and on several hosts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from pathlib import Path

import psutil
from snakemake.logging import logger

from fatal_error import FatalError

IN_USE = Path(".dvc/tmp/rwlock")


def keep_by_host(table: Path) -> None:
    """Give each host its own table of files in use, by turning ``table`` into a link to a file in /tmp.

    DVC's table identifies a process by its number on one host. If hosts shared the table, ``dvc status`` on another
    host would consider a running stage dead and delete its line. The DVC process that runs the stage would then fail
    to record it.

    /tmp is the only folder that each host has for itself. The file's name is random, so that no other user can create
    a link there first.

    Raises:
        FatalError: another user has created the file.
    """
    # The name contains a hash of the checkout's path, since a copied checkout contains the original's link.
    checkout = hashlib.sha256(os.getcwd().encode()).hexdigest()[:16]
    prefix = f"/tmp/dvc-rwlock-{os.getuid()}-{checkout}-"
    if table.is_symlink() and str(table.readlink()).startswith(prefix):
        target = table.readlink()
        with contextlib.suppress(FileNotFoundError):
            state = target.lstat()
            if not stat.S_ISREG(state.st_mode) or state.st_uid != os.getuid():
                raise FatalError(
                    f"{target} is a link or belongs to another user, so DVC must not write there. "
                    f"When no stage runs: rm {table}"
                )
        return
    target = Path(prefix + secrets.token_hex(8))
    table.parent.mkdir(parents=True, exist_ok=True)
    if table.is_symlink():
        table.unlink()
    elif table.exists():
        # Keep the table's content, since a DVC process of this host may be active.
        shutil.move(table, target)
    table.symlink_to(target)


def _is_by_host(table: Path) -> bool:
    name = r"/tmp/dvc-rwlock-\d+-[0-9a-f]{16}-[0-9a-f]{16}"
    return table.is_symlink() and re.fullmatch(name, str(table.readlink())) is not None


def clear_stale(table: Path) -> bool:
    """Remove DVC's table of files in use if a killed DVC left it there.

    A kill leaves the table either truncated, which makes DVC fail, or with dead processes only. DVC itself considers
    zombies alive, which stay forever in a container without an init process. A truncated table is read several times,
    since DVC may just be writing it.

    Returns:
        Whether the table lists a live process.
    """
    for _ in range(3):
        try:
            numbers = _listed_processes(table.read_text(encoding="utf-8"))
            written = table.stat().st_mtime
            if not numbers or any(_lives(number, written) for number in numbers):
                return bool(numbers)
            break
        except FileNotFoundError:
            return False
        except (ValueError, TypeError, AttributeError, KeyError):
            time.sleep(0.2)
    else:
        logger.warning(f"{table} was damaged by a kill; it is removed, which loses nothing.")
    # Follow the link only if `keep_by_host` made it. Any other link is deleted itself.
    (table.readlink() if _is_by_host(table) else table).unlink(missing_ok=True)
    return False


def _listed_processes(table: str) -> list[int]:
    # {"write": {"data/tokens": {"pid": 12, "cmd": "dvc repro"}}, "read": {"params.yaml": [{"pid": 12, "cmd": "..."}]}}
    numbers = []
    for users_by_path in json.loads(table).values():
        for users in users_by_path.values():
            processes = users if isinstance(users, list) else [users]
            numbers += [process["pid"] for process in processes]
    return numbers


def _lives(pid: int, written: float) -> bool:
    # After a restart of the machine or container, the process number may belong to a new process. This process counts
    # as new if it is younger than the table and its command is not DVC. The age alone is not enough, since the clocks
    # of file servers differ.
    try:
        process = psutil.Process(pid)
        # Add 1, since Linux gives the start time of a process in whole seconds.
        is_younger = process.create_time() > written + 1
        is_reused = is_younger and not any("dvc" in word for word in process.cmdline())
        return not is_reused and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        # psutil.ZombieProcess is a subclass of NoSuchProcess.
        return False
    except psutil.AccessDenied:
        return True
