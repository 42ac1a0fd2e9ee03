"""The project's own study on a real Slurm with stand-in GPUs (``cluster.py``); skipped where it cannot be had.

Scenarios that wait use their time side by side: each works on its own copy of the study.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.workflow.on_slurm import PATIENCE, QUICK, Register, change_params, go_on, jobs, on, wait_until

if TYPE_CHECKING:
    from conftest import Project

    from tests.workflow.cluster import Cluster

pytestmark = pytest.mark.slow  # it waits for Slurm


@pytest.fixture(scope="module")
def done(fresh_clone: Callable[[str], Project], cluster: Cluster) -> Project:
    """The project's own study under the `test` preset, run by the literal command of the README."""
    project = fresh_clone("test")
    project.environment = on(cluster)
    project.edit("workflow/profiles/slurm/config.yaml", "status-checks: 10", "status-checks: 2")
    output = project.run("snakemake", "--profile", "slurm", "all").stdout
    (project.path.parent / "said").write_text(output)
    project.commit()
    return project


@pytest.fixture(scope="module")
def limited(done: Project, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Any]]:
    """A training that hangs after its first checkpoint until its time limit ends it; its controller goes on beside."""
    study = done.copy(tmp_path_factory.mktemp("limited") / "study")
    # so many steps that none ends before the signal comes, which has to wait on a slow machine
    change_params(study, {"pretrain.steps.phase1": 1200, "pretrain.eval_steps": 2000})
    # a minute for the first job; the next ones have the time that a slow machine needs
    limits = ["pretrain_phase1:runtime=1 if attempt == 1 else 30", "pretrain_phase1:slurm_extra='--nice=1'"]
    command = ["snakemake", *QUICK, "pretrain_phase1", "--set-resources", *limits]
    process = study.start(*command, PIPELINE_CHECKPOINT_MINUTES="0.005")
    try:
        wait_until(lambda: checkpoints(study), "a checkpoint")
        (job,) = jobs(cluster, study)
        cluster.ask("scancel", "--signal=STOP", job)
        yield study, process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def checkpoints(study: Project) -> int:
    """How many a study's trainings have saved."""
    return len(list((study.path / "checkpoints").glob("*/*/step-*")))


def test_slurm_profile_runs_whole_study(done: Project) -> None:
    lock = yaml.safe_load((done.path / "dvc.lock").read_text())["stages"]
    names = set(done.dvc("stage", "list", "--name-only").split())
    assert names <= set(lock) and all(lock[name]["outs"] for name in names)
    assert done.nothing_to_do()
    output = (done.path.parent / "said").read_text()
    submitted = re.findall(r"Job \S+ has been submitted with SLURM jobid", output)
    assert 5 < len(submitted) < len(names), "short jobs in a row are one job"


def test_living_jobs_recognise_every_job_of_study(done: Project, cluster: Cluster, tmp_path: Path) -> None:
    """Groups of rules among them: had none of the study's jobs ended, each would stop a second Snakemake."""
    folder = tmp_path / "bin"
    folder.mkdir()
    squeue = shutil.which("squeue", path=cluster.environment["PATH"])
    (folder / "squeue").write_text(f'#!/bin/sh\nexec {squeue} --states=all "$@"\n')
    (folder / "squeue").chmod(0o755)
    path = f"{folder}{os.pathsep}{on(cluster)['PATH']}"
    output = done.run("snakemake", "-n", "all", check=False, PATH=path).stdout
    sent = re.findall(r"has been submitted with SLURM jobid (\d+)", (done.path.parent / "said").read_text())
    assert re.findall(r"(\d+) \(", output) == sorted(sent, key=int), output
    assert "corpus_build_examples" in output and "Traceback" not in output


@pytest.mark.usefixtures("limited")  # its time goes by meanwhile
def test_slurm_stopped_training_continues_in_same_job(
    done: Project, cluster: Cluster, tmp_path: Path, background: Register
) -> None:
    study = done.copy(tmp_path / "study")
    change_params(study, {"pretrain.steps.phase1": 1500, "pretrain.eval_steps": 1000})
    background(study.start("snakemake", *QUICK, "pretrain_phase1", PIPELINE_CHECKPOINT_MINUTES="0.02"))
    wait_until(lambda: checkpoints(study), "a checkpoint")
    (job,) = jobs(cluster, study)
    cluster.ask("scancel", "--signal=URG", job)  # as Slurm does before the time is over
    go_on(cluster, job)
    log = study.path / "logs/pretrain/phase1.log"
    wait_until(lambda: log.exists() and "resuming from the checkpoint" in log.read_text(), "the training to go on")
    time.sleep(2)
    assert jobs(cluster, study) == [job]  # the same job: no retry was spent


def test_slurm_two_nodes_train_in_one_job(done: Project, cluster: Cluster, tmp_path: Path) -> None:
    study = done.copy(tmp_path / "study")
    change_params(study, {"mask_prob": 0.2})
    spread = ["--config", "gpus_per_node=1", "nodes=2"]
    here = {"MASTER_ADDR": "127.0.0.1"}  # the stand-in nodes' names are no hosts
    output = study.run("snakemake", *QUICK, "pretrain_phase1", *spread, **here).stdout
    assert re.search(r"resources: .*\bnodes=2, mpi=srun, tasks=2\b", output)
    assert "2 processes train together" in (study.path / "logs/pretrain/phase1.log").read_text()
    assert "up to date" in study.dvc("status", "pretrain_phase1")


def test_slurm_training_at_time_limit_continues_from_checkpoint(limited: tuple[Project, Any]) -> None:
    study, process = limited
    log = study.path / "logs/pretrain/phase1.log"
    wait_until(lambda: log.exists() and "resuming from the checkpoint" in log.read_text(), "the training to go on")
    output, _ = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, output
    assert "TIMEOUT" in output and "Trying to restart" in output
    assert "up to date" in study.dvc("status", "pretrain_phase1")
