"""What is stale, and what Snakemake has finished that DVC does not know yet.

DVC alone says what is stale: a rule of a stale stage has one input more, a note that is newer than its outputs, and
Snakemake runs it for that. When a command has ended well, its job leaves a stamp, an empty file. Stages with a stamp
are committed, and only if command, parameters, code and input are what they were when the run began.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from dvc_stages import Pipeline
from engine_api import DvcException, ParamsDependency, PipelineStage, logger
from heartbeat import heartbeat, in_words, size_of
from lock_file import record
from restore import DIRECTORY_TIME, Restore, holds_files

FOLDER = Path(".snakemake/dvc")
STAMPS = FOLDER / "finished"
NOTES = FOLDER / "stale"
SNAPSHOT = FOLDER / "snapshot.json"  # what the stages would run with
HASHED_WHOLE = 1 << 20  # bytes: larger inputs are compared by size and mtime


def finished_stages(root: Path = Path(".")) -> set[str]:
    """DVC's names of the stages that Snakemake has finished in a project and DVC may not know."""
    return {str(stamp.relative_to(root / STAMPS)) for stamp in (root / STAMPS).rglob("*") if stamp.is_file()}


def stamp_of(name: str) -> Path:
    """Where the job of a stage says that it has finished."""
    return STAMPS / name


