"""One engine at a time: a lock for Snakemake's whole run, and DVC told which files that run will write.

The lock is the kernel's (``flock``), so it ends with its process however that ends. DVC's commands are kept off
by entries in DVC's own table of files in use, where DVC itself discards those of dead processes.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from engine_api import (
    LockError,
    PipelineStage,
    Repo,
    WorkflowError,
    experiment_lock,
    files_in_use,
    is_elsewhere,
    logger,
)


class RunLock:
    """Held from before the first look at what is stale to the last commit.

    Raises:
        WorkflowError: another Snakemake, or a DVC command, is at work here; its pid is named.
        LockError: the same, where DVC finds it; :func:`locked_by` names the pid.
    """

    def __init__(self, repo: Repo) -> None:
        self.repo = repo
        self._held = ExitStack()
        folder = Path(repo.tmp_dir)
        folder.mkdir(parents=True, exist_ok=True)
        file = self._held.enter_context(open(folder / "snakemake.lock", "a+", encoding="utf-8"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            self._held.close()
            raise _busy(holder) from None
        file.truncate(0)
        file.write(f"{os.getpid()} {_command()}\n")
        file.flush()
        try:
            # DVC stashes and restores the whole working tree to begin or queue an experiment: not under our jobs
            self._held.enter_context(experiment_lock(repo))
            self.refuse_dvc()
        except BaseException:
            self._held.close()
            raise

    def guard(self, stages: Iterable[PipelineStage]) -> None:
        """Enter what these stages read and write in DVC's table of files in use, until :meth:`release`.

        Raises:
            LockError: a DVC command uses one of them.
        """
        reads = [dep for stage in stages for dep in stage.deps]
        reads = [dep for dep in reads if not is_elsewhere(dep)]
        writes = [out for stage in stages for out in stage.outs]
        self._held.enter_context(files_in_use(self.repo, _command(), _places(reads), _places(writes)))

    def release(self) -> None:
        """Give everything back; a second call does nothing."""
        self._held.close()

    def refuse_dvc(self) -> None:
        """Stop where a living DVC command has files in use, or an experiment runs in this folder.

        ``dvc repro`` holds DVC's lock or has files in use at any moment, so ask again once that lock is ours.
        """
        experiment = self._experiment()
        if experiment and experiment != os.getpid():
            raise _busy(f"{experiment} dvc exp run")
        try:
            used = json.loads(Path(self.repo.tmp_dir, "rwlock").read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return
        users = list(used.get("write", {}).values())
        users += [user for readers in used.get("read", {}).values() for user in readers]
        for user in users:
            if user["pid"] != os.getpid() and psutil.pid_exists(user["pid"]):
                raise _busy(f"{user['pid']} {user['cmd']}")

    def _experiment(self) -> int | None:
        """The process that runs an experiment in the workspace; between its steps it holds no lock."""
        notes = Path(self.repo.tmp_dir).glob("exps/run/workspace/workspace.json")
        for note in notes:
            try:
                pid = json.loads(note.read_text(encoding="utf-8"))["pid"]
            except (FileNotFoundError, json.JSONDecodeError, KeyError):
                continue
            if psutil.pid_exists(pid):
                return pid
        return None


def locked_by(repo: Repo, error: LockError) -> WorkflowError:
    """Say in one sentence which process holds DVC's lock."""
    named = re.search(r"PID (\d+)\): (.*)", str(error))
    if named:
        return _busy(f"{named[1]} {named[2]}")
    try:
        return _busy(f"{int(Path(repo.tmp_dir, 'lock').read_text().split()[0])} dvc")
    except (OSError, ValueError, IndexError):
        return WorkflowError(str(error))


def _busy(holder: str) -> WorkflowError:
    pid, _, command = holder.partition(" ")
    words = [os.path.basename(word) for word in command.split()[:1]] + command.split()[1:]
    return WorkflowError(
        f"Process {pid} ({' '.join(words) or 'unknown'}) is at work in this folder: let it end or stop it, "
        "then run this command again."
    )


def _command() -> str:
    """The command as DVC writes it in its table: entries are recognised as one's own by pid and command."""
    return " ".join(sys.argv)


def _places(items: Iterable[Any]) -> list[str]:
    return sorted({item.fs_path for item in items})


def cancel_orphans() -> None:
    """Cancel the Slurm jobs in this folder that a Snakemake left behind which was killed, and wait for their end.

    They would write the same files as the jobs that take their place. A training among them saves its checkpoint.
    """
    if not shutil.which("squeue"):
        return
    orphans = _slurm_jobs()
    if orphans:
        logger.warning(f"slurm: cancelling {len(orphans)} jobs that a killed Snakemake left: {', '.join(orphans)}")
        subprocess.run(["scancel", *orphans], timeout=30, check=False)
    deadline = time.monotonic() + 120
    while orphans and time.monotonic() < deadline:
        time.sleep(0.5)
        orphans = _slurm_jobs()


def _slurm_jobs() -> list[str]:
    """Numbers of the jobs that Snakemake's executor, which names the rule in the comment, has in this folder."""
    ask = ["squeue", "--me", "-h", "-t", "PENDING,RUNNING,SUSPENDED,COMPLETING", "-o", "%i|%Z|%k"]
    try:
        listed = subprocess.run(ask, timeout=30, text=True, capture_output=True, check=False).stdout
    except subprocess.TimeoutExpired:
        return []
    here = os.path.realpath(os.getcwd())
    jobs = [line.split("|", 2) for line in listed.splitlines() if line.count("|") >= 2]
    return [job for job, folder, note in jobs if os.path.realpath(folder) == here and note.startswith("rule_")]
