"""Keeping DVC's and Snakemake's ideas of "done" the same, by stamps: one empty file a stage.

mtime 0: DVC says the stage is fresh. No stamp: it is stale, and Snakemake runs it. A real mtime: Snakemake has
finished it and DVC does not know yet. Only such stages are committed, and only if command, parameters, code and
input are what they were when the run began.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from dvc.dependency import param
from dvc.dependency.param import ParamsDependency
from dvc.exceptions import DvcException
from dvc.stage import PipelineStage
from snakemake.logging import logger

from dvc_stages import Pipeline
from patience import in_words, patience, size_of
from restore import Restore, differs

SNAPSHOT = "snapshot"  # no stamp: what the stages would run with
HASHED_WHOLE = 1 << 20  # bytes: larger inputs are compared by size and mtime


class State:
    """The stamps of a pipeline.

    Args:
        pipeline: as DVC reads it now.
        folder: where the stamps of finished stages lie.
    """

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline, self.folder = pipeline, folder
        self.snapshot_file = folder / f"{SNAPSHOT}.json"

    def stamp(self, stage: PipelineStage) -> Path:
        """Where the stage's stamp lies."""
        return self.folder / self.pipeline.stamps[stage.name]

    # -- what is stale --------------------------------------------------------------------------------------

    def stale(self, *, restore: bool) -> list[PipelineStage]:
        """Stages that must run, with all that depends on them.

        Args:
            restore: first bring back, from dvc.lock and the run-cache, what was made before (needs DVC's lock);
                otherwise nothing is written, and what waits to be committed counts as fresh.

        Raises:
            WorkflowError: outputs would be lost, see :meth:`Restore.check`.
        """
        with _params_read_once():
            return self._stale(restore)

    def _stale(self, restore: bool) -> list[PipelineStage]:
        waiting = [] if restore else self.finished()[0]
        cache = Restore(self.pipeline.repo)
        if restore:
            cache.tracked()
        stale: dict[PipelineStage, None] = {}
        for stage in self.pipeline.stages.values():
            if any(above in stale for above in self.pipeline.upstream(stage)):
                stale[stage] = None
                continue
            with patience(f"comparing {stage.name} with dvc.lock"):
                changed = stage not in waiting and _changed(stage)
                if restore and not changed:
                    cache.keep(stage)
            if changed and not (restore and cache.stage(stage)):
                stale[stage] = None
        cache.check()
        return list(stale)

    def write_stamps(self, folder: Path, stale: Iterable[PipelineStage]) -> None:
        """Make the stamps in ``folder`` say what DVC says."""
        stale = set(stale)
        folder.mkdir(parents=True, exist_ok=True)
        known = {folder / name for name in self.pipeline.stamps.values()} | {self.snapshot_file}
        for old in folder.rglob("*"):
            if old.is_file() and old not in known:
                old.unlink()
        for name, stage in self.pipeline.stages.items():
            path = folder / self.pipeline.stamps[name]
            if stage in stale:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                os.utime(path, (0, 0))

    # -- what was finished ----------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Record what every stage would run with now; called when the first job is about to start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _params_read_once():
            now = {stage.name: self._signature(stage) for stage in self.pipeline.stages.values()}
        partial = self.snapshot_file.with_suffix(".partial")
        partial.write_text(json.dumps(now), encoding="utf-8")
        os.replace(partial, self.snapshot_file)

    def finished(self) -> tuple[list[PipelineStage], list[PipelineStage]]:
        """Stages that Snakemake finished and DVC does not know: those that may be committed, and the others."""
        try:
            before = json.loads(self.snapshot_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            before = {}
        stamps = real_stamps(self.folder)
        good: list[PipelineStage] = []
        changed: list[PipelineStage] = []
        for stage in self.pipeline.stages.values():
            if self.stamp(stage) not in stamps:
                continue
            same = before.get(stage.name) == self._signature(stage) and not self._newer_input(stage)
            (good if same else changed).append(stage)
        return good, changed

    def record(self, known: Collection[str]) -> set[str]:
        """While jobs run, record what was finished but what is ``known``; names (needs DVC's lock).

        Nothing in the workspace is touched, for a job may read it: :meth:`commit` links it to the cache later.
        """
        new = [stage for stage in self.finished()[0] if stage.name not in known]
        return {stage.name for stage in self._save(new, relink=False)}

    def commit(self, recorded: Collection[str] = ()) -> None:
        """Record in dvc.lock, DVC's cache and its run-cache every stage that Snakemake finished (needs DVC's lock).

        Args:
            recorded: names of those that :meth:`record` recorded in this run, of which there is nothing to say.
        """
        good, changed = self.finished()
        for stage in changed:
            if stage.name not in recorded:
                logger.warning(f"dvc: {stage.name} changed while it ran, not committed")
            self.stamp(stage).unlink()
        saved = self._save(good, relink=True, silent=recorded)
        for stage in good:
            if stage in saved:
                os.utime(self.stamp(stage), (0, 0))
            else:
                self.stamp(stage).unlink()
        self.snapshot_file.unlink(missing_ok=True)

    def _save(
        self, stages: Iterable[PipelineStage], *, relink: bool, silent: Collection[str] = ()
    ) -> list[PipelineStage]:
        """Those of the stages that could be recorded."""
        saved = []
        news = [stage for stage in stages if stage.name not in silent]
        for stage in stages:
            size = in_words(sum(size_of(Path(out.fs_path)) for out in stage.outs))
            what = f"committing {stage.name} ({size})"
            if stage in news:
                what = f"committing {stage.name} ({news.index(stage) + 1} of {len(news)}, {size})"
                logger.info(f"dvc: {what}")
            try:
                with patience(what):
                    stage.save()
                    stage.commit(relink=relink)
            except DvcException as error:
                logger.warning(f"dvc: {stage.name} not committed: {error}")
            else:
                saved.append(stage)
        if saved:
            saved[0].dvcfile.dump_stages(saved, update_pipeline=False)
        return saved

    def _signature(self, stage: PipelineStage) -> dict[str, Any]:
        """What the stage would run with now: command, outputs, parameters, and the input that no stage makes."""
        signature: dict[str, Any] = {"cmd": stage.cmd, "outs": [self.pipeline.path(out) for out in stage.outs]}
        for dep in stage.deps:
            path = self.pipeline.path(dep)
            if isinstance(dep, ParamsDependency):
                signature[f"params {path}"] = dep.read_params()
            elif dep.protocol == "local" and not self.pipeline.outputs_behind(path):
                signature[path] = {name: _fingerprint(name) for name in self._files(dep)}
        return json.loads(json.dumps(signature, default=str))  # as it comes back from disk

    def _newer_input(self, stage: PipelineStage) -> bool:
        """Whether input that another stage makes was written again after this stage had finished."""
        done = self.stamp(stage).stat().st_mtime_ns
        made = [dep for dep in stage.deps if self.pipeline.outputs_behind(self.pipeline.path(dep))]
        return any(os.stat(name).st_mtime_ns > done for dep in made for name in self._files(dep))

    def _files(self, dep: Any) -> list[str]:
        """Files of a dependency, as DVC sees them (``.dvcignore`` holds)."""
        if not os.path.isdir(dep.fs_path):
            return [dep.fs_path] if os.path.exists(dep.fs_path) else []
        return sorted(self.pipeline.repo.dvcignore.find(dep.fs, dep.fs_path))


def real_stamps(folder: Path) -> set[Path]:
    """Stamps of what Snakemake has finished and DVC may not know."""
    found = set()
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # of a job that is begun again
            if file.is_file() and not file.name.startswith(f"{SNAPSHOT}.") and file.stat().st_mtime:
                found.add(file)
    return found


@contextmanager
def _params_read_once() -> Iterator[None]:
    """Within it each file of parameters is parsed once: DVC parses it for every stage, a quarter of a start."""
    load = param.load_path
    param.load_path = cache(load)
    try:
        yield
    finally:
        param.load_path = load


def _changed(stage: PipelineStage) -> bool:
    """Whether DVC calls the stage changed; unlike DVC's own function it takes and writes no lock, and needs no cache."""
    if stage.changed_stage() or any(differs(out) for out in stage.outs):
        return True
    if stage.frozen:
        return False
    return bool(stage.is_callback or stage.always_changed or any(differs(dep) for dep in stage.deps))


def _fingerprint(path: str) -> list[Any]:
    facts = os.stat(path)
    if facts.st_size > HASHED_WHOLE:
        return [facts.st_size, facts.st_mtime_ns]
    return [facts.st_size, hashlib.sha256(Path(path).read_bytes()).hexdigest()]
