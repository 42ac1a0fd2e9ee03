"""The project itself in a fresh clone, under the `test` preset: both engines, an experiment, and bad parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from ruamel.yaml import YAML

from pipeline_src.tools.ablations.tables import apply

if TYPE_CHECKING:
    from conftest import Project

PRESET = "test"
LOOKING = [["-n", "all"], ["--lint"], ["--list"], ["--dag"], ["--summary"], ["--profile", "slurm", "-n", "all"]]


@pytest.fixture(scope="module")
def clone(fresh_clone: Callable[[str], Project]) -> Project:
    """The working tree's own files, committed, before anything was run."""
    return fresh_clone(PRESET)


@pytest.fixture(scope="module")
def done(finished_study: Project) -> Project:
    """The study after its first run, by Snakemake, committed to git."""
    return finished_study


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


def test_code_that_is_declared_otherwise_than_imported_is_named(clone: Project, tmp_path: Path) -> None:
    project = clone.copy(tmp_path / "study")
    project.edit("dvc.yaml", "      - pipeline_src/books\n", "")
    said = project.snakemake(check=False)
    assert "clean_books: imports pipeline_src/books, not in its deps" in said
    assert "python workflow/code_deps.py --fix" in said and "Traceback" not in said and "Finished jobid" not in said


def test_the_preset_is_small(clone: Project) -> None:
    said = clone.run("snakemake", "-n", "all").stdout
    total = re.search(r"^total\s+(\d+)$", said, re.MULTILINE)
    assert total and int(total[1]) - 1 <= 18, said  # `all` itself does nothing


@pytest.mark.slow
def test_without_what_macos_lacks_the_study_makes_the_same_bytes(
    fresh_clone: Callable[[str], Project], done: Project, root: Path
) -> None:
    """No affinity, no advice on files, no fork; processes start by spawn."""
    gaps = {"PYTHONPATH": str(root / "tests/project/macos")}
    project = replace(fresh_clone(PRESET), programs=True, environment=gaps)
    hidden = "import os, multiprocessing; print(hasattr(os, 'sched_getaffinity'), multiprocessing.get_start_method())"
    assert project.run("python", "-c", hidden).stdout.strip() == "False spawn"
    project.snakemake()
    made, wanted = (yaml.safe_load((each.path / "dvc.lock").read_text())["stages"] for each in (project, done))
    for name in wanted.keys() - {"report"}:  # the page shows times
        assert made[name]["outs"] == wanted[name]["outs"], name


def test_after_snakemake_all_both_engines_have_nothing_to_do(done: Project) -> None:
    assert done.nothing_to_do()
    said = done.dvc("repro")
    assert "Running stage" not in said
    assert done.run("git", "status", "--short").stdout == ""


def test_what_fits_the_machine_and_an_edit_in_tools_make_nothing_stale(done: Project, tmp_path: Path) -> None:
    project = done.copy(tmp_path / "study")
    project.edit("machine.yaml", "max_tokens: 16384 # at once", "max_tokens: 512 # at once")
    project.edit("machine.yaml", "threads: 2", "threads: 1")
    for tool in ("show_examples", "tensorflow_checkpoint"):
        path = project.path / f"pipeline_src/tools/{tool}.py"
        path.write_text(f"{path.read_text()}# a comment\n")
    assert project.nothing_to_do()


def test_a_changed_metric_scores_again_and_scans_no_corpus(done: Project, tmp_path: Path) -> None:
    project = done.copy(tmp_path / "study")
    path = project.path / "pipeline_src/tasks/metrics.py"
    path.write_text(f"{path.read_text()}# a comment\n")
    stale = {line.split(":")[0].split("@")[0] for line in project.dvc("status").splitlines() if line[:1].isalpha()}
    assert stale == {"finetune", "evaluate", "report"}  # the report compares experiments by it
    listed = project.snakemake("-n")
    assert "rule evaluate:" in listed and "rule corpus_statistics:" not in listed and "rule pretrain" not in listed


def test_a_changed_recipe_trains_its_own_task_alone(done: Project, tmp_path: Path) -> None:
    project = done.copy(tmp_path / "study")
    project.edit("params.yaml", "tasks: {rte: {},", "tasks: {rte: {epochs: 2},")
    stale = {line.split(":")[0] for line in project.dvc("status").splitlines() if line[:1].isalpha()}
    assert stale == {"finetune@rte-1", "report"}  # which reads the whole of params.yaml
    listed = project.snakemake("-n")
    assert listed.count("rule finetune:") == 1 and "models/finetuned/rte/1" in listed


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
    assert ran == {"pretrain_short", "pretrain_long", "finetune", "evaluate", "interpret", "report"}
    assert project.nothing_to_do()
    shown = project.dvc("exp", "show", "--csv", "--no-pager")
    assert "more-masks" in shown
    assert project.dvc("metrics", "diff").count("summary.json")
    assert "index.html" in project.dvc("plots", "show")


def test_pretraining_depends_on_a_teacher_that_is_put_beside_the_models(clone: Project, tmp_path: Path) -> None:
    """The way of docs/family.md: git has the note and not the model, and DVC knows who reads it."""
    project = clone.copy(tmp_path / "study")
    model = project.path / "models/teacher/pretrained/long/model.safetensors"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"a teacher")
    project.dvc("add", "models/teacher")
    project.run("git", "add", "--all")
    assert project.run("git", "diff", "--cached", "--name-only").stdout.split() == ["models/teacher.dvc"]
    editor, params = YAML(), project.path / "params.yaml"
    taught = {"pretrain.objective": "layers", "pretrain.teacher": "models/teacher/pretrained/long"}
    editor.dump(apply(taught | {"examples.pairs": "none"}, editor.load(params)), params)
    assert "models/teacher.dvc" in project.dvc("dag", "--dot", "pretrain_short")


def test_a_large_study_is_planned_over_a_cluster(clone: Project, tmp_path: Path) -> None:
    project = clone.copy(tmp_path / "study")
    project.run("python", "-m", "pipeline_src", "preset", "bert-base")
    project.edit("params.yaml", "parts: [1-p1p41242]", "parts: [1-p1p41242, 2-p41243p151573]")
    said = project.run(
        "snakemake", "--profile", "slurm", "-n", "all", "--config", "max_nodes=2", "gpus_per_node=4"
    ).stdout
    counts = dict(re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE))
    assert counts["clean_wikipedia"] == counts["download_wikipedia"] == "2"
    assert counts["finetune"] == "70"  # tasks x restarts
    pretraining = said.split("rule pretrain_short:")[1].split("resources:")[1].splitlines()[0]
    assert all(asked in pretraining for asked in ("nodes=2", "gres=gpu:4", "--signal=URG@120"))
    finetuning = said.split("rule finetune:")[1].split("resources:")[1].splitlines()[0]
    assert "gpu=1" in finetuning
