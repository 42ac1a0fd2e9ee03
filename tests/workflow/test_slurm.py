"""Both engines' state on a real Slurm of two nodes with stand-in GPUs (``cluster.py``); skipped where it cannot be had.

Scenarios that wait use their time side by side: each works on its own copy of a study.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

PATIENCE = 120  # seconds for any one thing on a busy machine
QUICK = ["--profile", "slurm", "--slurm-init-seconds-before-status-checks", "2"]
Register = Callable[["subprocess.Popen[str]"], "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running cluster."""
    spec = importlib.util.spec_from_file_location("cluster", Path(__file__).with_name("cluster.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("slurm")
    cluster = None
    try:
        module.unpack(folder)
        cluster = module.Cluster(folder)
        cluster.up()
    except module.Unavailable as error:
        pytest.skip(f"no Slurm: {error}")
    else:
        yield cluster
    finally:
        if cluster:
            cluster.down()


@pytest.fixture(scope="module")
def toy(finished: Project, cluster: Any, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
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


@pytest.fixture(scope="module")
def done(fresh_clone: Callable[[str], Project], cluster: Any) -> Project:
    """The project's own study under the `test` preset, run by the literal command of the README."""
    project = fresh_clone("test")
    project.environment = on(cluster)
    project.edit("workflow/profiles/slurm/config.yaml", "status-checks: 10", "status-checks: 2")
    said = project.run("snakemake", "--profile", "slurm", "all").stdout
    (project.path.parent / "said").write_text(said)
    project.commit()
    return project


@pytest.fixture(scope="module")
def limited(done: Project, cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Any]]:
    """A training that hangs after its first checkpoint until its time limit ends it; its controller goes on beside."""
    study = done.copy(tmp_path_factory.mktemp("limited") / "study")
    study.edit("params.yaml", "steps: {short: 20,", "steps: {short: 400,")
    study.edit("params.yaml", "evaluate_every: 10 ", "evaluate_every: 1000 ")
    limits = ["pretrain_short:runtime=1", "pretrain_short:slurm_extra='--nice=1'"]
    command = ["snakemake", *QUICK, "models/pretrained/short", "--set-resources", *limits]
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


def on(cluster: Any) -> dict[str, str]:
    """Variables with which a study's commands find the cluster and this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{cluster.environment['PATH']}"
    return {**cluster.environment, "PATH": path, "OMP_WAIT_POLICY": "PASSIVE"}


def wait_until(true: Callable[[], Any], what: str) -> Any:
    """What ``true`` returns once it is not empty."""
    deadline = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.3)
    return found


def jobs(cluster: Any, study: Project, states: str = "RUNNING") -> list[str]:
    """Numbers of a study's jobs in these states."""
    lines = cluster.ask("squeue", "-h", "-t", states, "-o", "%i|%Z").splitlines()
    return [line.split("|")[0] for line in lines if line.split("|")[1] == str(study.path)]


def checkpoints(study: Project) -> int:
    """How many a study's trainings have saved."""
    return len(list((study.path / "checkpoints").glob("*/*/step-*")))


def go_on(cluster: Any, job: str) -> None:
    """Let a job that was put back into the queue start now: Slurm lets it wait for two minutes."""
    wait_until(lambda: cluster.ask("squeue", "-h", "-t", "PENDING", "-j", job, "-o", "%i"), f"job {job} in the queue")
    cluster.ask("scontrol", "update", f"JobId={job}", "StartTime=now")


def test_snakemake_profile_slurm_all(done: Project) -> None:
    lock = yaml.safe_load((done.path / "dvc.lock").read_text())["stages"]
    names = set(done.dvc("stage", "list", "--name-only").split())
    assert names <= set(lock) and all(lock[name]["outs"] for name in names)
    assert done.nothing_to_do()
    said = (done.path.parent / "said").read_text()
    submitted = re.findall(r"Job \S+ has been submitted with SLURM jobid", said)
    assert 5 < len(submitted) < len(names), "short jobs in a row are one job"


@pytest.mark.usefixtures("limited")  # its time goes by meanwhile
def test_a_stopped_training_goes_on_in_the_same_job(
    done: Project, cluster: Any, tmp_path: Path, background: Register
) -> None:
    study = done.copy(tmp_path / "study")
    study.edit("params.yaml", "steps: {short: 20,", "steps: {short: 1500,")
    study.edit("params.yaml", "evaluate_every: 10 ", "evaluate_every: 1000 ")
    target = "models/pretrained/short"
    background(study.start("snakemake", *QUICK, target, PIPELINE_CHECKPOINT_MINUTES="0.02"))
    wait_until(lambda: checkpoints(study), "a checkpoint")
    (job,) = jobs(cluster, study)
    cluster.ask("scancel", "--signal=URG", job)  # as Slurm does before the time is over
    go_on(cluster, job)
    log = study.path / "logs/pretrain/short.log"
    wait_until(lambda: log.exists() and "going on from the checkpoint" in log.read_text(), "the training to go on")
    time.sleep(2)
    assert jobs(cluster, study) == [job]  # the same job: no retry was spent


def test_two_nodes_train_together_in_one_job(done: Project, cluster: Any, tmp_path: Path) -> None:
    study = done.copy(tmp_path / "study")
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    spread = ["--config", "gpus_per_node=1", "max_nodes=2", "pretraining_hours=1e-20"]
    here = {"MASTER_ADDR": "127.0.0.1"}  # the stand-in nodes' names are no hosts
    said = study.run("snakemake", *QUICK, "models/pretrained/short", *spread, **here).stdout
    assert "nodes=2" in said
    log = study.path / "logs/pretrain"
    assert "2 processes train together" in (log / "short.log").read_text()
    torchrun = "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=2 torchrun --nnodes=2 --nproc-per-node=1 "
    torchrun += "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:29411 --no-python"
    study.run("snakemake", *QUICK, "models/pretrained/long", *spread, LAUNCH=torchrun)
    assert "2 processes train together" in (log / "long.log").read_text()
    assert "up to date" in study.dvc("status", "pretrain_short", "pretrain_long")


def test_a_preempted_job_runs_again(study: Project, cluster: Any, background: Register) -> None:
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
    study: Project, cluster: Any, background: Register, way: str, tmp_path: Path
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


def test_a_training_killed_by_its_time_limit_goes_on_from_its_checkpoint(limited: tuple[Project, Any]) -> None:
    study, process = limited
    said, _ = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, said
    assert "TIMEOUT" in said and "Trying to restart" in said
    assert "going on from the checkpoint of step" in (study.path / "logs/pretrain/short.log").read_text()
    assert "up to date" in study.dvc("status", "pretrain_short")
