"""The project itself in a fresh clone, under the `test` preset: both engines, an experiment, and bad parameters."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from ruamel.yaml import YAML

from benchmarks import chaos
from pipeline_src.common.files import read_json
from pipeline_src.tools.ablations.tables import apply
from tests.workflow.documented import AFTER_A_STUDY, STANDING

if TYPE_CHECKING:
    from conftest import Project

PRESET = "test"
LATE = ("pretrain_long", "finetune", "evaluate", "report")  # what the chaos of the suite begins with
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2"])
def test_a_study_that_is_killed_again_and_again_ends_the_same(done: Project, tmp_path: Path, seed: str) -> None:
    study = done.copy(tmp_path / "study")
    here = study.dvc("stage", "list", "--name-only").split()
    undisturbed = {name: stage for name, stage in chaos.read_lock(study.path).items() if name in here}
    chaos.forget(study.path, [name for name in undisturbed if name.startswith(LATE)])
    outcome = chaos.disturb(study.path, undisturbed, study.variables({}), seed, wait=(2, 15), kills=3)
    assert outcome.good, outcome
    assert any(attempt.killed for attempt in outcome.attempts)


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


@pytest.mark.slow
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
    assert [path.name for path in (project.path / "data/raw/wikipedia/mine/dump-files").glob("*.bz2")] == [
        "mine.xml.bz2"
    ]
    assert (project.path / "data/raw/books/play.md").exists()


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


MEMBERS = {  # by the engine that runs it
    "snakemake": {"model.architecture": "electra", "pretrain.objective": "replaced", "examples.pairs": "none"},
    "dvc": {
        **{"model.architecture": "distilbert", "pretrain.objective": "distilled", "examples.pairs": "none"},
        **{"pretrain.teacher": "models/teacher", "objectives.distilled.start": "random"},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", MEMBERS)
def test_another_member_under_both_engines(finished_study: Project, tmp_path: Path, engine: str) -> None:
    """A study with another member: one engine runs it, and for neither is anything left to do."""
    project = finished_study.copy(tmp_path / "study")
    shutil.copytree(project.path / "models/pretrained/long", project.path / "models/teacher")
    editor, params = YAML(), project.path / "params.yaml"
    editor.dump(apply(MEMBERS[engine] | {"tasks": ["rte"]}, editor.load(params)), params)
    for left in ("squad2", "swag"):  # a task that is taken out leaves its predictions, which `evaluate` depends on
        shutil.rmtree(project.path / "results/predictions" / left)
    if engine == "snakemake":
        project.snakemake()
    else:
        project.dvc("repro")
    assert project.nothing_to_do()
    study = yaml.safe_load(params.read_text(encoding="utf-8"))
    assert read_json(project.path / "results/pretrain/long.json")["objective"] == study["pretrain"]["objective"]
    assert read_json(project.path / "results/summary.json")["mlm_loss"] > 0
