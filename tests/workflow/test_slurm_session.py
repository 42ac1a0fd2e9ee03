"""Jobs that Snakemake submitted start srun and go back into the queue; a Slurm job of the user's own is left alone.

Slurm's commands are stand-ins that note their calls, and every stage of DVC ends as a training that was stopped.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.slow
# scontrol fails, so that requeue.sh does not wait for the end of its job
COMMANDS = {
    "squeue": "echo RUNNING",
    "scontrol": "exit 1",
    "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
    "own-launcher": 'exec "$@"',
}
# {} is DVC itself
DVC = """#!/bin/bash
case "$*" in
*repro*) $LAUNCH sh -c 'exit 75' ;;
*) exec {} "$@" ;;
esac
"""
SUBMITTED = ["--mode", "remote", "--force", "--allowed-rules", "pretrain_phase1"]


@pytest.fixture(scope="module")
def session(finished_study: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished study that is to train at another rate, in a Slurm job of the user's, such as a notebook server."""
    folder = tmp_path_factory.mktemp("bin")
    for name, then in COMMANDS.items():
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/calls\n{then}\n')
    project = finished_study.copy(tmp_path_factory.mktemp("session") / "study")
    project.edit("params.yaml", "learning_rate: 0.001\n", "learning_rate: 0.002\n")
    programs = project.variables({})["PATH"]
    (folder / "dvc").write_text(DVC.format(shutil.which("dvc", path=programs)))
    for program in folder.iterdir():
        program.chmod(0o755)
    environment = {"PATH": f"{folder}:{programs}", "SLURM_JOB_ID": "7", "CALLS": str(folder / "calls")}
    return replace(project, environment=environment)


def calls(session: Project, *arguments: str, **more: str) -> list[str]:
    """Return the calls of stand-ins in a run that trains on two GPUs and is stopped."""
    noted = Path(session.environment["CALLS"])
    noted.unlink(missing_ok=True)
    command = ["snakemake", "--cores", "1", *arguments, "--config", "gpus_per_node=2", "--", "pretrain_phase1"]
    done = session.run(*command, check=False, **more)
    assert done.returncode and "Error in rule pretrain_phase1" in done.stdout, done.stdout
    lines = noted.read_text().splitlines() if noted.exists() else []
    # squeue is asked for jobs of an earlier run at each start
    return [line for line in lines if not line.startswith("squeue --me")]


def test_local_run_inside_slurm_job_neither_requeues_it_nor_calls_srun(session: Project) -> None:
    assert calls(session) == []
    assert calls(session, LAUNCH="own-launcher -x") == ["own-launcher -x sh -c exit 75"]


def test_submitted_job_is_requeued_and_starts_process_per_gpu(session: Project) -> None:
    calls(session)  # the main process writes the graph that jobs read
    launched, *asked = calls(session, *SUBMITTED)
    assert launched.startswith("srun ") and "--ntasks=2" in launched
    assert asked == ["squeue -h -j 7 -o %T", "scontrol requeue 7"]
    launched, *asked = calls(session, *SUBMITTED, LAUNCH="own-launcher")
    assert launched == "own-launcher sh -c exit 75" and asked[-1] == "scontrol requeue 7"
