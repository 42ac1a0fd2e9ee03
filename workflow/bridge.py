"""Bridge between DVC and Snakemake.

DVC decides which stages exist and which of them are stale. Snakemake decides when and where they run. Every job is
``dvc repro --single-item STAGE``, so DVC restores, runs, hashes and records the outputs. For each stage, Snakemake sees
a stamp file, ``.snakemake/dvc/STAGE``, which exists if the stage is fresh (not stale). The bridge uses only DVC's
command line.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from snakemake.logging import logger

from dvc_command import LockFileError, answer, dvc
from fatal_error import FatalError
from files_in_use import IN_USE, clear_stale, keep_by_host
from lock_repair import is_settled, read_text, restore_lock, write_text
from pipeline_src.engine.dvc_lock import LOCK, LOCK_COPY, complete_lock, split_entries
from pipeline_src.engine.records import cache_folder, run_of_same_inputs, settle_records
from slurm_jobs import living_jobs

STAMPS = Path(".snakemake/dvc")
GRAPH = STAMPS / "graph.json"
# Status that DVC reports for an output that is in the workspace but not in the cache.
NOT_IN_CACHE = "not in cache"
# DVC runs a stage's command with $SHELL, and the commands in dvc.yaml are written for bash.
RUN = "export SHELL=/bin/bash; dvc --wait-for-lock repro --single-item"

# Hide Snakemake's message that it has no metadata on outputs, since DVC made them.
logger.addFilter(lambda record: "provenance/metadata" not in record.getMessage())


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
        clear_stale(IN_USE)
        for sentence in settle_records():
            logger.warning(f"A wrong record in dvc.lock was removed, so the stage runs again: {sentence}.")
        STAMPS.mkdir(parents=True, exist_ok=True)
        before = {name: _changed(STAMPS / name) for name in os.listdir(STAMPS)}
        stale = self._compare()
        if stale:
            _check_cache()
        # Run `code` first: whether other stages are stale depends on the fingerprints that it writes.
        if "code" in stale:
            answer(dvc("repro", "--single-item", "code"), show_log=True)
            stale = self._compare()
        stale = {name: changes for name, changes in stale.items() if name in self.upstream}
        uncached = self._uncached(stale)
        if uncached:
            names = " ".join(sorted(uncached))
            logger.warning(f"Outputs of {names} are not in DVC's cache; put them back: dvc commit -f {names}")
        to_run = self._with_downstream(stale.keys() - uncached)
        write_text(GRAPH, json.dumps(self.upstream))
        for name in self.upstream:
            stamp = STAMPS / name
            if name not in to_run:
                # Give all fresh stamps the same time, so that no stamp is newer than the stamps that depend on it.
                write_text(stamp, "", time=1)
            # If the stamp has changed since, another Snakemake process has just made it, so keep it.
            elif name in before and _changed(stamp) == before[name]:
                stamp.unlink(missing_ok=True)

    def _compare(self) -> dict[str, list[Any]]:
        lock = read_text(LOCK)
        graph, status = dvc("dag", "--dot"), dvc("status", "--json")
        try:
            self.upstream = _read_graph(answer(graph))
            self.stale = json.loads(answer(status))
        except LockFileError:
            if not restore_lock(lock, None, ()):
                raise
            return self._compare()
        if lock and is_settled(lock):
            if restore_lock(lock, self.upstream, self.upstream.keys() - self.stale.keys()):
                return self._compare()
            # Update the backup from which a truncated dvc.lock is restored. Entries are never removed from it.
            write_text(LOCK_COPY, complete_lock(lock, read_text(LOCK_COPY))[0])
        return self.stale

    def prepare_records(self) -> None:
        """Adapt dvc.lock before jobs start, so that DVC reuses all runs that this machine has cached."""
        self._drop_removed_entries()
        self._use_runs_of_this_machine()

    def _drop_removed_entries(self) -> None:
        # Remove entries of stages that are no longer in dvc.yaml. Their results stay in the run-cache.
        lock = read_text(LOCK)
        entries = split_entries(lock)
        current = lock
        for name in entries.keys() - self.upstream.keys():
            current = current.replace(entries[name], "")
        if current != lock and is_settled(lock):
            write_text(LOCK, current)

    def _use_runs_of_this_machine(self) -> None:
        """Replace entries of dvc.lock whose outputs are not in the cache by cached runs with the same inputs.

        Another machine may have made other bytes from the same inputs. After `git checkout dvc.lock`, DVC would run
        such a stage again, since it searches its run-cache only if the inputs differ from those in dvc.lock.
        """
        lock = current = read_text(LOCK)
        for name, entry in split_entries(lock).items():
            changes = self.stale.get(name, [])
            # Each change is {"changed outs": {...}}, {"changed deps": {...}} or a sentence.
            if changes and all("changed outs" in change for change in changes):
                current = current.replace(entry, run_of_same_inputs(entry, cache_folder()) or entry)
        if current != lock and is_settled(lock):
            write_text(LOCK, current)

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
        changed = json.loads(answer(dvc("data", "status", "--json"))).get("uncommitted", {})
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


def _check_cache() -> None:
    # Check now that DVC's cache can be written. Otherwise a training could end without being recorded.
    for folder in (cache_folder() / "files/md5", cache_folder() / "runs"):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not os.access(there, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise FatalError(
                f"DVC's cache is read-only, so results could not be recorded: {there}. `dvc checkout` restores outputs "
                "from it; to run stages, see docs/troubleshooting.md#a-cache-that-you-may-only-read."
            )


def _changed(path: Path) -> int:
    # The ctime, only to be compared for equality, since the clock may have been set back.
    try:
        return path.stat().st_ctime_ns
    except FileNotFoundError:
        return 0


def _read_graph(drawing: str) -> dict[str, list[str]]:
    # In DVC's drawing, "a" -> "b" means that b depends on a. Files tracked by `dvc add` are left out.
    edges = re.findall(r'^"([^"]+)"(?: -> "([^"]+)")?;$', drawing, re.MULTILINE)
    upstream: dict[str, list[str]] = {name: [] for name, after in edges if not after and not name.endswith(".dvc")}
    for name, after in edges:
        if name in upstream and after in upstream:
            upstream[after].append(name)
    return upstream
