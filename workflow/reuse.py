"""A stage that follows one which ran anew is spared where that one made what it had made before, as `dvc repro` does.

Snakemake plans such a stage at the start, when this is not known, and removes its outputs before its job. So the
start marks the stages that nothing but an earlier one makes stale, with their outputs in the cache. When the job of
one begins and its input turns out to be what dvc.lock records, its command is to copy the outputs from there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import threading
from collections.abc import Iterable

from dvc_stages import Pipeline
from dvc_state import FOLDER, NOTES, STAMPS
from engine_api import PipelineStage, logger
from restore import copies

MARKS = FOLDER / "unchanged"
SCRIPTS = FOLDER / "copies"
_one_at_a_time = threading.Lock()  # for DVC's objects, should Snakemake ask for the commands of several jobs at once


def mark(stages: Iterable[PipelineStage]) -> None:
    """Mark the stages that may be spared in this run, and no others."""
    clear()
    for stage in stages:
        (MARKS / stage.name).parent.mkdir(parents=True, exist_ok=True)
        (MARKS / stage.name).touch()


def clear() -> None:
    """Remove all marks."""
    for folder in (MARKS, SCRIPTS):
        shutil.rmtree(folder, ignore_errors=True)


def command(pipeline: Pipeline, stage: PipelineStage) -> str | None:
    """What brings a stage's outputs back; None where it must run, or what it follows has not ended in this run."""
    if not (MARKS / stage.name).exists():
        return None
    earlier = [above.name for above in pipeline.upstream(stage)]
    if any((NOTES / name).exists() and not (STAMPS / name).exists() for name in earlier):
        return None
    with _one_at_a_time:
        files = copies(pipeline, stage)
    if files is None:
        return None
    logger.info(f"dvc: {stage.name} gets its outputs from the cache: its input is as before")
    programs = {out.fs_path for out in stage.outs if out.meta.isexec}
    lines = ["set -e"]
    for path, cached in files.items():
        lines.append(f"mkdir -p {shlex.quote(os.path.dirname(path))}")
        lines.append(f"cp {shlex.quote(cached)} {shlex.quote(path)}")  # read-only in the cache
        lines.append(f"chmod {'=rwx' if path in programs else '=rw'} {shlex.quote(path)}")  # less the umask
    script = SCRIPTS / f"{stage.name}.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("\n".join([*dict.fromkeys(lines), ""]), encoding="utf-8")
    return f"sh {shlex.quote(str(script))}"
