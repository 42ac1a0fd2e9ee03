"""The launch lines of docs/your-cluster.md on two nodes of a real Slurm (``cluster.py``), with a tiny study."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.pretraining.conftest import study as study
from tests.workflow.on_slurm import PATIENCE, on, wait_until

if TYPE_CHECKING:
    from tests.workflow.cluster import Cluster

pytestmark = pytest.mark.slow  # it waits for Slurm
PROGRAM = (
    'print("pid", __import__("os").getpid(), flush=True); from tests.unit.pretraining.small import *; train_short()'
)


def documented(root: Path, torchrun: bool) -> list[str]:
    """The words of the documented line for two nodes, with two GPUs each in place of eight."""
    text = (root / "docs/your-cluster.md").read_text()
    (line,) = (
        line for line in re.findall(r'^LAUNCH="(srun .*)" dvc', text, re.MULTILINE) if ("torchrun" in line) == torchrun
    )
    words = [word.replace("NODE:29400", "127.0.0.1:29417") for word in line.split()]
    return ["2" if word == "8" else word for word in words]


def start(cluster: Cluster, root: Path, words: list[str], changes: str, folder: Path, **more: str) -> subprocess.Popen:
    """A training in ``folder``; the stand-in nodes' names are no hosts."""
    environment = {**os.environ, **on(cluster), "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", **more}
    with open(folder / "said", "w") as said:
        return subprocess.Popen(
            [*words, sys.executable, "-c", PROGRAM, changes],
            cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip


def newest_process(folder: Path) -> int:
    """The process that began last."""
    return int(re.findall(r"pid (\d+)", (folder / "said").read_text())[-1])


def checkpoint(folder: Path) -> bool:
    """Whether one is saved."""
    return bool(list(folder.glob("checkpoints/short/*/step-*/state.json")))


def test_the_line_with_srun_trains_on_two_nodes(cluster: Cluster, root: Path, study: Path) -> None:
    process = start(cluster, root, documented(root, False), '{"short": 20}', study, MASTER_ADDR="127.0.0.1")
    assert process.wait(PATIENCE) == 0, (study / "said").read_text()
    assert (study / "models/pretrained/short/model.safetensors").exists()
    assert len(re.findall(r"pid", (study / "said").read_text())) == 4


def test_a_dead_process_ends_the_step_and_is_named(cluster: Cluster, root: Path, study: Path) -> None:
    changes = '{"short": 100000, "curve_points": 10000}'
    process = start(cluster, root, documented(root, False), changes, study, MASTER_ADDR="127.0.0.1")
    wait_until((study / "logs/dvclive/short/plots/metrics/loss.tsv").exists, "the first row")
    os.kill(newest_process(study), signal.SIGKILL)
    assert process.wait(60) != 0
    said = (study / "said").read_text()
    assert "have ended or hang: process" in said or re.search(r"task \d: Killed", said), said  # srun may be first


def test_the_line_with_torchrun_goes_on_after_a_killed_worker(cluster: Cluster, root: Path, study: Path) -> None:
    words = documented(root, True)
    changes = '{"short": 200}'
    process = start(cluster, root, words, changes, study, PIPELINE_CHECKPOINT_MINUTES="0.01")
    wait_until(lambda: checkpoint(study), "a checkpoint")
    os.kill(newest_process(study), signal.SIGKILL)
    assert process.wait(PATIENCE) == 0, (study / "said").read_text()
    assert (study / "models/pretrained/short/model.safetensors").exists()
    assert len(re.findall(r"pid", (study / "said").read_text())) >= 8  # all four began again
