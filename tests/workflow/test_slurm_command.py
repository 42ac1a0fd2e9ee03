"""Commands of Slurm's while its controller does not answer: stand-ins that fail some times, then answer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

DOWN = "Unable to contact slurm controller (connect failure)"
LOST = "Batch job submission failed: Socket timed out on send/recv operation"
SUBMIT = ["sbatch", "--parsable", "--job-name", "run"]


class Slurm:
    """Stand-ins in ``folder/bin``: each answers by the next of its lines, ``status:text``, and repeats the last."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self._command = [sys.executable, "-S", "-E", str(root / "workflow/slurm_command.py")]
        (folder / "bin").mkdir()
        (folder / ".snakemake/slurm").mkdir(parents=True)
        self.answers(squeue=["0:"], sbatch=["0:12"])

    def answers(self, **lines: list[str]) -> None:
        for name, answers in lines.items():
            (self.folder / f"{name}.answers").write_text("\n".join(answers) + "\n")
            (self.folder / f"{name}.calls").unlink(missing_ok=True)
            program = self.folder / "bin" / name
            program.write_text(
                f'#!/bin/sh\ncd {self.folder}; echo "$*" >> {name}.calls\n'
                f"answer=$(sed -n $(wc -l < {name}.calls)p {name}.answers)\n"
                f"answer=${{answer:-$(tail -n 1 {name}.answers)}}\n"
                'test "${answer%%:*}" = 0 || exec >&2\n'
                'echo "${answer#*:}"; exit "${answer%%:*}"\n'
            )
            program.chmod(0o755)

    def calls(self, name: str) -> int:
        noted = self.folder / f"{name}.calls"
        return len(noted.read_text().splitlines()) if noted.exists() else 0

    def run(self, *command: str, patience: float = 20) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "PIPELINE_SLURM_PATIENCE": str(patience)}
        return subprocess.run(
            [*self._command, *command], cwd=self.folder, env=environment, text=True, capture_output=True
        )


@pytest.fixture
def slurm(tmp_path: Path, root: Path) -> Slurm:
    return Slurm(tmp_path, root)


@pytest.mark.slow
@pytest.mark.parametrize("error", [DOWN, LOST, "Zero Bytes were transmitted or received"])
def test_sbatch_is_called_again_until_controller_answers(slurm: Slurm, error: str) -> None:
    slurm.answers(sbatch=[f"1:{error}", "0:12"])
    done = slurm.run(*SUBMIT)
    assert (done.returncode, done.stdout) == (0, "12\n") and slurm.calls("sbatch") == 2


@pytest.mark.slow
def test_sbatch_with_lost_answer_submits_one_job(slurm: Slurm) -> None:
    assert slurm.run(*SUBMIT).stdout == "12\n"
    slurm.answers(sbatch=[f"1:{LOST}", "0:14"], squeue=["0:12 13"])
    assert slurm.run(*SUBMIT).stdout.strip() == "13" and slurm.calls("sbatch") == 1
    # its number is known now, and no other submission takes it for its own
    slurm.answers(sbatch=[f"1:{LOST}", "0:14"], squeue=["0:12 13"])
    assert slurm.run(*SUBMIT).stdout.strip() == "14"


@pytest.mark.slow
def test_sbatch_is_not_called_again_before_controller_lists_jobs(slurm: Slurm) -> None:
    slurm.answers(sbatch=[f"1:{LOST}", "0:14"], squeue=[f"1:{DOWN}"])
    done = slurm.run(*SUBMIT, patience=3)
    assert done.returncode == 1 and DOWN in done.stderr and slurm.calls("sbatch") == 1


@pytest.mark.parametrize("command", [SUBMIT, ["squeue", "--me"]])
def test_slurm_error_that_is_not_temporary_is_raised_without_retry(slurm: Slurm, command: list[str]) -> None:
    error = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
    slurm.answers(**{command[0]: [f"3:{error}", "0:12"]})
    begin = time.monotonic()
    done = slurm.run(*command)
    assert (done.returncode, done.stderr) == (3, f"{error}\n") and slurm.calls(command[0]) == 1
    assert time.monotonic() - begin < 2


def test_retries_end_with_last_error_after_patience(slurm: Slurm) -> None:
    slurm.answers(sbatch=[f"1:{DOWN}"])
    done = slurm.run(*SUBMIT, patience=0)
    assert (done.returncode, done.stderr) == (1, f"{DOWN}\n")


def test_job_path_has_original_slurm_commands(slurm: Slurm) -> None:
    program = slurm.folder / "bin/sbatch"
    program.write_text('#!/bin/sh\necho "$PATH"\n')
    environment = os.environ | {"PATH": f"{slurm.folder}/.snakemake/slurm:{slurm.folder}/bin:/usr/bin:/bin"}
    done = subprocess.run(
        [*slurm._command, "sbatch"], cwd=slurm.folder, env=environment, text=True, capture_output=True
    )
    assert done.stdout == f"{slurm.folder}/bin:/usr/bin:/bin\n", done.stderr


def test_scontrol_configuration_is_answered_while_controller_is_down(slurm: Slurm) -> None:
    slurm.answers(scontrol=[f"1:{DOWN}"])
    (slurm.folder / ".snakemake/slurm/configuration").write_text("MinJobAge = 300 sec\n")
    assert slurm.run("scontrol", "show", "config").stdout == "MinJobAge = 300 sec\n"
