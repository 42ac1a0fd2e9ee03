"""What was made before is taken from DVC's cache instead of made again, and nothing is lost by it.

An output in the workspace is replaced only by one that is known to lie in the cache, whole: every file of it is hashed
first, since DVC believes a cached file by its name. A workspace that is as dvc.lock says needs no cache, and is put
back into it. Where neither holds what dvc.lock records, the workspace is left as it is, and the user is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from dvc_stages import Pipeline
from engine_api import (
    DvcException,
    ObjectFormatError,
    PipelineStage,
    WorkflowError,
    cached_files,
    logger,
    record_of,
    recorded_run,
    run_with_outputs_of,
    true_hash,
)
from heartbeat import heartbeat
from lock_file import record

DIRECTORY_TIME = ".snakemake_timestamp"  # Snakemake's own file in a folder
NAMED = 5  # in one message: a matrix may have hundreds


class Restore:
    """Restores stages one by one, and remembers what could not be.

    Attributes:
        conflicts: outputs of which dvc.lock records a version that is neither in the workspace, where another one
            lies, nor in the cache.
        lost: stages that dvc.lock records whose outputs lie nowhere at hand.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.conflicts: list[str] = []
        self.lost: list[str] = []

    def stage(self, stage: PipelineStage) -> bool:
        """As `dvc repro` does: take the outputs from the cache when this very run was done before."""
        if stage.is_callback or stage.always_changed:
            return False
        recorded = self.pipeline.is_recorded(stage)
        known = record_of(stage) if recorded else recorded_run(stage)
        if known is None:
            return False
        different = [out for out in run_with_outputs_of(stage, known).outs if self.pipeline.differs(out)]
        missing = [out for out in different if not is_whole(out)]
        if missing:
            if recorded:
                conflicts = [str(out) for out in missing if holds_files(out.fs_path)]
                self.conflicts += conflicts
                self.lost += [] if conflicts else [stage.name]
            return False
        for out in different:
            out.checkout(force=True)
        stage.save()
        stage.commit()
        if not recorded:
            record([stage])
        logger.info(f"dvc: {stage.name} {'checked out' if recorded else 'restored from the run-cache'}")
        return True

    def tracked(self) -> None:
        """Check out files tracked by ``.dvc`` files where they are missing and at hand."""
        for stage in self.pipeline.graph:
            for out in () if stage.cmd else stage.outs:
                if not out.exists and out.hash_info and is_whole(out):
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


def is_whole(out: Any) -> bool:
    """Whether the cache holds all files of an output, by their content; damaged ones are removed from it."""
    with heartbeat(f"checking {out} in the cache"):
        try:
            return _is_sound(out, out.hash_info) and all([_is_sound(out, each) for each in cached_files(out).values()])
        except (FileNotFoundError, ObjectFormatError):
            return False


def _is_sound(out: Any, wanted: Any) -> bool:
    """Whether the file of that hash lies in the cache and has it."""
    path = out.cache.oid_to_path(wanted.value)
    if not os.path.exists(path):
        return False
    if true_hash(path, out.cache.fs, wanted.name) == wanted.value.removesuffix(".dir"):
        return True
    out.cache.fs.remove(path)
    logger.warning(f"dvc: the cache held a damaged file of {out}, which is removed from the cache")
    return False


def copies(pipeline: Pipeline, stage: PipelineStage) -> dict[str, str] | None:
    """Where a stage would make again what dvc.lock records: path of every file -> its place in the cache.

    None where command, parameters, code or input are others, or the cache does not hold all of it, whole.
    """
    if not pipeline.is_recorded(stage):
        return None
    outs = run_with_outputs_of(stage, record_of(stage)).outs
    if not all(is_whole(out) for out in outs):
        return None
    return {path: out.cache.oid_to_path(each.value) for out in outs for path, each in cached_files(out).items()}


def holds_files(path: str) -> bool:
    """Whether a file lies at ``path``, or one below it; a link counts if what it points to is there."""
    if not os.path.isdir(path):
        return os.path.exists(path)
    below = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return any(os.path.exists(file) for file in below if os.path.basename(file) != DIRECTORY_TIME)


def _named(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
