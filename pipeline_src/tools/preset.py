"""Tool ``preset``: put a complete study in place of params.yaml."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file
from pipeline_src.params.study import check_study
from pipeline_src.tools.preset_family import BASIS, Member, family, render
from pipeline_src.tools.preset_published import Published, published, render_published

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
        for name, title in preset_titles().items():
            print(f"{name:<20} {title}")
        return
    use_preset(arguments.name)
    print(f"params.yaml is now the study {arguments.name!r}; `git diff params.yaml` shows what changed")


def preset_titles(folder: Path = PRESETS) -> dict[str, str]:
    """Name of every preset -> what it is, in a line: files, then the rest of the family."""
    titles = {}
    for path in sorted(folder.glob("*.yaml")):
        first_line = path.read_text(encoding="utf-8").partition("\n")[0]
        titles[path.stem] = first_line.lstrip("# ").removeprefix(f"{path.stem}: ")
    if BASIS in titles:
        others: dict[str, Member | Published] = {**family(), **published()}
        titles |= {name: member.about for name, member in others.items() if name not in titles}
    return titles


def preset_text(name: str | None, folder: Path = PRESETS) -> str:
    """A preset, as params.yaml would hold it.

    Raises:
        PipelineError: no preset is named, or none has that name.
    """
    titles = preset_titles(folder)
    if name not in titles:
        what = "no such preset" if name else "no preset is named"
        remedy = f"`python -m pipeline_src preset --list` shows all; among them {', '.join(list(titles)[:8])}"
        raise PipelineError(what, name, where=folder, remedy=remedy if titles else "none is there")
    path = folder / f"{name}.yaml"
    if path.exists():
        return path.read_text(encoding="utf-8")
    basis = (folder / f"{BASIS}.yaml").read_text(encoding="utf-8")
    return render_published(name, basis) if name in published() else render(name, family()[name], basis)


def use_preset(name: str | None, folder: Path = PRESETS, params: Path = PARAMS) -> None:
    """Check a preset, then write it over ``params`` byte for byte, so that its comments stay.

    Raises:
        PipelineError: as in :func:`main`; ``params`` is then as it was.
    """
    text = preset_text(name, folder)
    check_study(yaml.safe_load(text), folder / f"{name}.yaml")
    with atomic_file(params) as file:
        file.write(text)
