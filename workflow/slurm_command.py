"""Call one of Slurm's commands, and call it again while the controller does not answer, as when it restarts.

``slurm_jobs.begin`` puts this before Slurm's own commands on the PATH of Snakemake. Its executor would end the run when
three submissions fail within seconds, and wait for ever for jobs whose state it cannot ask for.

    python slurm_command.py sbatch --parsable ...
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Errors of a controller that is down, starting or overloaded; others, as of a wrong account, come again at each try.
UNREACHABLE = re.compile(
    "Unable to contact slurm controller|Unable to establish controller machine|Socket timed out|Connection refused|"
    "Connection reset|Connection timed out|Communication connection failure|Zero Bytes were transmitted|"
    "Transport endpoint is not connected|No route to host|in standby mode|Resource temporarily unavailable"
)
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2, 60
PATIENCE_SECONDS = 600
# The executor waits for an answer of squeue for a minute, and asks again as often as `slurm-status-attempts` says.
QUERY_PATIENCE_SECONDS = 45
# What this run of Snakemake knows of Slurm; made new at each start.
FOLDER = Path(".snakemake/slurm")
CONFIGURATION, SUBMITTED = FOLDER / "configuration", FOLDER / "submitted"
Answer = subprocess.CompletedProcess[bytes]


def call(name: str, arguments: Sequence[str]) -> Answer:
    """Return the answer of Slurm's command ``name``, once it is not that the controller cannot be reached."""
    if [name, *arguments] == ["scontrol", "show", "config"] and CONFIGURATION.exists():
        # The executor allows ten seconds for this, each time that it asks for the state of jobs.
        return subprocess.CompletedProcess([name, *arguments], 0, CONFIGURATION.read_bytes(), b"")
    if name == "sbatch":
        return _submit(arguments)
    return _repeat(name, arguments, min(_patience(), QUERY_PATIENCE_SECONDS))


def _submit(arguments: Sequence[str]) -> Answer:
    # The job is submitted once, although an answer may be lost on its way back.
    script = sys.stdin.buffer.read() if "/dev/stdin" in arguments else None
    with open(SUBMITTED, "a+") as numbers:
        # One submission at a time: then an unknown job of this run can only be the one whose answer was lost.
        fcntl.flock(numbers, fcntl.LOCK_EX)
        answer = _repeat("sbatch", arguments, _patience(), script)
        if answer.returncode == 0:
            numbers.write(answer.stdout.decode().split(";")[0].strip() + "\n")
        return answer


def _repeat(name: str, arguments: Sequence[str], patience: float, script: bytes | None = None) -> Answer:
    deadline = time.monotonic() + patience
    pause: float = FIRST_PAUSE_SECONDS
    answer = _run(name, arguments, script)
    while _unreachable(answer) and time.monotonic() < deadline:
        time.sleep(min(pause, max(0, deadline - time.monotonic())))
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        if name == "sbatch" and "--job-name" in arguments:
            known = _unknown_job(arguments[arguments.index("--job-name") + 1])
            if known.stdout or _unreachable(known):
                answer = known
                continue
        answer = _run(name, arguments, script)
    return answer


def _unknown_job(run: str) -> Answer:
    # The job of this run that Slurm has and whose number no submission has returned.
    answer = _run("squeue", ["--me", "--noheader", "--states=all", f"--name={run}", "--format=%i"])
    known = SUBMITTED.read_bytes().split()
    unknown = b"\n".join(number for number in answer.stdout.split() if number not in known)
    return subprocess.CompletedProcess(answer.args, answer.returncode, unknown, answer.stderr)


def _run(name: str, arguments: Sequence[str], script: bytes | None = None) -> Answer:
    # Jobs inherit this environment, and need Slurm's own commands.
    own = os.path.realpath(FOLDER)
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if os.path.realpath(folder) != own]
    path = os.pathsep.join(folders)
    program = shutil.which(name, path=path) or name
    return subprocess.run([program, *arguments], env=os.environ | {"PATH": path}, input=script, capture_output=True)


def _unreachable(answer: Answer) -> bool:
    return answer.returncode != 0 and UNREACHABLE.search(answer.stderr.decode(errors="replace")) is not None


def _patience() -> float:
    return float(os.environ.get("PIPELINE_SLURM_PATIENCE") or PATIENCE_SECONDS)


if __name__ == "__main__":
    done = call(sys.argv[1], sys.argv[2:])
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    sys.exit(done.returncode)
