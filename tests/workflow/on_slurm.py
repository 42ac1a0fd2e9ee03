"""What the tests on a real Slurm share: when to give up, and how to ask for a study's jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from conftest import Project

    from tests.workflow.cluster import Cluster

PATIENCE = 240  # seconds for any one thing on a busy machine
Register = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]
QUICK = ["--profile", "slurm", "--slurm-init-seconds-before-status-checks", "2"]


def on(cluster: Cluster) -> dict[str, str]:
    """Variables with which a study's commands find the cluster and this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{cluster.environment['PATH']}"
    return {**cluster.environment, "PATH": path, "OMP_WAIT_POLICY": "PASSIVE"}


def wait_until(true: Callable[[], Any], what: str) -> Any:
    """What ``true`` returns once it is not empty."""
    deadline = time.monotonic() + PATIENCE
    while not (result := true()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.3)
    return result


def change_params(study: Project, changes: dict[str, Any]) -> None:
    """Set keys of params.yaml, written with dots, whatever form the file has."""
    path = study.path / "params.yaml"
    params = yaml.safe_load(path.read_text())
    for name, value in changes.items():
        *blocks, key = name.split(".")
        block = params
        for section in blocks:
            block = block[section]
        assert key in block, name
        block[key] = value
    path.write_text(yaml.safe_dump(params, sort_keys=False))


def jobs(cluster: Cluster, study: Project, states: str = "RUNNING") -> list[str]:
    """Numbers of a study's jobs in these states."""
    lines = cluster.ask("squeue", "-h", "-t", states, "-o", "%i|%Z").splitlines()
    return [line.split("|")[0] for line in lines if line.split("|")[1] == str(study.path)]


def go_on(cluster: Cluster, job: str) -> None:
    """Let a job that was put back into the queue start now: Slurm lets it wait for two minutes."""
    wait_until(lambda: cluster.ask("squeue", "-h", "-t", "PENDING", "-j", job, "-o", "%i"), f"job {job} in the queue")
    cluster.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
