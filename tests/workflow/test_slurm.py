"""Both engines' state on a real Slurm (``cluster.py``), by the toy study; skipped where it cannot be had."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.workflow.conftest import FROM_PRETRAIN
from tests.workflow.on_slurm import PATIENCE, QUICK, Register, go_on, jobs, on, wait_until

if TYPE_CHECKING:
    from conftest import Project

    from tests.workflow.cluster import Cluster

pytestmark = pytest.mark.slow  # it waits for Slurm
LIVING = "PENDING,RUNNING,COMPLETING"


@pytest.fixture(scope="module")
def toy(finished: Project, cluster: Cluster, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished toy study, with the project's own Slurm profile."""
    project = finished.copy(tmp_path_factory.mktemp("slurm-toy") / "study")
    shutil.copytree(root / "workflow/profiles/slurm", project.path / "slurm")
    project.environment = on(cluster)
    project.commit()
    return project


@pytest.fixture
def study(toy: Project, tmp_path: Path) -> Project:
    """A copy of the toy."""
    return toy.copy(tmp_path / "study")


def test_slurm_preempted_job_runs_again(study: Project, cluster: Cluster, background: Register) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start("snakemake", *QUICK, "pretrain", TOY_SLOW="pretrain"))
    study.wait_for("pretrain", PATIENCE)
    (job,) = jobs(cluster, study)
    cluster.ask("sbatch", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3")
    go_on(cluster, job)
    (study.path / "go").touch()
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert "Trying to restart" not in output  # Slurm itself began it again
    assert study.ran() == ["pretrain", "pretrain"]
    assert "up to date" in study.dvc("status", "pretrain")


def test_slurm_job_out_of_retries_fails_and_other_jobs_are_recorded(study: Project) -> None:
    study.edit("toy/finetune.py", "read(", "sys.argv[1] + read(")
    done = study.run("snakemake", *QUICK, "--retries", "1", "all", check=False, TOY_FAIL="finetune@cola-1")
    assert done.returncode and "told to fail" in done.stdout  # its log
    assert sorted(study.ran()) == ["finetune@cola-1"] * 2 + ["finetune@squad2-1"]
    status = study.dvc("status")
    assert "finetune@cola-1" in status and "finetune@squad2-1" not in status


def test_slurm_cancelled_job_is_not_resubmitted_and_other_jobs_continue(
    study: Project, cluster: Cluster, background: Register
) -> None:
    study.edit("toy/finetune.py", "read(", "sys.argv[1] + read(")
    process = background(study.start("snakemake", *QUICK, "all", TOY_SLOW="finetune@cola-1"))
    study.wait_for("finetune@cola-1", PATIENCE)
    comments = cluster.ask("squeue", "-h", "-o", "%i %k %Z").splitlines()
    (job,) = [line.split()[0] for line in comments if "finetune_wildcards_cola-1" in line and str(study.path) in line]
    cluster.ask("scancel", job)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode and f"Slurm job {job} (finetune) was cancelled" in output, output
    assert "Trying to restart" not in output
    assert sorted(study.ran()) == ["finetune@cola-1", "finetune@squad2-1"]
    study.run("snakemake", *QUICK, "all")
    assert study.ran() == ["finetune@cola-1", "report"]


def test_slurm_held_job_is_reported_once_with_release_command(
    study: Project, cluster: Cluster, background: Register
) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start("snakemake", *QUICK, "pretrain", TOY_SLOW="pretrain"))
    study.wait_for("pretrain", PATIENCE)
    (job,) = jobs(cluster, study)
    cluster.ask("scontrol", "requeuehold", job)
    # Snakemake asks once a minute: it sees the job held at least twice
    time.sleep(130)
    (study.path / "go").touch()
    cluster.ask("scontrol", "release", job)
    go_on(cluster, job)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and study.ran() == ["pretrain", "pretrain"], output
    (said,) = [line for line in output.splitlines() if "Slurm holds job" in line]
    assert f"job {job} (pretrain)" in said and said.endswith(f"scontrol release {job}")


def test_slurm_controller_outage_of_a_minute_loses_no_job(
    study: Project, cluster: Cluster, background: Register
) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start("snakemake", *QUICK, "all", TOY_SLOW="pretrain finetune@cola-1"))
    study.wait_for("pretrain", PATIENCE)
    cluster.ask("scontrol", "shutdown", "slurmctld")
    # five answers that fail at once were enough for the executor to forget the job
    time.sleep(60)
    (study.path / "go").touch()
    cluster.start("slurmctld")
    output, _ = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0 and "Trying to restart" not in output, output
    assert sorted(study.ran()) == sorted(FROM_PRETRAIN)


def test_slurm_submission_waits_for_controller(
    study: Project, cluster: Cluster, root: Path, background: Register
) -> None:
    (study.path / ".snakemake/slurm").mkdir(exist_ok=True)
    cluster.ask("scontrol", "shutdown", "slurmctld")
    options = ["--parsable", "--job-name", "run", "--mem", "100", "-o", "/dev/null", "--wrap", "true"]
    process = background(study.start("python", str(root / "workflow/slurm_command.py"), "sbatch", *options))
    time.sleep(30)
    assert process.poll() is None
    cluster.start("slurmctld")
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and output.strip().isdecimal(), output


@pytest.mark.parametrize(("death", "then"), [("kill -9", "wait"), ("kill -9", "scancel"), ("scancel", "wait")])
def test_slurm_job_of_dead_controller_is_not_submitted_again(
    study: Project, cluster: Cluster, background: Register, death: str, then: str, tmp_path: Path
) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    # the prefix changes the jobs' names, by which `squeue --name` finds them
    controller = ["snakemake", *QUICK, "--slurm-jobname-prefix", "study", "pretrain"]
    if death == "scancel":
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
    (job,) = jobs(cluster, study)  # it runs on
    for looking in (["-n"], []):
        done = study.run(*controller, *looking, check=False)
        assert done.returncode and f"{job} (pretrain)" in done.stdout and f"scancel {job}" in done.stdout, done.stdout
        assert "Traceback" not in done.stdout
    assert study.ran() == ["count", "pretrain"] and jobs(cluster, study, LIVING) == [job]
    if then == "wait":
        (study.path / "go").touch()
    else:
        cluster.ask("scancel", job)
    wait_until(lambda: not jobs(cluster, study, LIVING), "the job's end")
    study.run(*controller)
    assert study.ran() == ([] if then == "wait" else ["pretrain"])  # the job itself had recorded what it did
    assert "up to date" in study.dvc("status", "count", "pretrain")


def test_slurm_jobs_of_other_workflow_are_ignored(study: Project, cluster: Cluster) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    for comment in ("rule_other", "rule_pretrained", "pretrain", "rule_other_pretrain_wildcards_a"):
        options = ["-D", str(study.path), "-o", "/dev/null", "--comment", comment, "--mem", "100"]
        cluster.ask("sbatch", *options, "--wrap", "sleep 600")
    foreign = wait_until(lambda: jobs(cluster, study, LIVING), "their jobs")
    assert len(foreign) == 4
    try:
        study.run("snakemake", *QUICK, "pretrain")
        assert study.ran() == ["pretrain"]
        assert sorted(jobs(cluster, study, LIVING)) == sorted(foreign)
    finally:
        cluster.ask("scancel", *foreign)
