"""The project itself in a fresh clone, under the `test` preset: both engines, an experiment, and bad parameters."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.workflow.documented import AFTER_A_STUDY, STANDING

if TYPE_CHECKING:
    from conftest import Project

PRESET = "test"
LOOKING = [["-n", "all"], ["--lint"], ["--list"], ["--dag"], ["--summary"], ["--profile", "slurm", "-n", "all"]]
MADE = shutil.ignore_patterns(".git", ".venv", ".snakemake", ".*cache", *"data models results logs tmp cache".split())


@pytest.fixture(scope="module")
def clone(root: Path, tmp_path_factory: pytest.TempPathFactory, project_class: type[Project]) -> Project:
    """The working tree's own files, committed, before anything was run."""
    path = tmp_path_factory.mktemp("clone") / "study"
    shutil.copytree(root, path, symlinks=True, ignore=lambda folder, names: _left_out(root, folder, names))
    project = project_class(path, tmp_path_factory.mktemp("home"))
    project.run("python", "-m", "pipeline_src", "preset", PRESET)
    project.run("git", "init", "-q", "-b", "main")
    project.commit()
    return project


@pytest.fixture(scope="module")
def done(clone: Project) -> Project:
    """The clone after its first run, by Snakemake, committed to git."""
    clone.snakemake()
    clone.commit()
    return clone


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_looking_changes_nothing(clone: Project, arguments: list[str]) -> None:
    before = clone.run("git", "status", "--short", "--ignored").stdout
    said = clone.run("snakemake", *arguments).stdout
    after = clone.run("git", "status", "--short", "--ignored").stdout
    assert not (clone.path / ".snakemake/dvc").exists()
    beyond = set(after.split()) - set(before.split())
    assert beyond <= {"!!", ".snakemake/", ".dvc/tmp/"}, said


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ("mask_prob: 0.15", "mask_prob: 1.5", "mask_prob = 1.5"),
        ("mask_prob: 0.15", "mask_porb: 0.15", "mask_p"),
        ("mask_prob: 0.15", "mask_prob: a lot", "mask_prob = 'a lot'"),
    ],
)
def test_a_mistake_in_params_stops_before_any_work(
    clone: Project, tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    project = clone.copy(tmp_path / "study")
    project.edit("params.yaml", old, new)
    said = project.snakemake(check=False)
    assert complaint in said and "Traceback" not in said and "Finished jobid" not in said
    assert "remedy:" in said


def test_the_preset_is_small(clone: Project) -> None:
    said = clone.run("snakemake", "-n", "all").stdout
    total = re.search(r"^total\s+(\d+)$", said, re.MULTILINE)
    assert total and int(total[1]) - 1 <= 15, said  # `all` itself does nothing


def test_after_snakemake_all_both_engines_have_nothing_to_do(done: Project) -> None:
    assert done.nothing_to_do()
    said = done.dvc("repro")
    assert "Running stage" not in said
    assert done.run("git", "status", "--short").stdout == ""


def test_a_clone_without_git_identity_gets_one_of_its_own(clone: Project, tmp_path: Path) -> None:
    project = clone.copy(tmp_path / "study")
    project.run("make", "identity", GIT_CONFIG_NOSYSTEM="1")
    assert project.run("git", "config", "user.email").stdout.strip().endswith("@localhost")
    project.run("git", "config", "user.email", "me@example.org")
    project.run("make", "identity")
    assert project.run("git", "config", "user.email").stdout.strip() == "me@example.org"


def test_an_experiment_runs_pretraining_and_what_follows(done: Project, tmp_path: Path) -> None:
    project = done.copy(tmp_path / "study")
    project.run("make", "identity")
    with open(project.path / "README.md", "a", encoding="utf-8") as file:
        file.write("Uncommitted.\n")  # DVC then has to commit it, and needs an identity for that
    said = project.dvc("exp", "run", "-n", "more-masks", "-S", "mask_prob=0.2")
    ran = {name.split("@")[0] for name in re.findall(r"Running stage '([^']+)'", said)}
    assert ran == {"pretrain_short", "pretrain_long", "finetune", "evaluate", "report"}
    assert project.nothing_to_do()
    shown = project.dvc("exp", "show", "--csv", "--no-pager")
    assert "more-masks" in shown
    assert project.dvc("metrics", "diff").count("summary.json")
    assert "index.html" in project.dvc("plots", "show")


def test_documented_commands(done: Project, tmp_path: Path) -> None:
    project = done.copy(tmp_path / "study")
    project.run("make", "identity")
    (project.path / "texts.txt").write_text("A text.\nAnother.\n")
    for own, raw in {"wikipedia/mine.xml.bz2": "wikipedia/excerpt/*.bz2", "books/play.md": "books/hamlet.md"}.items():
        (project.path / "data/own" / own).parent.mkdir(parents=True)
        shutil.copy(next((project.path / "data/raw").glob(raw)), project.path / "data/own" / own)
    for command in AFTER_A_STUDY:
        if command == "dvc repro -f download_books":
            project.edit("params.yaml", "source: shakespeare-sample", "source: own-books")
            project.edit("params.yaml", "dump: enwiki-sample", "dump: own-wikipedia")
            project.edit("params.yaml", "parts: [excerpt]", "parts: [mine]")
        for name, stands in STANDING.items():
            command = command.replace(name, stands)
        said = project.run("bash", "-c", command).stdout
        assert "Traceback" not in said, f"{command}:\n{said}"
    assert (project.path / "vectors.npy").exists() and list((project.path / "tfrecords").iterdir())
    assert [path.name for path in (project.path / "data/raw/wikipedia/mine").glob("*.bz2")] == ["mine.xml.bz2"]
    assert (project.path / "data/raw/books/play.md").exists()


def _left_out(root: Path, folder: str, names: list[str]) -> set[str]:
    """What the stages made, at the root alone: packages of the code may bear the same names."""
    if Path(folder) in (root, root / ".dvc"):
        return set(MADE(folder, names))
    return {name for name in names if name == "__pycache__"}
