"""Prepare the checkout before a stage runs: check that outputs can be written, and rename leftover files."""

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
    """Check that ``outputs`` can be written, and that they lie inside the checkout.

    Raises:
        PipelineError: an output's folder is read-only, or is a link that leads out of the checkout.
    """
    # DVC cannot record an output outside the checkout, but notices only when the stage has ended. An example is
    # `models` as a link to another disk.
    here = Path.cwd()
    for folder in sorted({Path(output).parent for output in outputs}):
        for path in (folder, *folder.parents):
            if path.is_symlink() and not path.resolve().is_relative_to(here.resolve()):
                raise PipelineError(
                    "output folder is a link out of the checkout, where DVC cannot record outputs",
                    path,
                    where=f"a link to {path.readlink()}",
                    hint=f"replace the link by a folder (rm {path} && mkdir {path}); to keep data on the other disk, "
                    "move DVC's cache: `dvc cache dir --local FOLDER_THERE`, `dvc config --local cache.type symlink`",
                )
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if not os.access(existing, os.W_OK | os.X_OK):
            raise PipelineError(
                "no permission to write outputs",
                existing.absolute(),
                hint="get write permission for this folder (`chmod u+w`), or work in a clone of your own",
            )


def undeclared_outputs(stages: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    # Some stages depend on a whole folder with the outputs of several stages, such as data/text. Returns the files and
    # folders in there that are no stage's output.
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
            # DVC ignores links to folders and empty folders.
            elif str(path) not in outputs and not is_left_out and not (path.is_symlink() and path.is_dir()):
                undeclared += [path] if look([path]) else []
    return sorted(undeclared)


def put_aside_undeclared(stages: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Rename files that are no stage's output to names that DVC and git ignore, and return the new paths.

    Such files are left over from another branch, or from a source that was removed from params.yaml. If they stayed,
    DVC would include them in the hash of a folder that other stages depend on. These stages would then be stale in a
    clone, which does not have the files.
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
        log.info("leftover files that no stage makes were renamed to %s; you may delete them", names)
    return moved
