"""Tool ``preset``: put a complete study in place of params.yaml."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline_src.errors import PipelineError
from pipeline_src.files import atomic_file
from pipeline_src.params.study import load_study

PRESETS = Path("workflow/presets")
PARAMS = Path("params.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments: a name, or ``--list``."""
    parser.add_argument("name", nargs="?", help="a study in workflow/presets/, without .yaml")
    parser.add_argument("--list", action="store_true", help="say which there are, and change nothing")


def main(arguments: argparse.Namespace) -> None:
    """List the presets, or put one in place.

    Raises:
        PipelineError: no preset is named or none has that name, or the preset itself is not a valid study.
    """
    if arguments.list:
        for name, about in presets().items():
            print(f"{name:<12} {about}")
        return
    use_preset(arguments.name)
    print(f"params.yaml is now the study {arguments.name!r}; `git diff params.yaml` shows what changed")


def presets(folder: Path = PRESETS) -> dict[str, str]:
    """Name of every preset -> the first comment line of its file."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        found[path.stem] = comments[0].lstrip("# ") if comments else ""
    return found


def use_preset(name: str | None, folder: Path = PRESETS, params: Path = PARAMS) -> None:
    """Check a preset, then copy it over ``params`` byte for byte, so that its comments stay.

    Raises:
        PipelineError: as in :func:`main`; ``params`` is then as it was.
    """
    known = presets(folder)
    if name not in known:
        what = "no such preset" if name else "no preset is named"
        raise PipelineError(what, name, where=folder, remedy=f"use one of: {', '.join(known) or 'none is there'}")
    load_study(folder / f"{name}.yaml")
    with atomic_file(params, "wb") as file:
        file.write((folder / f"{name}.yaml").read_bytes())
