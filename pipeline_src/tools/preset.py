"""Tool ``preset``: put a complete study in place of params.yaml."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file
from pipeline_src.params.study import check_study
from pipeline_src.tools.preset_family import BASIS, family, render

PRESETS = Path("workflow/presets")
PARAMS = Path("params.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments: a name, or ``--list``."""
    parser.add_argument("name", nargs="?", help="a study of workflow/presets/, without .yaml, or of the family of BERT")
    parser.add_argument("--list", action="store_true", help="say which there are, and change nothing")


def main(arguments: argparse.Namespace) -> None:
    """List the presets, or put one in place.

    Raises:
        PipelineError: no preset is named or none has that name, or the preset itself is not a valid study.
    """
    if arguments.list:
        for name, text in presets().items():
            print(f"{name:<20} {text.splitlines()[0].lstrip('# ').removeprefix(f'{name}: ')}")
        return
    use_preset(arguments.name)
    print(f"params.yaml is now the study {arguments.name!r}; `git diff params.yaml` shows what changed")


def presets(folder: Path = PRESETS) -> dict[str, str]:
    """Name of every preset -> its text, the first line of which says what it is: files, then the rest of the family."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))}
    if BASIS in found:
        found |= {name: render(name, member, found[BASIS]) for name, member in family().items() if name not in found}
    return found


def use_preset(name: str | None, folder: Path = PRESETS, params: Path = PARAMS) -> None:
    """Check a preset, then write it over ``params`` byte for byte, so that its comments stay.

    Raises:
        PipelineError: as in :func:`main`; ``params`` is then as it was.
    """
    known = presets(folder)
    if name not in known:
        what = "no such preset" if name else "no preset is named"
        remedy = f"`python -m pipeline_src preset --list` shows all; among them {', '.join(list(known)[:8])}"
        raise PipelineError(what, name, where=folder, remedy=remedy if known else "none is there")
    check_study(yaml.safe_load(known[name]), folder / f"{name}.yaml")
    with atomic_file(params) as file:
        file.write(known[name])
