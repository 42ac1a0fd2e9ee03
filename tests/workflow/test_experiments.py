"""DVC's experiments beside both engines on the toy study: queued, in folders of their own, saved, compared,
applied, handed to another clone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.workflow.conftest import FROM_PRETRAIN

if TYPE_CHECKING:
    from conftest import Project

PATIENCE = 240  # seconds


@pytest.fixture
def named(study: Project) -> Project:
    """The finished toy study in a clone that has a git identity, which experiments need."""
    study.run("git", "config", "user.name", "a")
    study.run("git", "config", "user.email", "a@example.org")
    return study


@pytest.fixture
def workers(named: Project) -> Iterator[None]:
    """Ends the queue's workers with the test."""
    yield
    named.dvc("queue", "stop", "--kill", check=False)


def test_dvc_queue_two_experiments_run_at_once_and_leave_workspace(named: Project, workers: None) -> None:
    rates = {"fewer": 0.1, "more": 0.3}
    for name, rate in rates.items():
        named.dvc("exp", "run", "--queue", "-n", name, "-S", f"mask_prob={rate}")
    named.run("sh", "-c", "dvc queue start -j 2 > /dev/null 2>&1", TOY_SLOW="pretrain")  # workers would hold a pipe
    notes = until(lambda: two_pretrain(named), "two experiments never pretrained at once")
    for note in notes:
        (note.parent / "go").touch()
    until(lambda: set(rates) <= experiments(named), "the queue never ended")
    logs = [log.read_text() for log in (named.path / ".dvc/tmp/exps/run").glob("*/*.out")]
    assert [set(re.findall("Running stage '([^']+)'", log)) for log in logs] == [FROM_PRETRAIN, FROM_PRETRAIN]
    assert named.ran() == [] and named.nothing_to_do()

    by_name = {row["name"]: row["data"] for row in shown_experiments(named)}
    for name, rate in rates.items():
        assert by_name[name]["params"]["params.yaml"]["data"]["mask_prob"] == rate
        assert by_name[name]["metrics"]["results/summary.json"]["data"]["score"] > 0
    assert json.loads(named.dvc("exp", "diff", "--json", *rates))["params"]["params.yaml"]["mask_prob"] == {
        "old": 0.1,
        "new": 0.3,
        "diff": pytest.approx(0.2),
    }
    named.dvc("exp", "apply", "more")
    assert (named.path / "models/pretrained/model.txt").read_text().startswith("0.3 ")
    assert named.nothing_to_do()
    assert named.ran() == []


def test_dvc_exp_run_temp_results_are_reused_by_snakemake(named: Project) -> None:
    named.dvc("exp", "run", "--temp", "-n", "apart", "-S", "mask_prob=0.25")
    assert named.ran() == []
    named.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.25")
    named.snakemake()
    assert set(named.ran()) <= {"report"} and named.nothing_to_do()  # of which DVC keeps no runs: its summary is in git


def test_dvc_exp_includes_new_files_known_to_git_only(named: Project) -> None:
    for name in ("raw/known.txt", "raw/unknown.txt"):
        (named.path / name).write_text("mine\n")
    named.run("git", "add", "raw/known.txt")
    named.dvc("exp", "run", "--temp", "-n", "apart", "-S", "mask_prob=0.25")
    named.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.35")
    named.snakemake()
    named.dvc("exp", "save", "-n", "saved")
    for experiment in ("apart", "saved"):
        (ref,) = named.run("git", "for-each-ref", "--format=%(refname)", f"refs/exps/*/*/{experiment}").stdout.split()
        there = named.run("git", "ls-tree", "-r", "--name-only", ref).stdout.split()
        assert "raw/known.txt" in there and "raw/unknown.txt" not in there, experiment


def test_dvc_exp_save_after_snakemake_run(named: Project) -> None:
    named.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.35")
    named.snakemake()
    assert set(named.ran()) == FROM_PRETRAIN
    named.dvc("exp", "save", "-n", "by-snakemake")
    assert [row["name"] for row in shown_experiments(named)] == ["by-snakemake"]
    named.run("git", "checkout", "-q", "-f", ".")
    named.dvc("checkout")
    named.dvc("exp", "apply", "by-snakemake")
    assert "0.35" in (named.path / "models/pretrained/model.txt").read_text()
    assert named.ran() == [] and named.nothing_to_do()


def test_dvc_exp_push_is_applied_in_another_clone(named: Project, tmp_path: Path) -> None:
    named.dvc("remote", "add", "-d", "shelf", str(tmp_path / "shelf"))
    named.commit()
    named.run("git", "init", "-q", "--bare", "-b", "main", str(tmp_path / "shared.git"))
    named.run("git", "remote", "add", "origin", str(tmp_path / "shared.git"))
    named.run("git", "push", "-q", "origin", "main")
    named.dvc("exp", "run", "-n", "more-masks", "-S", "mask_prob=0.3")
    named.dvc("exp", "push", "origin", "more-masks")

    named.run("git", "clone", "-q", str(tmp_path / "shared.git"), str(tmp_path / "clone"))
    clone = type(named)(tmp_path / "clone", tmp_path / "home")  # another home: nothing of DVC's is shared
    clone.home.mkdir()
    clone.dvc("exp", "pull", "origin", "more-masks")
    clone.dvc("exp", "apply", "more-masks")
    assert "0.3" in (clone.path / "models/pretrained/model.txt").read_text()
    assert clone.nothing_to_do()
    assert clone.ran() == []


def two_pretrain(project: Project) -> list[Path]:
    """The notes of two experiments that are both pretraining; else empty."""
    notes = list((project.path / ".dvc/tmp/exps").glob("*/runs.txt"))
    busy = [note for note in notes if note.read_text().split()[-1:] == ["pretrain"]]
    return busy if len(busy) == 2 else []


def experiments(project: Project) -> set[str]:
    """Names of those that are done."""
    refs = project.run("git", "for-each-ref", "--format=%(refname)", "refs/exps").stdout.split()
    return {ref.rpartition("/")[2] for ref in refs if "/celery/" not in ref}


def shown_experiments(project: Project) -> list[dict[str, Any]]:
    """What `dvc exp show` tells of each experiment of this commit: its name and data."""
    (baseline,) = [row for row in json.loads(project.dvc("exp", "show", "--json")) if row["rev"] != "workspace"]
    return [{"name": row["name"], "data": row["revs"][0]["data"]} for row in baseline["experiments"] or []]


def until(ask: Callable[[], Any], complaint: str) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := ask()):
        assert time.monotonic() < deadline, complaint
        time.sleep(0.5)
    return answer
