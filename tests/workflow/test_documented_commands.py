"""The commands of the documentation that need a finished study, in the order in which the pages give them."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.children import MAINS
from tests.workflow.documented import AFTER_A_STUDY, STANDING, recipes

if TYPE_CHECKING:
    from conftest import Project


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_documented_commands_succeed_after_study(finished_study: Project, tmp_path: Path) -> None:
    project = finished_study.copy(tmp_path / "study")
    project.run("make", "identity")
    (project.path / "texts.txt").write_text("A text.\nAnother text.\n")
    for target, raw in {
        "wikipedia/mine.xml.bz2": "wikipedia/fetched-files/excerpt/*.bz2",
        "books/play.md": "books/fetched-files/hamlet.md",
    }.items():
        (project.path / "data/own" / target).parent.mkdir(parents=True)
        shutil.copy(next((project.path / "data/raw").glob(raw)), project.path / "data/own" / target)
    for command in AFTER_A_STUDY:
        if command == "dvc repro -f download@books":
            project.edit("params.yaml", "from: shakespeare-sample", "from: own-books")
            project.edit("params.yaml", "from: enwiki-sample", "from: own-wikipedia")
            project.edit("params.yaml", "parts:\n      - excerpt", "parts:\n      - mine")
        for name, stands in STANDING.items():
            command = command.replace(name, stands)
        words = shlex.split(command)  # a program whose imports wait in a fork server starts a second sooner
        output = project.run(*(words if words[0] in MAINS else ("bash", "-c", command))).stdout
        assert "Traceback" not in output, f"{command}:\n{output}"
    for program in recipes(ROOT):
        project.run("python", "-c", program)
    assert list((project.path / "my-examples").iterdir())
    fetched = project.path / "data/raw/wikipedia/fetched-files/mine"
    assert [path.name for path in fetched.glob("*.bz2")] == ["mine.xml.bz2"]
    assert (project.path / "data/raw/books/fetched-files/play.md").exists()
