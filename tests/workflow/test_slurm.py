"""Both engines' state on a real Slurm (``cluster.py``), by the toy study; skipped where it cannot be had."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.workflow.on_slurm import PATIENCE, QUICK, Register, go_on, jobs, on, wait_until

if TYPE_CHECKING:
    from conftest import Project

    from tests.workflow.cluster import Cluster

pytestmark = pytest.mark.slow  # it waits for Slurm


@pytest.fixture(scope="module")
def toy(finished: Project, cluster: Cluster, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished toy study, with the project's own Slurm profile."""
    project = finished.copy(tmp_path_factory.mktemp("slurm-toy") / "study")
    (project.path / "slurm").mkdir()
    profile = (root / "workflow/profiles/slurm/config.yaml").read_text()
    (project.path / "slurm/config.yaml").write_text(profile)
    project.environment = on(cluster)
    project.commit()
    return project


@pytest.fixture
def study(toy: Project, tmp_path: Path) -> Project:
    """A copy of the toy."""
    return toy.copy(tmp_path / "study")


def test_a_preempted_job_runs_again(study: Project, cluster: Cluster, background: Register) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start("snakemake", *QUICK, "models/pretrained", TOY_SLOW="pretrain"))
    study.wait_for("pretrain", PATIENCE)
    (job,) = jobs(cluster, study)
    cluster.ask("sbatch", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3")
    go_on(cluster, job)
    (study.path / "go").touch()
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert "Trying to restart" not in said  # Slurm itself began it again
    assert study.ran() == ["pretrain", "pretrain"]
    assert "up to date" in study.dvc("status", "pretrain")


def test_a_job_out_of_retries_fails_the_run_and_the_rest_is_committed(study: Project) -> None:
    study.edit("toy/tasks.yaml", "labels: 2", "labels: 3")
    done = study.run("snakemake", *QUICK, "--retries", "1", "all", check=False, TOY_FAIL="finetune@cola-1")
    assert done.returncode and "told to fail" in done.stdout  # its log
    assert "committing finetune@cola-2" in done.stdout
    assert sorted(study.ran()) == ["finetune@cola-1"] * 2 + ["finetune@cola-2"]
    assert "finetune@cola-1" in study.dvc("status") and "finetune@cola-2" not in study.dvc("status")


@pytest.mark.parametrize("way", ["kill -9", "scancel"])
def test_a_study_whose_controller_died_goes_on(
    study: Project, cluster: Cluster, background: Register, way: str, tmp_path: Path
) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    controller = ["snakemake", *QUICK, "models/pretrained"]
    if way == "scancel":
        script = tmp_path / "controller.sh"
        script.write_text(f"#!/bin/bash\ncd {study.path}\nTOY_SLOW=pretrain exec {' '.join(controller)}\n")
        sent = study.run("sbatch", "--parsable", "-D", str(tmp_path), "-o", str(tmp_path / "said"), str(script)).stdout
        study.wait_for("pretrain", PATIENCE)
        cluster.ask("scancel", sent.strip())
        wait_until(lambda: not cluster.ask("squeue", "-h", "-t", "R,CG", "-j", sent.strip(), "-o", "%i"), "its end")
    else:
        process = background(study.start(*controller, TOY_SLOW="pretrain"))
        study.wait_for("pretrain", PATIENCE)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert len(jobs(cluster, study)) == 1  # it runs on
    assert study.ran() == ["count", "pretrain"]
    said = study.run(*controller).stdout
    assert study.ran() == ["pretrain"]
    assert "cancelling 1 jobs" in said or way == "scancel"
    assert jobs(cluster, study, "PENDING,RUNNING") == []
    assert "up to date" in study.dvc("status", "count", "pretrain")
