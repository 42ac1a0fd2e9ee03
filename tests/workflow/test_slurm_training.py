"""The launch lines of docs/your-cluster.md on two nodes of a real Slurm (``cluster.py``), with a tiny study."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.pretrain.conftest import study as study
from tests.workflow.on_slurm import PATIENCE, on, wait_until

if TYPE_CHECKING:
    from tests.workflow.cluster import Cluster

pytestmark = pytest.mark.slow  # it waits for Slurm
PROGRAM = """
__import__("os").write(1, f"pid {__import__('os').getpid()}\\n".encode())  # at once: four write
from tests.unit.pretrain.small import train_short
train_short()
"""
STOPPABLE = """
__import__("os").write(1, f"pid {__import__('os').getpid()}\\n".encode())  # at once: four write
from pipeline_src import __main__ as command, run
from tests.unit.pretrain.small import train_short
run.run_stage = lambda *_: train_short()
raise SystemExit(command.main(["pretrain", "--phase", "phase1"]))
"""


def documented(root: Path, torchrun: bool, gpus: str = "2") -> list[str]:
    """The words of the documented line for two nodes, with other GPUs in place of eight."""
    text = (root / "docs/your-cluster.md").read_text()
    (line,) = (
        line for line in re.findall(r'^LAUNCH="(srun .*)" dvc', text, re.MULTILINE) if ("torchrun" in line) == torchrun
    )
    changed = {"8": gpus, "NODE:29400": f"127.0.0.1:{29415 + int(gpus)}", "python": sys.executable}
    changed["workflow/torchrun.py"] = str(root / "workflow/torchrun.py")
    return [changed.get(word, word) for word in line.split()]


def start(cluster: Cluster, root: Path, words: list[str], changes: str, folder: Path, **more: str) -> subprocess.Popen:
    """A training in ``folder``; the stand-in nodes' names are no hosts."""
    environment = {**os.environ, **on(cluster), "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", **more}
    with open(folder / "said", "w") as output:
        command = [*words, sys.executable, "-c", PROGRAM, changes]
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)


def newest_process(folder: Path) -> int:
    """The process that began last."""
    return int(re.findall(r"pid (\d+)", (folder / "said").read_text())[-1])


def checkpoint(folder: Path) -> bool:
    """Whether one is saved."""
    return bool(list(folder.glob("checkpoints/phase1/*/step-*/state.json")))


def test_documented_srun_command_trains_on_two_nodes(cluster: Cluster, root: Path, study: Path) -> None:
    process = start(cluster, root, documented(root, False), '{"phase1": 20}', study, MASTER_ADDR="127.0.0.1")
    assert process.wait(PATIENCE) == 0, (study / "said").read_text()
    assert (study / "models/pretrained/phase1/model.safetensors").exists()
    assert len(re.findall(r"^pid \d", (study / "said").read_text(), re.MULTILINE)) == 4


def test_srun_dead_process_ends_job_step_and_is_named(cluster: Cluster, root: Path, study: Path) -> None:
    changes = '{"phase1": 100000, "log_points": 10000}'
    process = start(cluster, root, documented(root, False), changes, study, MASTER_ADDR="127.0.0.1")
    wait_until((study / "logs/dvclive/phase1/plots/metrics/loss.tsv").exists, "the first row")
    os.kill(newest_process(study), signal.SIGKILL)
    assert process.wait(60) != 0
    output = (study / "said").read_text()
    assert "have ended or hang: process" in output or re.search(r"task \d: Killed", output), output  # srun may be first


def test_documented_torchrun_command_continues_after_killed_worker(cluster: Cluster, root: Path, study: Path) -> None:
    words = documented(root, True)
    changes = '{"phase1": 200}'
    process = start(cluster, root, words, changes, study, PIPELINE_CHECKPOINT_MINUTES="0.01")
    wait_until(lambda: checkpoint(study), "a checkpoint")
    os.kill(newest_process(study), signal.SIGKILL)
    assert process.wait(PATIENCE) == 0, (study / "said").read_text()
    assert (study / "models/pretrained/phase1/model.safetensors").exists()
    assert len(re.findall(r"^pid \d", (study / "said").read_text(), re.MULTILINE)) >= 8  # all four began again


def test_torchrun_job_is_requeued_when_stopped(cluster: Cluster, root: Path, study: Path) -> None:
    """As the rules of ``workflow/Snakefile`` run the line."""
    changes = '{"phase1": 100000, "log_points": 10000}'
    command = [*documented(root, True, gpus="1"), sys.executable, "-c", STOPPABLE, changes]
    script = f"#!/bin/bash\n{root}/workflow/requeue.sh {shlex.join(command)}\n"
    (study / "job.sh").write_text(script)
    environment = {**os.environ, **on(cluster), "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    environment["PIPELINE_CHECKPOINT_MINUTES"] = "0.01"
    options = ["--parsable", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--output=said"]
    sent = subprocess.run(["sbatch", *options, "job.sh"], cwd=study, env=environment, text=True, capture_output=True)
    job = sent.stdout.strip()
    try:
        wait_until(lambda: checkpoint(study), "a checkpoint")
        cluster.ask("scancel", "--signal=URG", job)  # as Slurm does before the time is over
        wait_until(lambda: cluster.ask("squeue", "-h", "-j", job, "-o", "%T") != "RUNNING\n", "the job's end")
        assert "Restarts=1" in cluster.ask("scontrol", "show", "job", job), (study / "said").read_text()
    finally:
        cluster.ask("scancel", job)
    assert len(re.findall(r"^pid \d", (study / "said").read_text(), re.MULTILINE)) == 2  # nobody began again meanwhile
