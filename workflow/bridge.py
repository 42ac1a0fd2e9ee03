"""Between DVC and Snakemake: DVC says which stages there are and which are stale, Snakemake when and where they run.

Every job is ``dvc repro --single-item STAGE``: DVC restores, runs, hashes and records. For each stage, Snakemake sees
a stamp, ``.snakemake/dvc/STAGE``, which exists if the stage is fresh: not stale. The bridge calls only DVC's commands.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import psutil
import yaml
from snakemake.logging import logger

from pipeline_src.engine.dvc_lock import (
    LOCK,
    LOCK_COPY,
    committed_lock,
    complete_lock,
    split_entries,
    without_cut_entry,
)
from pipeline_src.engine.records import cache_folder, run_of_same_inputs, settle_records

STAMPS = Path(".snakemake/dvc")
GRAPH = STAMPS / "graph.json"
IN_USE = Path(".dvc/tmp/rwlock")
# DVC says so of an output that is in the workspace alone.
NOT_IN_CACHE = "not in cache"
# DVC runs commands by $SHELL, and dvc.yaml is written for bash
RUN = "export SHELL=/bin/bash; dvc --wait-for-lock repro --single-item"

# hide Snakemake's remark that it has no records of its own on what DVC has made
logger.addFilter(lambda record: "provenance/metadata" not in record.getMessage())


class FatalError(SystemExit):
    """Ends Snakemake with ``sentence`` as the last line; for other exceptions, Snakemake prints lines of this file."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"error: {sentence}")


# DVC cannot read dvc.lock.
class LockFileError(FatalError):
    pass


