"""The project itself in a fresh clone, under the `test` preset: both engines, an experiment, and bad parameters."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

from tests.workflow.on_slurm import change_params

if TYPE_CHECKING:
    from conftest import Project

PRESET = "test"
LOOKING = [["-n", "all"], ["--dag"], ["--profile", "slurm", "-n", "all"]]  # the toy study takes all others


@pytest.fixture(scope="module")
def clone(fresh_clone: Callable[[str], Project]) -> Project:
    """The working tree's own files, committed, before anything was run."""
    return fresh_clone(PRESET)


@pytest.fixture(scope="module")
def done(finished_study: Project) -> Project:
    """The study after its first run, by Snakemake, committed to git."""
    return finished_study


@pytest.fixture
def study(done: Project, tmp_path: Path) -> Project:
    return done.copy(tmp_path / "study")


@pytest.fixture
def fresh(clone: Project, tmp_path: Path) -> Project:
    return clone.copy(tmp_path / "study")


@pytest.fixture
def path_with_sbatch(tmp_path: Path) -> str:
    """PATH with a dummy sbatch."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sbatch").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/sbatch").chmod(0o755)
    return os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_snakemake_dry_run_changes_no_file(clone: Project, path_with_sbatch: str, arguments: list[str]) -> None:
    """But for the fingerprints of the code, which DVC compares and records, and notes that git does not see."""
    clone.run("git", "checkout", "-q", "dvc.lock")
    before = clone.run("git", "status", "--short", "--ignored").stdout
    output = clone.run("snakemake", *arguments, PATH=path_with_sbatch).stdout
    after = clone.run("git", "status", "--short", "--ignored").stdout
    beyond = set(after.split()) - set(before.split())
    assert beyond <= {"!!", ".snakemake/", ".dvc/tmp/", ".dvc/cache/", "code/", "logs/", "M", "dvc.lock"}, output


@pytest.mark.parametrize(
    ("new", "complaint"), [("mask_prob: 1.5", "mask_prob = 1.5"), ("mask_porb: 0.15", "mask_p")], ids=["value", "key"]
)
@pytest.mark.parametrize("command", ["snakemake --cores 2 all", "dvc repro"])
def test_both_engines_invalid_params_are_rejected_before_any_work(
    fresh: Project, command: str, new: str, complaint: str
) -> None:
    fresh.edit("params.yaml", "mask_prob: 0.15", new)
    done = fresh.run(*command.split(), check=False)
    assert done.returncode and complaint in done.stdout and "Traceback" not in done.stdout, done.stdout
    assert "hint:" in done.stdout and "Finished jobid" not in done.stdout
    assert set(re.findall(r"Running stage '([^']+)'", done.stdout)) <= {"code"}


def test_dvc_exp_run_invalid_params_are_rejected_before_any_stage(fresh: Project) -> None:
    fresh.run("make", "identity")
    output = fresh.dvc("exp", "run", "-S", "mask_prob=1.5", check=False)
    assert "mask_prob = 1.5" in output and "Traceback" not in output
    assert re.findall(r"Running stage '([^']+)'", output) == ["code"]


def test_both_engines_name_catalogue_entries_unknown_to_git(fresh: Project) -> None:
    (fresh.path / "catalogue/tasks/mine.yaml").write_text("{}\n")
    assert "git add catalogue/tasks/mine.yaml" in fresh.dvc("repro", "-f", "-s", "code")
    assert "git add catalogue/tasks/mine.yaml" in fresh.snakemake("-n")
    fresh.run("git", "add", "catalogue")
    assert "git add" not in fresh.snakemake("-n")


def test_snakemake_folder_with_braces_is_rejected(clone: Project, tmp_path: Path) -> None:
    output = clone.copy(tmp_path / "a{b}").snakemake("-n", check=False)
    assert "does not work in a folder with braces in its name" in output and "Traceback" not in output


@pytest.mark.slow
def test_study_without_linux_only_calls_gives_same_bytes(
    fresh_clone: Callable[[str], Project], done: Project, root: Path
) -> None:
    """No affinity, no advice on files, no fork; processes start by spawn."""
    gaps = {"PYTHONPATH": str(root / "tests/project/macos")}
    project = replace(fresh_clone(PRESET), programs=True, environment=gaps)
    hidden = "import os, multiprocessing; print(hasattr(os, 'sched_getaffinity'), multiprocessing.get_start_method())"
    assert project.run("python", "-c", hidden).stdout.strip() == "False spawn"
    project.snakemake()
    made, expected = (yaml.safe_load((child.path / "dvc.lock").read_text())["stages"] for child in (project, done))
    for name in expected:
        assert made[name]["outs"] == expected[name]["outs"], name


def test_snakemake_all_leaves_both_engines_nothing_to_do(done: Project) -> None:
    assert done.nothing_to_do()
    output = done.dvc("repro")
    assert "Running stage" not in output
    assert done.run("git", "status", "--short").stdout == ""


def test_machine_yaml_comments_and_tools_make_no_stage_stale(study: Project) -> None:
    (study.path / "machine.yaml").write_text("pretrain: {threads: 1, microbatch_tokens: 512}\n")
    for path in (study.path / "pipeline_src").rglob("*.py"):
        path.write_text(f"{path.read_text()}# a comment\n")
    study.append("pipeline_src/tools/show_examples.py", "CHANGED = 1\n")
    study.dvc("repro", "-s", "code")
    assert study.nothing_to_do()


def stale_stages(project: Project) -> set[str]:
    """Names of the stages that DVC calls stale, once it has looked at the code."""
    project.dvc("repro", "-s", "code")
    return {line[:-1] for line in project.dvc("status").splitlines() if re.fullmatch(r"[\w@-]+:", line)}


def test_code_edit_of_metrics_makes_only_scoring_stages_stale(study: Project) -> None:
    study.append("pipeline_src/tasks/metrics.py", "CHANGED = 1\n")
    names = {name.partition("@")[0] for name in stale_stages(study)}
    assert names == {"finetune", "evaluate", "report"}  # the report compares experiments by it
    listed = study.snakemake("-n")
    assert "rule evaluate:" in listed and "rule corpus_statistics:" not in listed and "rule pretrain" not in listed


def test_code_edit_of_other_architecture_makes_no_stage_stale(study: Project) -> None:
    study.append("pipeline_src/family/deberta/encoder.py", "CHANGED = 1\n")
    before = (study.path / "code/models/deberta").read_text()
    assert stale_stages(study) == set()
    assert (study.path / "code/models/deberta").read_text() != before


def test_params_edit_of_one_task_makes_only_its_finetuning_stale(study: Project) -> None:
    change_params(study, {"finetune.per_task.rte": {"epochs": 2}})
    # The report reads the whole of params.yaml.
    assert stale_stages(study) == {"finetune@rte-1", "report"}
    listed = study.snakemake("-n")
    assert listed.count("rule finetune:") == 1 and "logs/finetune/rte-1.log" in listed


def test_make_identity_sets_missing_git_identity_only(fresh: Project) -> None:
    fresh.run("make", "identity", GIT_CONFIG_NOSYSTEM="1")
    assert fresh.run("git", "config", "user.email").stdout.strip().endswith("@localhost")
    fresh.run("git", "config", "user.email", "me@example.org")
    fresh.run("make", "identity")
    assert fresh.run("git", "config", "user.email").stdout.strip() == "me@example.org"


def test_dvc_exp_run_of_mask_prob_runs_pretraining_and_later_stages(study: Project) -> None:
    study.run("make", "identity")
    # DVC then has to commit it, and needs an identity for that.
    study.append("README.md", "Uncommitted.\n")
    output = study.dvc("exp", "run", "-n", "more-masks", "-S", "mask_prob=0.2")
    ran = {name.split("@")[0] for name in re.findall(r"Running stage '([^']+)'", output)}
    assert ran == {"code", "pretrain_phase1", "pretrain_phase2", "finetune", "evaluate", "interpret", "report"}
    assert study.nothing_to_do()
    shown = study.dvc("exp", "show", "--csv", "--no-pager")
    assert "more-masks" in shown
    assert study.dvc("metrics", "diff").count("summary.json")
    assert "index.html" in study.dvc("plots", "show")


@pytest.mark.slow
def test_dvc_exp_run_temp_killed_continues_from_checkpoint(
    done: Project, tmp_path: Path, background: Callable[[Any], Any]
) -> None:
    project = replace(done.copy(tmp_path / "study"), programs=True)
    project.run("make", "identity")
    command = ["dvc", "exp", "run", "--temp", "-S", "pretrain.steps.phase1=300", "-S", "pretrain.eval_steps=1000"]
    process = background(project.start(*command, PIPELINE_CHECKPOINT_MINUTES="0.005"))
    deadline = time.monotonic() + 240
    while not list((project.path / "checkpoints").glob("phase1/*/step-*")):
        assert process.poll() is None and time.monotonic() < deadline, "no checkpoint in the main checkout"
        time.sleep(0.1)
    engine = psutil.Process(process.pid)
    for child in [*engine.children(recursive=True), engine]:
        child.kill()
    process.wait()
    output = project.run(*command).stdout
    assert "resuming from the checkpoint of step" in output
    assert project.run("git", "status", "--short").stdout == ""


def test_dvc_dag_pretraining_depends_on_added_teacher(fresh: Project) -> None:
    """The way of docs/family.md: git has the note and not the model, and DVC knows who reads it."""
    model = fresh.path / "models/teacher/pretrained/phase2/model.safetensors"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"a teacher")
    fresh.dvc("add", "models/teacher")
    fresh.run("git", "add", "--all")
    assert fresh.run("git", "diff", "--cached", "--name-only").stdout.split()[-1:] == ["models/teacher.dvc"]
    taught = {"pretrain.objective": "tinybert", "pretrain.teacher": "models/teacher/pretrained/phase2"}
    change_params(fresh, taught | {"examples.pair_objective": "none"})
    assert "models/teacher.dvc" in fresh.dvc("dag", "--dot", "pretrain_phase1")


def clone_and_pull(project: Project, folder: Path, *options: str) -> Project:
    """A clone of a project, with the outputs that its dvc.lock records and nothing else."""
    project.dvc("remote", "add", "-d", "shelf", str(folder / "shelf"))
    project.dvc("push")
    project.commit()
    clone = project.clone(folder / "clone", *options)
    clone.dvc("pull")
    return clone


def test_task_removed_from_params_leaves_nothing_stale_in_clone(study: Project, tmp_path: Path) -> None:
    predictions = study.path / "results/predictions/swag"
    assert predictions.exists()
    change_params(study, {"tasks": ["rte", "squad2"]})
    assert "results/predictions/.swag.removed-1.partial" in study.dvc("repro", "-s", "code")
    study.snakemake()
    assert not (predictions / "1/predicted").exists()
    assert study.nothing_to_do()
    assert clone_and_pull(study, tmp_path, "--depth", "1").nothing_to_do()
    change_params(study, {"tasks": ["rte", "squad2", "swag"]})
    study.dvc("repro", "-s", "code")
    change_params(study, {"tasks": ["rte", "squad2"]})
    study.dvc("repro", "-s", "code")
    # As after a branch was changed on another host: what DVC knows of this one says that `code` need not run.
    for _ in range(2):
        (predictions / "1/predicted").mkdir(parents=True)
        (predictions / "1/predicted/left").write_text("over")
        study.snakemake("-n")
        assert not predictions.exists()
    (predictions / "1/predicted").mkdir(parents=True)
    (predictions / "1/predicted/left").write_text("over")
    study.dvc("repro", "evaluate")
    assert not predictions.exists() and study.nothing_to_do()


@pytest.mark.slow
def test_source_removed_from_params_leaves_nothing_stale_in_clone(study: Project, tmp_path: Path) -> None:
    sources = yaml.safe_load((study.path / "params.yaml").read_text())["corpus"]["sources"]
    change_params(study, {"corpus.sources": {"wikipedia": sources["wikipedia"]}})
    study.dvc("repro")
    assert not (study.path / "data/text/books/clean-text").exists()
    assert study.nothing_to_do()
    assert clone_and_pull(study, tmp_path).nothing_to_do()


@pytest.mark.parametrize("arguments", [["all"], ["-n", "all", "--config", "gpus_per_node=4"]], ids=" ".join)
def test_slurm_profile_without_slurm_is_rejected_before_any_job(clone: Project, arguments: list[str]) -> None:
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if not Path(folder, "sbatch").exists()]
    path = os.pathsep.join([str(Path(sys.executable).parent), *folders])
    done = clone.run("snakemake", "--profile", "slurm", *arguments, check=False, PATH=path)
    assert done.returncode == 1
    what, _, hint = done.stdout.splitlines()[-3:]
    assert what == "error: Slurm command not found: sbatch" and "without --profile slurm" in hint


def test_snakemake_dry_run_of_bert_base_requests_cluster_resources(fresh: Project, path_with_sbatch: str) -> None:
    fresh.run("python", "-m", "pipeline_src", "preset", "bert-base")
    options = ["-n", "all", "--config", "nodes=2", "gpus_per_node=4"]
    output = fresh.run("snakemake", "--profile", "slurm", *options, PATH=path_with_sbatch).stdout
    counts = dict(re.findall(r"^(\w+) +(\d+)$", output, re.MULTILINE))
    assert counts["clean"] == counts["download"] == "2"  # one a source, whatever its parts
    assert counts["finetune"] == "70"  # tasks x seeds
    pretraining = output.split("rule pretrain_phase1:")[1].split("resources:")[1].splitlines()[0]
    assert all(option in pretraining for option in ("nodes=2", "gres=gpu:4", "--signal=URG@120"))
    finetuning = output.split("rule finetune:")[1].split("resources:")[1].splitlines()[0]
    assert "gpu=1" in finetuning
