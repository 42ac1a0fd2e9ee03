"""Bridge between DVC and Snakemake.

DVC decides which stages exist and which of them are stale. Snakemake decides when and where they run. Every job is
``dvc repro --single-item STAGE``, so DVC restores, runs, hashes and records the outputs. For each stage, Snakemake sees
a stamp file, ``.snakemake/dvc/STAGE``, which exists if the stage is fresh (not stale). The bridge uses only DVC's
command line.
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
# Status that DVC reports for an output that is in the workspace but not in the cache.
NOT_IN_CACHE = "not in cache"
# DVC runs a stage's command with $SHELL, and the commands in dvc.yaml are written for bash.
RUN = "export SHELL=/bin/bash; dvc --wait-for-lock repro --single-item"

# Hide Snakemake's message that it has no metadata on outputs, since DVC made them.
logger.addFilter(lambda record: "provenance/metadata" not in record.getMessage())


class FatalError(SystemExit):
    """Ends Snakemake with ``sentence`` as the last line of its output.

    For any other exception, Snakemake would also print source lines of this file.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(f"error: {sentence}")


# DVC cannot read dvc.lock.
class LockFileError(FatalError):
    pass


class Stages:
    """The stages of dvc.yaml.

    Args:
        decides: True for Snakemake's main process, which plans the run. False for the process of a cluster job, which
            reads the graph that the main process has written.
        rules: names of all rules, with wildcards (``finetune@{task}-{seed}``).
        groups: names of groups of rules that are submitted as one job.

    Attributes:
        upstream: stage (``finetune@cola-1``) -> names of the stages that it depends on.
        stale: stale stage -> its changes, as `dvc status --json` lists them. Empty in the process of a job.

    Raises:
        FatalError: the run cannot start. For example, another DVC command or Slurm jobs of an earlier run are active,
            DVC cannot read its files, a stage has no rule, or this folder is read-only. The message says what to do.
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
                # DVC identifies a process by its number on one machine. It would consider a training that runs on
                # another node to be dead.
                jobs = ", ".join(f"{number} ({rule})" for number, rule in living.items())
                raise FatalError(
                    f"Slurm jobs of another run are active in this folder: {jobs}. Wait until they have ended "
                    f"(squeue --me), or cancel them: scancel {' '.join(living)}"
                )
            self._update_stamps()
        except OSError as error:
            hint = "free disk space, move away what is at this path, or give yourself permission to write there"
            raise FatalError(f"{error.filename or os.getcwd()}: {error.strerror}. Nothing was run: {hint}.") from None
        declared = {name.partition("@")[0] for name in self.upstream}
        missing = ", ".join(sorted(declared - ruled))
        if missing:
            raise FatalError(f"dvc.yaml has stages without a rule: {missing}. Add them to JOBS in the Snakefile.")
        beyond = ", ".join(sorted(ruled - declared))
        if beyond:
            raise FatalError(f"dvc.yaml has no stage {beyond}, which a rule runs.")

    def _update_stamps(self) -> None:
        # With Slurm, jobs run on other hosts, so each host needs its own table of files in use.
        if shutil.which("squeue") or IN_USE.is_symlink():
            keep_by_host(IN_USE)
        _clear_stale_rwlock(IN_USE)
        for sentence in settle_records():
            logger.warning(f"A wrong record in dvc.lock was removed, so the stage runs again: {sentence}.")
        STAMPS.mkdir(parents=True, exist_ok=True)
        before = {name: _changed(STAMPS / name) for name in os.listdir(STAMPS)}
        stale = self._compare()
        if stale:
            _check_cache()
        # Run `code` first: whether other stages are stale depends on the fingerprints that it writes.
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
                # Give all fresh stamps the same time, so that no stamp is newer than the stamps that depend on it.
                _write(stamp, "", time=1)
            # If the stamp has changed since, another Snakemake process has just made it, so keep it.
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
            # Update the backup from which a truncated dvc.lock is restored. Entries are never removed from it.
            _write(LOCK_COPY, complete_lock(lock, _text(LOCK_COPY))[0])
        return self.stale

    def prepare_records(self) -> None:
        """Adapt dvc.lock before jobs start, so that DVC reuses all runs that this machine has cached."""
        self._drop_removed_entries()
        self._use_runs_of_this_machine()

    def _drop_removed_entries(self) -> None:
        # Remove entries of stages that are no longer in dvc.yaml. Their results stay in the run-cache.
        lock = _text(LOCK)
        entries = split_entries(lock)
        current = lock
        for name in entries.keys() - self.upstream.keys():
            current = current.replace(entries[name], "")
        if current != lock and _is_settled(lock):
            _write(LOCK, current)

    def _use_runs_of_this_machine(self) -> None:
        """Replace entries of dvc.lock whose outputs are not in the cache by cached runs with the same inputs.

        Another machine may have made other bytes from the same inputs. After `git checkout dvc.lock`, DVC would run
        such a stage again, since it searches its run-cache only if the inputs differ from those in dvc.lock.
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
        # Adds all stages that depend on stale ones. Some of them may later turn out to be fresh.
        result = set(stale)
        while more := {name for name, before in self.upstream.items() if result & set(before)} - result:
            result |= more
        return result

    def _uncached(self, stale: dict[str, list[Any]]) -> set[str]:
        # Returns the stages that are stale only because the cache lacks their outputs, which still exist here.
        paths_of = {}
        for name, changes in stale.items():
            outputs: dict[str, str] = {}
            for change in changes:
                # {"changed outs": {"data/tokens": "not in cache"}}, {"changed deps": {...}} or a sentence
                outputs |= change.get("changed outs", {"": ""}) if isinstance(change, dict) else {"": change}
            # `dvc status` also says "not in cache" for outputs that are missing (as in a fresh clone) or were edited.
            if set(outputs.values()) == {NOT_IN_CACHE} and all(map(os.path.exists, outputs)):
                paths_of[name] = outputs.keys()
        if not paths_of:
            return set()
        changed = json.loads(_answer(_dvc("data", "status", "--json"))).get("uncommitted", {})
        edited = {path.rstrip("/") for path in changed.get("modified", [])}
        return {name for name, paths in paths_of.items() if not paths & edited}

    def before(self, name: str) -> Callable[[Any], list[str]]:
        """Return an input function for a rule: it lists the stamps of the stages that ``name`` depends on.

        Args:
            name: name of the rule, with wildcards.
        """

        def stamps(wildcards: Any) -> list[str]:
            stage = name.format(**wildcards)
            if stage not in self.upstream:
                raise FatalError(f"dvc.yaml has no stage {stage}; `dvc stage list` lists all stages.")
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
        # Slurm's controller does not answer. Then it does not accept jobs either.
        return {}
    rules = "|".join(map(re.escape, names))
    # The executor's comment on a job is such as "rule_finetune_wildcards_cola_1". For a group of rules it is such as
    # "rule_corpus_clean_tokenize", where "..." stands for all rules after the fifth.
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
    # Check now that DVC's cache can be written. Otherwise a training could end without being recorded.
    for folder in (cache_folder() / "files/md5", cache_folder() / "runs"):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not os.access(there, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise FatalError(
                f"DVC's cache is read-only, so results could not be recorded: {there}. `dvc checkout` restores outputs "
                "from it; to run stages, see docs/troubleshooting.md#a-cache-that-you-may-only-read."
            )


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


def _clear_stale_rwlock(table: Path) -> bool:
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


def _restore_lock(lock: str, declared: Collection[str] | None, fresh: Collection[str]) -> bool:
    """Restore the entries that a kill cut off dvc.lock, from Snakemake's backup or the committed file.

    The arguments are those of ``complete_lock``.

    Returns:
        Whether dvc.lock was changed.
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
        # The last entry is truncated and in no copy, so drop it. DVC restores its outputs from the run-cache.
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
    # Returns whether dvc.lock still has the text `lock` and no live process uses DVC's files. DVC writes dvc.lock only
    # while it holds the lock that each of its commands waits for. So if the text is the same before and after a DVC
    # command, no other DVC was writing the file.
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
    # The ctime, only to be compared for equality, since the clock may have been set back.
    try:
        return path.stat().st_ctime_ns
    except FileNotFoundError:
        return 0


def _write(path: Path, text: str, time: int | None = None) -> None:
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


def _dvc(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _answer(process: subprocess.Popen[str], show_log: bool = False) -> str:
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
    # A truncated hash may look like a number, which makes DVC fail with an unexpected error.
    if re.search("'./dvc.lock' validation failed|unexpected error", errors) or not _is_mapping(_text(LOCK)):
        error = LockFileError
        hint = " If a kill has truncated dvc.lock: git checkout dvc.lock; newer entries are still in the run-cache."
    elif "'./dvc.lock' is invalid" in errors:
        hint = " Restore it: git checkout HEAD -- dvc.lock; newer entries are still in the run-cache."
    message = errors.strip().removeprefix("ERROR: ").partition("\nHaving any troubles?")[0].strip()
    raise error(f"DVC: {message}{hint}")


def _read_graph(drawing: str) -> dict[str, list[str]]:
    # In DVC's drawing, "a" -> "b" means that b depends on a. Files tracked by `dvc add` are left out.
    edges = re.findall(r'^"([^"]+)"(?: -> "([^"]+)")?;$', drawing, re.MULTILINE)
    upstream: dict[str, list[str]] = {name: [] for name, after in edges if not after and not name.endswith(".dvc")}
    for name, after in edges:
        if name in upstream and after in upstream:
            upstream[after].append(name)
    return upstream
