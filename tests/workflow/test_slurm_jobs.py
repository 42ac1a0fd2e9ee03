"""What Snakemake's main process says and does about held and cancelled Slurm jobs, with a stand-in for ``squeue``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Listing = Callable[[str], None]


@pytest.fixture(scope="module")
def slurm_jobs(workflow_module: Callable[[str], ModuleType]) -> ModuleType:
    return workflow_module("slurm_jobs")


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """Says what ``squeue`` prints."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()

    def write(lines: str) -> None:
        (tmp_path / "bin/squeue").write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
        (tmp_path / "bin/squeue").chmod(0o755)

    return write


@dataclass
class Job:
    name: str
    number: int
    restart_times: int = 2
    attempt: int = 1


@dataclass
class Dag:
    jobs: list[Job]
    groups: dict[int, Job] = field(default_factory=dict)

    def jobid(self, job: Job) -> int:
        return job.number

    def get_job_group(self, job: Job) -> Job | None:
        return self.groups.get(job.number)


def failure(**fields: Any) -> logging.LogRecord:
    """Return the record that Snakemake logs of a job that failed."""
    return logging.makeLogRecord({"event": "job_error", "jobid": 2, "aux": {"external_jobid": "12"}} | fields)


def retries(job: Job) -> int:
    """Return how many retries Snakemake allows (``JobScheduler._handle_error``)."""
    return job.restart_times - (job.attempt - 1)


@pytest.mark.parametrize(
    ("state", "left"),
    [("CANCELLED", 0), ("CANCELLED by 0", 0), ("TIMEOUT", 2), ("NODE_FAIL", 2), ("FAILED", 2), ("PREEMPTED", 2)],
)
def test_cancelled_job_has_no_retries_left(slurm_jobs: ModuleType, listed: Listing, state: str, left: int) -> None:
    listed(state)
    other, job = Job("finetune", 1), Job("finetune", 2)
    assert slurm_jobs.CancelledJobs(Dag([other, job])).filter(failure())
    assert (retries(job), retries(other)) == (left, 2)


def test_cancelled_group_has_no_retries_left_and_is_named(
    slurm_jobs: ModuleType, listed: Listing, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed("CANCELLED")
    monkeypatch.setattr(slurm_jobs.logger, "propagate", True)
    group = Job("source_clean_download", 9)
    record = failure(event="group_error", aux=None, jobid=None, job_error_info=[vars(failure())])
    slurm_jobs.CancelledJobs(Dag([Job("clean", 2)], {2: group})).filter(record)
    assert retries(group) == 0
    assert "Slurm job 12 (source_clean_download) was cancelled" in caplog.text and "same command" in caplog.text


def test_failed_submission_keeps_its_retries(slurm_jobs: ModuleType, listed: Listing) -> None:
    listed("CANCELLED")
    job = Job("finetune", 2)
    slurm_jobs.CancelledJobs(Dag([job])).filter(failure(aux={}))
    assert retries(job) == 2


def test_cancelled_job_unknown_to_squeue_is_found_in_accounting(slurm_jobs: ModuleType, listed: Listing) -> None:
    listed("CANCELLED by 1000")
    Path("bin/squeue").rename("bin/sacct")
    assert slurm_jobs.is_cancelled("12")


@pytest.mark.parametrize(
    "reason", ["JobHeldUser", "JobHeldAdmin", "launch failed requeued held", "job_requeued_in_held_state"]
)
def test_held_job_is_reported_with_release_command(
    slurm_jobs: ModuleType, listed: Listing, tmp_path: Path, reason: str
) -> None:
    listed(f"12|rule_finetune_wildcards_cola_1|{tmp_path}|{reason}\n13|rule_evaluate|{tmp_path}|Priority")
    (number, sentence), *others = slurm_jobs.held_jobs().items()
    assert number == "12" and not others
    assert "finetune@cola_1" in sentence and reason in sentence and sentence.endswith("scontrol release 12")


def test_held_jobs_of_other_folders_and_workflows_are_not_named(
    slurm_jobs: ModuleType, listed: Listing, tmp_path: Path
) -> None:
    listed(f"12|rule_evaluate|{tmp_path}/other|JobHeldUser\n13|(null)|{tmp_path}|JobHeldUser\n")
    assert slurm_jobs.held_jobs() == {}


def test_held_job_is_reported_once_per_hold(slurm_jobs: ModuleType) -> None:
    said: list[str] = []
    held = {"12": "held"}
    watch = slurm_jobs.Watch(said.append)
    for answer in (held, held, {}, held):
        watch.look(answer)
    assert said == ["held", "held"]


def test_unreachable_controller_is_reported_once(slurm_jobs: ModuleType) -> None:
    said: list[str] = []
    watch = slurm_jobs.Watch(said.append)
    for answer in (None, None, {}, None):
        watch.look(answer)
    assert len(said) == 2 and "does not answer" in said[0]


def test_begin_with_unreachable_controller_ends_run(slurm_jobs: ModuleType, listed: Listing) -> None:
    listed("")
    Path("bin/squeue").rename("bin/sbatch")
    with pytest.raises(SystemExit, match="does not answer"):
        slurm_jobs.begin(SimpleNamespace(non_local_exec=True, dag=None))


def test_begin_of_local_run_changes_nothing(slurm_jobs: ModuleType, listed: Listing) -> None:
    slurm_jobs.begin(SimpleNamespace(non_local_exec=False, dag=None))
    assert not Path(".snakemake").exists()