class Stages:
    """The stages of dvc.yaml.

    Args:
        decides: whether this process plans the run. The process of a job on a cluster does not: it reads the graph
            that the planning process has written.
        rules: name of every rule, with wildcards (``finetune@{task}-{seed}``).
        groups: names of groups of rules that are submitted as one job.

    Attributes:
        upstream: name of every stage (``finetune@cola-1``) -> names of the stages it depends on.
        stale: name of every stale stage -> its changes, as DVC says them; empty in the process of a job.

    Raises:
        FatalError: DVC cannot read its files, or is at work; Slurm jobs of an earlier run are at work; a stage has no
            rule, or a rule has no stage; this folder cannot be written. The message says what to do.
    """

    def __init__(self, decides: bool, rules: Iterable[str], groups: Iterable[str] = ()) -> None:
        self.upstream: dict[str, list[str]] = {}
        self.stale: dict[str, list[Any]] = {}
        ruled = {rule.partition("@")[0] for rule in rules}
        try:
            if not decides:
                self.upstream = json.loads(GRAPH.read_text(encoding="utf-8"))
                return
            living = living_jobs(ruled | set(groups))
            if living:
                # DVC identifies a process by its number on one machine, and would take a training on another node for
                # a dead process
                jobs = ", ".join(f"{number} ({rule})" for number, rule in living.items())
                raise FatalError(
                    f"Slurm jobs of another run are at work in this folder: {jobs}. Wait until they have ended "
                    f"(squeue --me), or end them by: scancel {' '.join(living)}"
                )
            self._update_stamps()
        except OSError as error:
            hint = "make room, move away what is in its place, or give yourself permission to write there"
            raise FatalError(f"{error.filename or os.getcwd()}: {error.strerror}. Nothing was run: {hint}.") from None
        declared = {name.partition("@")[0] for name in self.upstream}
        missing = ", ".join(sorted(declared - ruled))
        if missing:
            raise FatalError(f"dvc.yaml has stages without a rule: {missing}. Add them to JOBS in the Snakefile.")
        beyond = ", ".join(sorted(ruled - declared))
        if beyond:
            raise FatalError(f"dvc.yaml has no stage {beyond}, which a rule runs.")

    def _update_stamps(self) -> None:
        # With Slurm, jobs run on other hosts.
        if shutil.which("squeue") or IN_USE.is_symlink():
            keep_by_host(IN_USE)
        _clear_stale_rwlock(IN_USE)
        for sentence in settle_records():
            logger.warning(f"This record of DVC was false and is removed; the stage runs again: {sentence}.")
        STAMPS.mkdir(parents=True, exist_ok=True)
        before = {name: _changed(STAMPS / name) for name in os.listdir(STAMPS)}
        stale = self._compare()
        if stale:
            _check_cache()
        # The other stages are compared with the fingerprints that `code` writes.
        if "code" in stale:
            _answer(_dvc("repro", "--single-item", "code"), show_log=True)
            stale = self._compare()
        stale = {name: changes for name, changes in stale.items() if name in self.upstream}
        uncached = self._uncached(stale)
        if uncached:
            names = " ".join(sorted(uncached))
            logger.warning(f"Outputs of {names} are not in DVC's cache; put them back: dvc commit -f {names}")
        to_run = self._with_downstream(stale.keys() - uncached)
        _write(GRAPH, json.dumps(self.upstream))
        for name in self.upstream:
            stamp = STAMPS / name
            if name not in to_run:
                # All fresh stamps have one age, so that none is newer than a stamp that depends on it.
                _write(stamp, "", time=1)
            # If it has changed, another Snakemake has just made it.
            elif name in before and _changed(stamp) == before[name]:
                stamp.unlink(missing_ok=True)

    def _compare(self) -> dict[str, list[Any]]:
        lock = _text(LOCK)
        graph, status = _dvc("dag", "--dot"), _dvc("status", "--json")
        try:
            self.upstream = _read_graph(_answer(graph))
            self.stale = json.loads(_answer(status))
        except LockFileError:
            if not _restore_lock(lock, None, ()):
                raise
            return self._compare()
        if lock and _is_settled(lock):
            if _restore_lock(lock, self.upstream, self.upstream.keys() - self.stale.keys()):
                return self._compare()
            # Never less than before: what a kill cuts off is put back from here.
            _write(LOCK_COPY, complete_lock(lock, _text(LOCK_COPY))[0])
        return self.stale

    def prepare_records(self) -> None:
        """Mend dvc.lock before jobs start, so that DVC runs no stage of which this machine has a run."""
        self._drop_removed_entries()
        self._use_runs_of_this_machine()

    def _drop_removed_entries(self) -> None:
        # The run-cache keeps the results of stages that dvc.yaml no longer has.
        lock = _text(LOCK)
        entries = split_entries(lock)
        current = lock
        for name in entries.keys() - self.upstream.keys():
            current = current.replace(entries[name], "")
        if current != lock and _is_settled(lock):
            _write(LOCK, current)

    def _use_runs_of_this_machine(self) -> None:
        """Let dvc.lock name outputs that DVC's cache has, where it names outputs that the cache lacks.

        Another machine may make other bytes from the same inputs. After `git checkout dvc.lock` DVC would run such a
        stage: it asks its run-cache only for stages whose inputs are not those in dvc.lock.
        """
        lock = current = _text(LOCK)
        for name, entry in split_entries(lock).items():
            changes = self.stale.get(name, [])
            # Each change is {"changed outs": {...}}, {"changed deps": {...}} or a sentence.
            if changes and all("changed outs" in change for change in changes):
                current = current.replace(entry, run_of_same_inputs(entry, cache_folder()) or entry)
        if current != lock and _is_settled(lock):
            _write(LOCK, current)

    def _with_downstream(self, stale: set[str]) -> set[str]:
        # Some stages that depend on stale ones may later turn out to be fresh.
        result = set(stale)
        while more := {name for name, before in self.upstream.items() if result & set(before)} - result:
            result |= more
        return result

    def _uncached(self, stale: dict[str, list[Any]]) -> set[str]:
        # Stages that are stale only because the cache has lost their outputs, which are still here.
        paths_of = {}
        for name, changes in stale.items():
            outputs: dict[str, str] = {}
            for change in changes:
                # {"changed outs": {"data/tokens": "not in cache"}}, {"changed deps": {...}} or a sentence
                outputs |= change.get("changed outs", {"": ""}) if isinstance(change, dict) else {"": change}
            # `dvc status` says the same of outputs that are missing, as in a fresh clone, or edited by hand.
            if set(outputs.values()) == {NOT_IN_CACHE} and all(map(os.path.exists, outputs)):
                paths_of[name] = outputs.keys()
        if not paths_of:
            return set()
        changed = json.loads(_answer(_dvc("data", "status", "--json"))).get("uncommitted", {})
        edited = {path.rstrip("/") for path in changed.get("modified", [])}
        return {name for name, paths in paths_of.items() if not paths & edited}

    def before(self, name: str) -> Callable[[Any], list[str]]:
        """Return the function that lists a rule's inputs: the stamps of the stages before ``name`` (with wildcards)."""

        def stamps(wildcards: Any) -> list[str]:
            stage = name.format(**wildcards)
            if stage not in self.upstream:
                raise FatalError(f"dvc.yaml has no stage {stage}; `dvc stage list` names them.")
            return self.stamps(self.upstream[stage])

        return stamps

    def stamps(self, names: Iterable[str] | None = None) -> list[str]:
        return [str(STAMPS / name) for name in (self.upstream if names is None else names)]


