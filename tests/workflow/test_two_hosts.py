"""The same folder on two hosts, which are two namespaces of process numbers with a ``/tmp`` each.

DVC takes a process of the other host for a dead one. Skipped where only root may make namespaces.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.workflow.on_slurm import change_params, wait_until

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.slow
Register = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]
UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
# The study and this checkout may lie below /tmp. Numbers begin at a place of each host's own, so that they differ.
HOST = """
exec 8< {root} 9< {folder}
mount -t tmpfs none /tmp && mkdir -p {root} {folder} {home} || exit 99
mount -c --bind /proc/self/fd/8 {root} && mount -c --bind /proc/self/fd/9 {folder} && cd {folder} || exit 99
echo {number} > /proc/sys/kernel/ns_last_pid || exit 99
{command}
exit $?
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    folder = tmp_path_factory.mktemp("host")
    trial = subprocess.run(on_host(folder, folder, 100, "true"), text=True, capture_output=True)
    if trial.returncode:
        pytest.skip(f"no namespaces of process numbers here: {trial.stderr.strip()}")


def with_slurm(study: Project) -> None:
    """Let the study find a ``squeue``, as on a cluster, which lists no job."""
    command = study.path / "programs/squeue"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    study.environment = {**study.environment, "PATH": path}


def on_host(folder: Path, home: Path, number: int, command: str) -> list[str]:
    """A command in ``folder`` on the host whose process numbers begin with ``number``."""
    quoted = {name: shlex.quote(str(path)) for name, path in (("root", ROOT), ("folder", folder), ("home", home))}
    return [*UNSHARE, "bash", "-c", HOST.format(**quoted, number=number, command=command)]


def trainings(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of a command that train."""
    processes = psutil.Process(process.pid).children(recursive=True)
    return [child for child in processes if ["-m", "pipeline_src", "pretrain"] == child.cmdline()[1:4]]


def test_second_training_from_another_host_is_rejected(
    finished_study: Project, tmp_path: Path, background: Register
) -> None:
    study = finished_study.copy(tmp_path / "study")
    with_slurm(study)
    change_params(study, {"pretrain.steps.phase1": 400, "pretrain.eval_steps": 1000})
    study.run("snakemake", "-n", "pretrain_phase1")
    command = on_host(study.path, study.home, 20_000, "dvc repro pretrain_phase1")
    first = background(study.start(*command, PIPELINE_CHECKPOINT_MINUTES="0.005"))

    def saved() -> list[Path]:
        assert first.poll() is None, first.communicate()[0]
        return list((study.path / "checkpoints").glob("phase1/*/step-*"))

    wait_until(saved, "a checkpoint")
    (training,) = trainings(first)
    training.send_signal(signal.SIGSTOP)  # until all others have tried

    for second in ("dvc repro pretrain_phase1", "snakemake --cores 2 pretrain_phase1"):
        done = study.run(*on_host(study.path, study.home, 1000, second), check=False)
        output = done.stdout
        assert done.returncode and output.count("the same training runs already") == 1 and "Traceback" not in output, (
            output
        )
    looking = study.run(*on_host(study.path, study.home, 1000, "dvc status")).stdout
    assert "pretrain_phase1" in looking and "damaged by a kill" not in looking

    training.send_signal(signal.SIGCONT)
    output, _ = first.communicate(timeout=240)
    assert first.returncode == 0 and "resuming from" not in output, output
    assert "up to date" in study.dvc("status", "pretrain_phase1")
    assert "Nothing to be done" in study.run("snakemake", "-n", "pretrain_phase1").stdout


def test_rwlock_is_separate_for_every_host(study: Project, background: Register) -> None:
    """Else DVC would strike off what the other host uses, and its record would be lost when the stage ends."""
    with_slurm(study)
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    study.run("snakemake", "-n", "all")
    first = background(
        study.start(*on_host(study.path, study.home, 20_000, "snakemake --cores 1 pretrain"), TOY_SLOW="pretrain")
    )
    study.wait_for("pretrain")
    for looking in ("dvc status", "dvc repro --single-item count", "dvc exp show --no-pager", "snakemake -n all"):
        output = study.run(*on_host(study.path, study.home, 1000, looking)).stdout
        assert "damaged by a kill" not in output, output
    (study.path / "go").touch()
    output, _ = first.communicate(timeout=240)
    assert first.returncode == 0, output
    assert study.ran() == ["pretrain"]
    assert "up to date" in study.dvc("status", "pretrain")
    assert os.path.islink(study.path / ".dvc/tmp/rwlock")
