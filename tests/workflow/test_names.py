"""Names that are commands or paths elsewhere, put into params.yaml and handed to each engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

COMMANDS = ["a; touch touched", "' $(touch touched) `touch touched` '"]
ELSEWHERE = ["../../../notes", "../../own/books", "../../../docs", "../../../checkpoints", ".."]
CODE = "../../../pipeline_src/sources"


@pytest.fixture(scope="module")
def clone(fresh_clone: Callable[[str], Project]) -> Project:
    """A fresh study with files of its owner's in places that stages never write to."""
    project = fresh_clone("test")
    for folder in ("notes", "data/own/books", "checkpoints"):
        (project.path / folder).mkdir(parents=True, exist_ok=True)
        (project.path / folder / "mine.txt").write_text("mine\n")
    return project


def refused(project: Project, *command: str) -> str:
    """Run a command that must fail, without a shell and without deleting the owner's files; return its output."""
    done = project.run(*command, check=False)
    assert done.returncode, done.stdout
    assert not (project.path / "touched").exists()
    assert not project.run("git", "status", "--porcelain", "pipeline_src").stdout
    for path in ("notes/mine.txt", "data/own/books/mine.txt", "checkpoints/mine.txt", "docs/architecture.md"):
        assert (project.path / path).exists(), path
    assert not any(path.is_file() for path in (project.path / "data/raw").rglob("*"))
    return done.stdout


@pytest.fixture
def params(clone: Project) -> Iterator[str]:
    """The text of params.yaml, which is put back after the test."""
    text = (clone.path / "params.yaml").read_text()
    yield text
    (clone.path / "params.yaml").write_text(text)


def test_corpus_part_that_is_path_is_rejected_by_both_engines(clone: Project, params: str) -> None:
    parts = "parts:\n      - excerpt"
    clone.edit("params.yaml", parts, f"parts: {json.dumps(ELSEWHERE[:1])}")
    assert "a name has only ASCII letters" in refused(clone, "snakemake", "--cores", "1", "all")
    for part in [*ELSEWHERE, CODE]:
        (clone.path / "params.yaml").write_text(params.replace(parts, f'parts: ["{part}"]'))
        refused(clone, "dvc", "repro", "--single-item", "--force", "download@wikipedia")


@pytest.mark.parametrize("name", [*COMMANDS, ELSEWHERE[0], "../../../x'; touch touched; '", "a/b", "-x"])
def test_source_name_that_is_command_or_path_is_rejected_by_both_engines(
    clone: Project, params: str, name: str
) -> None:
    clone.edit("params.yaml", "\n    wikipedia:", f"\n    {json.dumps(name)}:")
    assert "a name has only ASCII letters" in refused(clone, "snakemake", "--cores", "1", "all")
    refused(clone, "dvc", "repro", "--keep-going", "download")
    for stage in ("download", "clean"):
        refused(clone, "dvc", "repro", "--single-item", "--force", stage)


def test_dvc_repro_forced_with_path_as_name_deletes_no_folder(clone: Project, params: str) -> None:
    """Not even for one stage by force, when DVC neither draws the graph nor compares what was recorded.

    A folder beside the project is as safe, and so are the outputs of other stages.
    """
    outside = clone.path.parent / "notes"
    vocabulary = clone.path / "data/vocabulary"
    for folder in (outside, vocabulary):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mine.txt").write_text("mine\n")
    parts = ["../../../pipeline_src/base", "../../../../notes", "../../vocabulary", "."]
    seeds = ["../../../pipeline_src/base", "../../../../notes", "../../../data/vocabulary"]
    names = [*parts, "../../../../notes", "../vocabulary", "../../notes"]
    cases = [
        ("\n    wikipedia:", f"\n    {json.dumps(name)}:", stage) for name in names for stage in ("download", "clean")
    ]
    cases += [("seeds:\n  - 1", f"seeds: {json.dumps(seeds)}", "finetune")]
    cases += [("\ntasks:\n- rte\n- squad2\n- swag", f"\ntasks: {json.dumps(parts)}", "finetune")]
    for old, new, stage in cases:
        (clone.path / "params.yaml").write_text(params)
        clone.edit("params.yaml", old, new)
        refused(clone, "dvc", "repro", "--single-item", "--keep-going", "--force", stage)
        for folder in (outside, vocabulary):
            assert (folder / "mine.txt").exists(), (stage, folder)
    shutil.rmtree(vocabulary)


def test_dvc_yaml_outs_with_names_end_in_unique_folder(root: Path) -> None:
    """So that a name spelt as a path leads nowhere, whatever is above it."""
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    del stages["pretrain"]  # its names are phase3 to phase9, of which `code` lets no other pass
    outs = [path for stage in stages.values() for path in stage.get("do", stage).get("outs", [])]
    named = [path for path in outs if "${" in str(path)]
    assert len(named) == 4
    last = {PurePosixPath(path).name for path in named}
    assert not any("${" in name for name in last)
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git repository, which lists the project's files")
    assert not last & {part for path in listed.stdout.split() for part in PurePosixPath(path).parts}
    fixed_outs = [path for path in outs if path not in named]
    assert not last & {part for path in fixed_outs for part in PurePosixPath(str(path)).parts}


def test_dvcignore_ignores_files_of_engines_and_python(clone: Project) -> None:
    """Where it counted, a killed study recorded other hashes, and importing a module made its stage stale."""
    leftovers = [
        "models/pretrained/phase2/.snakemake_timestamp",
        "pipeline_src/text/__pycache__/tokenize.cpython-311.pyc",
    ]
    leftovers += ["models/pretrained/.long.partial", "data/raw/books/fetched-files/.gitignore"]
    leftovers += [f"pipeline_src/text/{name}" for name in ("tokenize.py~", "#tokenize.py#", ".#tokenize.py", "a.orig")]
    parts = [
        "models/pretrained/phase2/config.json",
        "pipeline_src/text/tokenize.py",
        "data/raw/books/fetched-files/a.txt",
    ]
    output = clone.dvc("check-ignore", "--details", "--non-matching", *leftovers, *parts)
    patterns = dict(reversed(line.split("\t")) for line in output.splitlines())
    ignored = {path for path, pattern in patterns.items() if pattern != "::" and not re.match(r".*:\d+:!", pattern)}
    assert ignored == set(leftovers)


def test_dvc_exp_run_seed_that_is_command_is_rejected(clone: Project) -> None:
    clone.run("git", "config", "user.name", "a")
    clone.run("git", "config", "user.email", "a@example.org")
    output = refused(clone, "dvc", "exp", "run", "-S", 'finetune.seeds=["1; touch touched"]', "finetune")
    assert "touch touched" in output or "failed" in output
