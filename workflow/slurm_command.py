"""Call a Slurm command, and retry while Slurm's controller does not answer (for example, while it restarts).

    python slurm_command.py sbatch --parsable ...

``slurm_jobs.begin`` puts this program before Slurm's own commands on Snakemake's PATH. Without it, Snakemake's executor
ends the run after three failed submissions within seconds, and waits forever for jobs whose state it cannot query.
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

# Error messages of a controller that is down, starting or overloaded. Other errors, such as a wrong account, are not
# retried.
UNREACHABLE = re.compile(
    "Unable to contact slurm controller|Unable to establish controller machine|Socket timed out|Connection refused|"
    "Connection reset|Connection timed out|Communication connection failure|Zero Bytes were transmitted|"
    "Transport endpoint is not connected|No route to host|in standby mode|Resource temporarily unavailable"
)
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2, 60
PATIENCE_SECONDS = 600
# The executor waits one minute for squeue, so this has to be shorter. It repeats the query `slurm-status-attempts`
# times.
QUERY_PATIENCE_SECONDS = 45
# State of this Snakemake run: Slurm's configuration and the numbers of submitted jobs. Created anew at each start.
FOLDER = Path(".snakemake/slurm")
CONFIGURATION, SUBMITTED = FOLDER / "configuration", FOLDER / "submitted"
Answer = subprocess.CompletedProcess[bytes]


def call(name: str, arguments: Sequence[str]) -> Answer:
    """Call a Slurm command, and retry until the controller can be reached or the patience ends."""
    if [name, *arguments] == ["scontrol", "show", "config"] and CONFIGURATION.exists():
        # The executor asks for the configuration at each query, and allows ten seconds. Answer from the saved copy.
        return subprocess.CompletedProcess([name, *arguments], 0, CONFIGURATION.read_bytes(), b"")
    if name == "sbatch":
        return _submit(arguments)
    return _repeat(name, arguments, min(_patience(), QUERY_PATIENCE_SECONDS))


def _submit(arguments: Sequence[str]) -> Answer:
    # Submits a job exactly once, even if sbatch's answer is lost on its way back.
    script = sys.stdin.buffer.read() if "/dev/stdin" in arguments else None
    with open(SUBMITTED, "a+") as numbers:
        # Allow one submission at a time. Then an unknown job of this run can only be the one whose answer was lost.
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
    # Returns the number of a job of this run that Slurm has but no submission has reported, if there is one.
    answer = _run("squeue", ["--me", "--noheader", "--states=all", f"--name={run}", "--format=%i"])
    known = SUBMITTED.read_bytes().split()
    unknown = b"\n".join(number for number in answer.stdout.split() if number not in known)
    return subprocess.CompletedProcess(answer.args, answer.returncode, unknown, answer.stderr)


def _run(name: str, arguments: Sequence[str], script: bytes | None = None) -> Answer:
    # Remove this program's folder from PATH, since jobs inherit the environment and need Slurm's own commands.
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
