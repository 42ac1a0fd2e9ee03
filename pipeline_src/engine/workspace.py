"""Check, before any work, that outputs can be written and recorded here; put aside what no stage makes."""

from __future__ import annotations

import fnmatch
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import log
from pipeline_src.engine.dependencies import IGNORED, look


def check_outputs(outputs: Iterable[str]) -> None:
    """Check that DVC can record ``outputs`` and that they can be written."""
    # DVC records only what lies in the checkout, but finds that out when a stage has ended. If `models` is a link to
    # another disk, its outputs lie outside.
    here = Path.cwd()
    for folder in sorted({Path(output).parent for output in outputs}):
        for path in (folder, *folder.parents):
            if path.is_symlink() and not path.resolve().is_relative_to(here.resolve()):
                raise PipelineError(
                    "outputs would lie outside of the checkout, where DVC cannot record them",
                    path,
                    where=f"a link to {path.readlink()}",
                    hint=f"replace the link by a folder (rm {path} && mkdir {path}); to keep data on the other disk: "
                    "`dvc cache dir --local FOLDER_THERE` and `dvc config --local cache.type symlink`",
                )
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if not os.access(existing, os.W_OK | os.X_OK):
            raise PipelineError(
                "no permission to write outputs",
                existing.absolute(),
                hint="give yourself the right to write there, or work in a clone of your own",
            )


def undeclared_outputs(stages: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    # A stage may read a whole folder of several stages' outputs, such as data/text; what else lies there is returned.
    outputs = {output for stage in stages.values() for output in stage["outs"]}
    above = {str(folder) for output in outputs for folder in Path(output).parents}
    read = {dependency for stage in stages.values() for dependency in stage["deps"]}
    undeclared: list[Path] = []
    folders = [Path(dependency) for dependency in sorted(read & above)]
    while folders:
        folder = folders.pop()
        if folder.is_symlink() or not folder.is_dir():
            continue
        for path in folder.iterdir():
            is_left_out = any(fnmatch.fnmatch(path.name, pattern) for pattern in IGNORED)
            if str(path) in above:
                folders.append(path)
            # DVC hashes neither links to folders nor folders without files.
            elif str(path) not in outputs and not is_left_out and not (path.is_symlink() and path.is_dir()):
                undeclared += [path] if look([path]) else []
    return sorted(undeclared)


def put_aside_undeclared(stages: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Rename undeclared outputs to a name that DVC and git ignore, and log it; return the new paths.

    Stages that read the whole folder hash them too. If dvc.lock recorded hashes with leftovers, of a source that
    params.yaml no longer has or of another branch, these stages would be stale in a clone, which lacks them.
    """
    moved = []
    for path in undeclared_outputs(stages):
        for number in itertools.count(1):
            aside = path.with_name(f".{path.name}.removed-{number}.partial")
            if not os.path.lexists(aside):
                break
        moved.append(path.rename(aside))
    if moved:
        names = ", ".join(map(str, moved))
        log.info("what no stage of params.yaml makes is now %s; delete it if you like", names)
    return moved
