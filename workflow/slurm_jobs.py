"""Extend Snakemake's Slurm executor: find jobs of an earlier run, report held ones, do not resubmit cancelled ones."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from snakemake.logging import logger

from fatal_error import FatalError
from slurm_command import CONFIGURATION, FOLDER, SUBMITTED

COMMANDS = ("sbatch", "squeue", "sinfo", "scontrol")
POLL_SECONDS = 60
# Slurm's reasons for a held job: JobHeldUser, JobHeldAdmin, JobHoldMaxRequeue, "launch failed requeued held", ...
HELD = re.compile("held|hold", re.IGNORECASE)


def begin(workflow: Any) -> None:
    """Prepare a Snakemake run whose jobs are submitted to Slurm. Does nothing if jobs run on this machine.

    Raises:
        FatalError: Slurm does not answer.
    """
    if not workflow.non_local_exec or shutil.which("sbatch") is None:
        return
    configuration = _ask("scontrol", "show", "config")
    if configuration is None:
        raise FatalError(
            "Slurm's controller does not answer, so it is unknown whether jobs of an earlier run are active. "
            "Nothing was submitted. Start again when squeue answers."
        )
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    CONFIGURATION.write_text(configuration)
    SUBMITTED.touch()
    for name in COMMANDS:
        command = FOLDER / name
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slurm_command.py")
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{program}" {name} "$@"\n')
        command.chmod(0o755)
    os.environ["PATH"] = f"{FOLDER.absolute()}{os.pathsep}{os.environ['PATH']}"
    logger.addFilter(CancelledJobs(workflow.dag))
    threading.Thread(target=Watch(logger.warning).run, daemon=True).start()


def living_jobs(names: set[str]) -> dict[str, str]:
    if shutil.which("squeue") is None:
        return {}
    command = ["squeue", "--me", "--noheader", "--format=%i|%k|%Z"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except subprocess.TimeoutExpired:
        # Slurm's controller does not answer. Then it does not accept jobs either.
        return {}
    rules = "|".join(map(re.escape, names))
    # The executor's comment on a job is such as "rule_finetune_wildcards_cola_1". For a group of rules it is such as
    # "rule_corpus_clean_tokenize", where "..." stands for all rules after the fifth.
    comment_pattern = re.compile(rf"rule_((?:{rules})(?:_(?:{rules}|\.\.\.))*)(?:_wildcards_.*)?")
    living = {}
    for line in answer.splitlines():
        number, _, comment_and_folder = line.strip().partition("|")
        comment, _, folder = comment_and_folder.partition("|")
        rule = comment_pattern.fullmatch(comment)
        if rule and os.path.realpath(folder) == os.getcwd() and number != os.environ.get("SLURM_JOB_ID"):
            living[number] = rule[1]
    return living


class CancelledJobs(logging.Filter):
    """Log filter that sets the retries of a job to zero if the user cancelled it with ``scancel``.

    This works because Snakemake logs a failed job before it decides on a retry, in the same thread.
    """

    def __init__(self, dag: Any) -> None:
        super().__init__()
        self._dag = dag

    def filter(self, record: logging.LogRecord) -> bool:
        failed = vars(record)
        event = failed.get("event")
        if event == "group_error":
            failed = failed["job_error_info"][0]
        elif event != "job_error":
            return True
        number = failed["aux"].get("external_jobid")
        if number and is_cancelled(number):
            (job,) = [job for job in self._dag.jobs if self._dag.jobid(job) == failed["jobid"]]
            job = self._dag.get_job_group(job) or job
            job.attempt = job.restart_times + 1
            logger.warning(
                f"Slurm job {number} ({job.name}) was cancelled and is not submitted again in this run. "
                "To run it after all, start the same command again."
            )
        return True


def is_cancelled(number: str) -> bool:
    state = _ask("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T")
    if not state:
        # squeue no longer lists the job, so ask Slurm's accounting.
        state = _ask("sacct", "-X", "--noheader", "--parsable2", f"--jobs={number}", "--format=State")
    return (state or "").startswith("CANCELLED")


def held_jobs() -> dict[str, str] | None:
    """Find this run's jobs that Slurm holds.

    Returns:
        Job number -> sentence about the job. None if Slurm does not answer.
    """
    answer = _ask("squeue", "--me", "--noheader", "--states=PENDING,SPECIAL_EXIT", "--format=%i|%k|%Z|%r")
    if answer is None:
        return None
    held = {}
    # A line is such as "12|rule_finetune_wildcards_cola_1|/home/me/study|JobHeldUser". The second field is the comment
    # that the executor gives a job.
    for line in answer.splitlines():
        fields = re.fullmatch(r"([^|]+)\|rule_(.*)\|([^|]*)\|([^|]*)", line)
        if fields is None:
            continue
        number, comment, folder, reason = fields.groups()
        if os.path.realpath(folder) == os.getcwd() and HELD.search(reason):
            stage = comment.replace("_wildcards_", "@")
            held[number] = f"Slurm holds job {number} ({stage}): {reason}. To let it run: scontrol release {number}"
    return held


class Watch:
    """Reports each held job once, and each outage of Slurm's controller once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._held: set[str] = set()
        self._answered = True

    def look(self, held: dict[str, str] | None) -> None:
        if held is None:
            if self._answered:
                self._say("Slurm's controller does not answer; Snakemake waits for it.")
            self._answered = False
            return
        self._answered = True
        for number in held.keys() - self._held:
            self._say(held[number])
        self._held = set(held)

    def run(self) -> None:
        while True:
            time.sleep(POLL_SECONDS)
            self.look(held_jobs())


def _ask(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