def living_jobs(names: set[str]) -> dict[str, str]:
    if shutil.which("squeue") is None:
        return {}
    command = ["squeue", "--me", "--noheader", "--format=%i|%k|%Z"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except subprocess.TimeoutExpired:
        # No controller answers, so none takes jobs either.
        return {}
    rules = "|".join(map(re.escape, names))
    # The executor writes "rule_finetune_wildcards_cola_1". For a group of rules it is "rule_corpus_clean_tokenize", and
    # `...` stands for rules after the fifth.
    comment_pattern = re.compile(rf"rule_((?:{rules})(?:_(?:{rules}|\.\.\.))*)(?:_wildcards_.*)?")
    living = {}
    for line in answer.splitlines():
        number, _, comment_and_folder = line.strip().partition("|")
        comment, _, folder = comment_and_folder.partition("|")
        rule = comment_pattern.fullmatch(comment)
        if rule and os.path.realpath(folder) == os.getcwd() and number != os.environ.get("SLURM_JOB_ID"):
            living[number] = rule[1]
    return living


def _check_cache() -> None:
    # Otherwise a training could end without being recorded.
    for folder in (cache_folder() / "files/md5", cache_folder() / "runs"):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not os.access(there, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise FatalError(
                f"DVC's cache cannot be written, so what runs here could not be recorded: {there}. `dvc checkout` puts "
                "in place what it has; to run stages, see docs/troubleshooting.md#a-cache-that-you-may-only-read."
            )


def keep_by_host(table: Path) -> None:
    """Make ``table``, in which DVC lists files in use, a link to a file on this host, so that each host has its own.

    The table identifies a process by its number on one host. If hosts share the table, even ``dvc status`` on another
    host takes a running stage for dead and deletes its line; the DVC that runs the stage then fails to record it.

    The file is in /tmp, the only place that each host has for itself. Nobody can guess its name and put a link there.

    Raises:
        FatalError: somebody else has made the file.
    """
    # A copied checkout has the link of the one it was copied from.
    checkout = hashlib.sha256(os.getcwd().encode()).hexdigest()[:16]
    prefix = f"/tmp/dvc-rwlock-{os.getuid()}-{checkout}-"
    if table.is_symlink() and str(table.readlink()).startswith(prefix):
        target = table.readlink()
        with contextlib.suppress(FileNotFoundError):
            state = target.lstat()
            if not stat.S_ISREG(state.st_mode) or state.st_uid != os.getuid():
                raise FatalError(
                    f"{target} is not a file of yours, so DVC must not write there. Once no stage runs: rm {table}"
                )
        return
    target = Path(prefix + secrets.token_hex(8))
    table.parent.mkdir(parents=True, exist_ok=True)
    if table.is_symlink():
        table.unlink()
    elif table.exists():
        # A DVC of this host may be at work.
        shutil.move(table, target)
    table.symlink_to(target)


def _is_by_host(table: Path) -> bool:
    name = r"/tmp/dvc-rwlock-\d+-[0-9a-f]{16}-[0-9a-f]{16}"
    return table.is_symlink() and re.fullmatch(name, str(table.readlink())) is not None


def _clear_stale_rwlock(table: Path) -> bool:
    """Remove ``table``, DVC's list of files in use, if a killed DVC left it; return whether it lists a live process.

    A kill leaves the table cut off, so that DVC fails, or with only dead processes. DVC itself takes zombies for alive,
    which stay in a container without an init process. A table that is cut off is read again: it may be being written.
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
    # Only a table of `keep_by_host` is deleted through a link.
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


def _restore_lock(lock: str, declared: Collection[str] | None, fresh: Collection[str]) -> bool:
    """Put entries that a kill cut off dvc.lock back, from the copy of Snakemake's last start or git; return success.

    The arguments are those of ``complete_lock``.
    """
    copies = [_text(LOCK_COPY), committed_lock()]
    if not LOCK.exists() or (lock in copies and _is_mapping(lock)) or _has_merge_markers(lock):
        return False
    completed = lock
    returned: dict[str, None] = {}
    for earlier in copies:
        completed, names = complete_lock(completed, earlier, declared, fresh)
        returned |= dict.fromkeys(names)
    if not _is_mapping(completed):
        completed = next(filter(_is_mapping, copies), lock)
    if completed == lock and declared is None:
        # No copy has the last entry, of a stage that has just run: its outputs are in the run-cache.
        completed = without_cut_entry(lock)
    if completed == lock or not _is_settled(lock):
        return False
    _write(LOCK_COPY.with_suffix(".damaged"), lock)
    _write(LOCK, completed)
    if returned:
        logger.warning(
            f"dvc.lock lacked entries that it had before, as after a kill; they are back: {', '.join(returned)}."
        )
    else:
        logger.warning("dvc.lock was cut off, as by a kill; what it lacks now comes from the run-cache.")
    return True


def _has_merge_markers(lock: str) -> bool:
    return bool(re.search("^<{7} ", lock, re.MULTILINE))


def _is_settled(lock: str) -> bool:
    # DVC writes dvc.lock only while it holds the lock that each of its commands waits for. So if the file held ``lock``
    # before a command and still does, no DVC was writing it.
    return _text(LOCK) == lock and not _clear_stale_rwlock(IN_USE)


def _is_mapping(text: str) -> bool:
    try:
        return isinstance(yaml.safe_load(text), dict)
    except yaml.YAMLError:
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _changed(path: Path) -> int:
    # A number to compare with itself: the clock may have been set back.
    try:
        return path.stat().st_ctime_ns
    except FileNotFoundError:
        return 0


def _write(path: Path, text: str, time: int | None = None) -> None:
    """Write a new file in place of ``path``, so that no kill can cut it off; ``time`` is when it says it was written.

    Only a file's owner may set its time, and the file at ``path`` may be another user's.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    if time is not None:
        os.utime(partial, (time, time))
    partial.replace(path)


def _lives(pid: int, written: float) -> bool:
    # After a restart of the machine or of a container, the number is soon another process's. That one is younger than
    # the table and no DVC; one sign alone may deceive, as file servers' clocks differ and scripts may import DVC.
    try:
        process = psutil.Process(pid)
        # Linux gives the time of a process's start in whole seconds.
        is_younger = process.create_time() > written + 1
        is_reused = is_younger and not any("dvc" in word for word in process.cmdline())
        return not is_reused and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        # ZombieProcess is a subclass.
        return False
    except psutil.AccessDenied:
        return True


def _dvc(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _answer(process: subprocess.Popen[str], show_log: bool = False) -> str:
    """Wait for a DVC command, and return its output; ``show_log``: also log its stderr.

    Raises:
        FatalError: the command failed. The text is DVC's message and a hint.
    """
    output, errors = process.communicate()
    if not process.returncode:
        if show_log and errors.strip():
            logger.info(errors.strip())
        return output
    if _has_merge_markers(_text(LOCK)):
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
    # A hash that is cut off may look like a number, which DVC does not expect.
    if re.search("'./dvc.lock' validation failed|unexpected error", errors) or not _is_mapping(_text(LOCK)):
        error = LockFileError
        hint = " If a kill has cut dvc.lock off: git checkout dvc.lock; the run-cache has what it then lacks."
    elif "'./dvc.lock' is invalid" in errors:
        hint = " Bring it back: git checkout HEAD -- dvc.lock; the run-cache has what it then lacks."
    message = errors.strip().removeprefix("ERROR: ").partition("\nHaving any troubles?")[0].strip()
    raise error(f"DVC: {message}{hint}")


def _read_graph(drawing: str) -> dict[str, list[str]]:
    # "a" -> "b" in the drawing says that b depends on a. Files tracked by ``dvc add`` are left out.
    edges = re.findall(r'^"([^"]+)"(?: -> "([^"]+)")?;$', drawing, re.MULTILINE)
    upstream: dict[str, list[str]] = {name: [] for name, after in edges if not after and not name.endswith(".dvc")}
    for name, after in edges:
        if name in upstream and after in upstream:
            upstream[after].append(name)
    return upstream