class State:
    """How the stages of a pipeline stand.

    Args:
        pipeline: as DVC reads it now.

    Attributes:
        unchanged: after :meth:`restored`, stale stages that nothing but an earlier one makes stale.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.unchanged: list[PipelineStage] = []

    # -- what is stale --------------------------------------------------------------------------------------

    def stale(self) -> list[PipelineStage]:
        """Stages that must run, with all that depends on them; what waits to be committed counts as fresh."""
        waiting, _ = self.finished()
        stale: dict[PipelineStage, None] = {}
        for stage in self.pipeline.stages.values():
            if self._follows(stage, stale) or (stage not in waiting and self._compared(stage)):
                stale[stage] = None
        return list(stale)

    def restored(self) -> list[PipelineStage]:
        """Stages that must run once everything is in place that DVC's cache has (needs DVC's lock).

        Raises:
            WorkflowError: outputs would be lost, see :meth:`restore.Restore.check`.
        """
        restore = Restore(self.pipeline)
        restore.tracked()
        stale: dict[PipelineStage, None] = {}
        for stage in self.pipeline.stages.values():
            changed = self._compared(stage)
            if not changed:
                restore.keep(stage)
            if self._follows(stage, stale):
                stale[stage] = None
                self.unchanged += [] if changed else [stage]
            elif changed and not restore.stage(stage):
                stale[stage] = None
        restore.check()
        return list(stale)

    def _follows(self, stage: PipelineStage, stale: Collection[PipelineStage]) -> bool:
        return any(above in stale for above in self.pipeline.upstream(stage))

    def _compared(self, stage: PipelineStage) -> bool:
        with heartbeat(f"comparing {stage.name} with dvc.lock"):
            return self.pipeline.changed(stage)

    # -- what was finished ----------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Record what every stage would run with now."""
        SNAPSHOT.parent.mkdir(parents=True, exist_ok=True)
        now = {stage.name: self._signature(stage) for stage in self.pipeline.stages.values()}
        partial = SNAPSHOT.with_suffix(".partial")
        partial.write_text(json.dumps(now), encoding="utf-8")
        os.replace(partial, SNAPSHOT)

    def finished(self) -> tuple[list[PipelineStage], list[PipelineStage]]:
        """Stages that Snakemake finished and DVC does not know: those that may be committed, and the others."""
        stamps = finished_stages()
        good: list[PipelineStage] = []
        changed: list[PipelineStage] = []
        for stage in self.pipeline.stages.values():
            if stage.name in stamps:
                same = self._began_with.get(stage.name) == self._signature(stage) and not self._newer_input(stage)
                (good if same else changed).append(stage)
        return good, changed

    def record(self, known: Collection[str]) -> set[str]:
        """While jobs run, record what was finished but what is ``known``; names (needs DVC's lock).

        Nothing in the workspace is touched, for a job may read it: :meth:`commit` links it to the cache later.
        """
        new = [stage for stage in self.finished()[0] if stage.name not in known]
        return {stage.name for stage in _save(new, relink=False)}

    def commit(self, recorded: Collection[str] = ()) -> None:
        """Record in dvc.lock, DVC's cache and its run-cache every stage that Snakemake finished (needs DVC's lock).

        Args:
            recorded: names of those that :meth:`record` recorded in this run, of which there is nothing to say.
        """
        good, changed = self.finished()
        for stage in changed:
            if stage.name not in recorded:
                logger.warning(f"dvc: {stage.name} changed while it ran, not committed")
        _save(good, relink=True, silent=recorded)
        for name in finished_stages():
            stamp_of(name).unlink()
        SNAPSHOT.unlink(missing_ok=True)

    @cached_property
    def _began_with(self) -> dict[str, Any]:
        try:
            return json.loads(SNAPSHOT.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def _signature(self, stage: PipelineStage) -> dict[str, Any]:
        """What the stage would run with now: command, outputs, parameters, and the input that no stage makes."""
        signature: dict[str, Any] = {"cmd": stage.cmd, "outs": [self.pipeline.path(out) for out in stage.outs]}
        for dep in stage.deps:
            path = self.pipeline.path(dep)
            if isinstance(dep, ParamsDependency):
                signature[f"params {path}"] = self.pipeline.params(dep) if dep.params else dep.read_params()
            elif dep.protocol == "local" and not self.pipeline.outputs_behind(path):
                signature[path] = {name: _fingerprint(name) for name in self._files(dep)}
        return json.loads(json.dumps(signature, default=str))  # as it comes back from disk

    def _newer_input(self, stage: PipelineStage) -> bool:
        """Whether input that another stage makes was written again after this stage had finished.

        Snakemake touches the outputs of a group of jobs once all of them have ended, in any order: where the maker of
        a file ended in this run too, the stamps say which of both was first. A date in the future is that of a clock
        that was ahead, before this run.
        """
        done = stamp_of(stage.name).stat().st_mtime_ns
        for dep in stage.deps:
            made = self.pipeline.outputs_behind(self.pipeline.path(dep))
            earlier = tuple(_below(out) for out in made if self._made_before(out, done))
            files = [name for name in self._files(dep) if not _below(name).startswith(earlier)]
            if made and any(done < os.stat(name).st_mtime_ns <= time.time_ns() for name in files):
                return True
        return False

    def _made_before(self, out: str, end: int) -> bool:
        """Whether the stage that makes an output ended in this run, and by that time."""
        stamp = stamp_of(self.pipeline.makers[out].name)
        return stamp.exists() and stamp.stat().st_mtime_ns <= end

    def _files(self, dep: Any) -> list[str]:
        """Files of a dependency, as DVC sees them (``.dvcignore`` holds)."""
        if not os.path.isdir(dep.fs_path):
            return [dep.fs_path] if os.path.exists(dep.fs_path) else []
        return sorted(self.pipeline.repo.dvcignore.find(dep.fs, dep.fs_path))


def write_notes(folder: Path, stale: Iterable[PipelineStage], *, may_age: bool) -> dict[str, str]:
    """Write a note for every stale stage; its name -> the note.

    Args:
        folder: where to.
        stale: the stages.
        may_age: whether outputs that a clock ahead of ours has dated may be dated anew, so that the notes are newer.
    """
    notes = {}
    for stage in stale:
        note = folder / stage.name
        note.parent.mkdir(parents=True, exist_ok=True)
        # never twice the same text: Snakemake passes over an input that holds what it held last time
        note.write_text(f"{stage.name} is stale: dvc status {stage.name} says why ({time.time_ns()})\n")
        notes[stage.name] = str(note)
        if may_age:
            for out in stage.outs:
                _age(Path(out.fs_path), note.stat().st_mtime)
    return notes


def free_from_cache(stale: Iterable[PipelineStage]) -> None:
    """Make the outputs of stale stages files of their own: links into the cache are read-only for Snakemake."""
    for out in (out for stage in stale for out in stage.outs):
        if os.path.islink(out.fs_path) and not os.path.exists(out.fs_path):
            os.unlink(out.fs_path)  # into a cache that is gone: Snakemake stops at a link to nothing
        elif holds_files(out.fs_path):
            with suppress(FileNotFoundError):  # of some of the links in a folder the cached file is gone
                out.unprotect()


def _age(path: Path, limit: float) -> None:
    for dated in (path, path / DIRECTORY_TIME):
        if dated.exists() and dated.stat().st_mtime >= limit:
            os.utime(dated, (limit - 1, limit - 1))


def _save(stages: Iterable[PipelineStage], *, relink: bool, silent: Collection[str] = ()) -> list[PipelineStage]:
    """Hash, cache and record stages; those of them with which it went well."""
    saved = []
    news = [stage for stage in stages if stage.name not in silent]
    for stage in stages:
        size = in_words(sum(size_of(Path(out.fs_path)) for out in stage.outs))
        what = f"committing {stage.name} ({size})"
        if stage in news:
            what = f"committing {stage.name} ({news.index(stage) + 1} of {len(news)}, {size})"
            logger.info(f"dvc: {what}")
        try:
            with heartbeat(what):
                stage.save()
                stage.commit(relink=relink)
        except DvcException as error:
            logger.warning(f"dvc: {stage.name} not committed: {error}")
        else:
            saved.append(stage)
    if saved:
        record(saved)
    return saved


def _below(path: str) -> str:
    """What the absolute paths of a folder's files, and of a file itself with a slash, begin with."""
    return f"{os.path.abspath(path)}{os.sep}"


def _fingerprint(path: str) -> list[Any]:
    facts = os.stat(path)
    if facts.st_size > HASHED_WHOLE:
        return [facts.st_size, facts.st_mtime_ns]
    return [facts.st_size, hashlib.sha256(Path(path).read_bytes()).hexdigest()]
