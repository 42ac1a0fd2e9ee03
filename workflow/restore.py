"""What was made before is taken from DVC's cache instead of made again, and nothing is lost by it.

An output in the workspace is replaced only by one that is known to lie in the cache, whole: every file of it is hashed
first, since DVC believes a cached file by its name. A workspace that is as dvc.lock says needs no cache, and is put
back into it. Where neither holds what dvc.lock records, the workspace is left as it is, and the user is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.stage import PipelineStage
from dvc.stage.serialize import to_single_stage_lockfile
from dvc_data.hashfile.hash import hash_file
from dvc_data.hashfile.tree import Tree
from dvc_objects.errors import ObjectFormatError
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from patience import patience

NAMED = 5  # paths in a message: a matrix may have hundreds


def differs(item: Any) -> bool:
    """Whether an output or a dependency in the workspace is other than dvc.lock says, or missing."""
    try:
        return bool(item.workspace_status())
    except FileNotFoundError:  # a folder of links into a cache that is gone
        return True


class Restore:
    """Restores stages one by one, and remembers what could not be.

    Attributes:
        conflicts: outputs of which dvc.lock records a version that is neither in the workspace, where another one
            lies, nor in the cache.
        lost: stages that dvc.lock records whose outputs lie nowhere at hand.
    """

    def __init__(self, repo: Repo) -> None:
        self.repo = repo
        self.conflicts: list[str] = []
        self.lost: list[str] = []

    def stage(self, stage: PipelineStage) -> bool:
        """As `dvc repro` does: take the outputs from the cache when this very run was done before."""
        recorded = is_recorded(stage)
        made = self._from(to_single_stage_lockfile(stage), stage) if recorded else self._from_run_cache(stage)
        if made is None:
            return False
        wanted = [out for out in made.outs if differs(out)]
        missing = [out for out in wanted if not self.is_whole(out, f"checking {stage.name} in the cache")]
        if missing:
            if recorded:
                conflicts = [str(out) for out in missing if holds_files(out.fs_path)]
                self.conflicts += conflicts
                self.lost += [] if conflicts else [stage.name]
            return False
        for out in wanted:
            out.checkout(force=True)
        stage.save()
        stage.commit()
        if not recorded:
            stage.dump(update_pipeline=False)
        logger.info(f"dvc: {stage.name} {'checked out' if recorded else 'restored from the run-cache'}")
        return True

    def tracked(self) -> None:
        """Check out files tracked by ``.dvc`` files where they are missing and at hand."""
        for stage in self.repo.index.stages:
            for out in () if stage.cmd else stage.outs:
                if not out.exists and out.hash_info and self.is_whole(out, f"checking {out} in the cache"):
                    out.checkout()

    def keep(self, stage: PipelineStage) -> None:
        """Put the outputs of a fresh stage, which are as dvc.lock says, back into a cache that lacks them."""
        if not any(out.use_cache and out.changed_cache() for out in stage.outs):
            return
        try:
            stage.save()
            stage.commit(relink=False)
        except (DvcException, OSError) as error:
            logger.warning(f"dvc: {stage.name} could not be put back into the cache: {error}")
        else:
            logger.info(f"dvc: {stage.name} put back into the cache")

    def check(self) -> None:
        """Say what runs again for want of its outputs.

        Raises:
            WorkflowError: outputs in the workspace would be lost.
        """
        if self.conflicts:
            raise WorkflowError(
                f"dvc.lock records another version of {_named(self.conflicts)} than lies here, and DVC's cache does "
                "not hold it whole: fetch it by `dvc pull`, or move yours away to have it made anew."
            )
        if self.lost:
            logger.warning(
                f"dvc: {_named(self.lost)} must run anew: dvc.lock records outputs that lie neither here nor whole in "
                "DVC's cache (`dvc pull` fetches what a remote has)"
            )

    def is_whole(self, out: Any, what: str) -> bool:
        """Whether the cache holds all files of an output, by their content; damaged ones are removed from it."""
        with patience(what):
            try:
                if not self._is_sound(out, out.hash_info):
                    return False
                content = out.get_obj()
            except (FileNotFoundError, ObjectFormatError):
                return False
            if not isinstance(content, Tree):
                return content is not None
            return all([self._is_sound(out, entry) for _, _, entry in content])

    def _is_sound(self, out: Any, wanted: Any) -> bool:
        """Whether the file of that hash lies in the cache and has it."""
        cache = out.cache
        path = cache.oid_to_path(wanted.value)
        if not cache.fs.exists(path):
            return False
        _, found = hash_file(path, cache.fs, wanted.name)
        if found.value.split(".")[0] == wanted.value.split(".")[0]:
            return True
        cache.fs.remove(path)
        logger.warning(f"dvc: the cache held a damaged file of {out}, which is removed from the cache")
        return False

    def _from(self, entry: Any, stage: PipelineStage) -> PipelineStage:
        """A stage that has the outputs of ``entry``, those included that are kept by git and lie in the cache too."""
        return self.repo.stage_cache._create_stage(entry, wdir=stage.wdir)

    def _from_run_cache(self, stage: PipelineStage) -> PipelineStage | None:
        """The latest run of the same command on the same input; None where there was none."""
        from dvc.stage.cache import _can_hash

        try:
            stage.save_deps()
        except DvcException:
            return None  # input is missing
        entry = self.repo.stage_cache._load(stage) if _can_hash(stage) else None
        return entry and self._from(entry, stage)


def is_recorded(stage: PipelineStage) -> bool:
    """Whether dvc.lock records a run of the stage with its command, parameters, code and input of now."""
    outputs = all(out.hash_info for out in stage.outs)
    return outputs and not stage.changed_stage() and not any(differs(dep) for dep in stage.deps)


def holds_files(path: str) -> bool:
    """Whether a file lies at ``path``, or one below it; a link counts if what it points to is there."""
    if not os.path.isdir(path):
        return os.path.exists(path)
    return any(os.path.exists(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def _named(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
