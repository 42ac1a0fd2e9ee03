"""The remedies of ``tests.disturb``, and which stages it takes for recorded if a kill has cut off dvc.lock."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.disturb import Attempt, Record, Run, read_lock

LOCK = {
    "schema": "2.0",
    "stages": {
        name: {
            "cmd": f"make {name}",
            "deps": [{"path": "params.yaml", "hash": "md5", "md5": "a" * 32, "size": 7}],
            "outs": [{"path": f"data/{name}", "hash": "md5", "md5": "b" * 32, "size": 7}],
        }
        for name in ("clean", "tokenize")
    },
}


def make_run(path: Path) -> Run:
    """A run of a study whose dvc.lock is whole in git."""
    (path / "dvc.lock").write_text(yaml.safe_dump(LOCK, sort_keys=False))
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=path, check=True)
    return Run(path, os.environ, Record(read_lock(path) or {}, {}), random.Random(1), 0.0)


def test_recorded_stages_of_truncated_lock_are_complete_entries(tmp_path: Path) -> None:
    run, lock = make_run(tmp_path), tmp_path / "dvc.lock"
    whole, recorded = lock.read_bytes(), []
    for length in range(len(whole) + 1):
        lock.write_bytes(whole[:length])
        recorded.append(frozenset(run.recorded()))
    assert recorded[-1] == {"clean", "tokenize"} and set(recorded) == {frozenset(), frozenset({"clean"}), recorded[-1]}


@pytest.mark.parametrize("ending", ["", "  t", "  tokenize:\n", "  tokenize:\n    cmd: make\n    deps:\n    - pa"])
def test_remedy_restores_unreadable_dvc_lock(tmp_path: Path, ending: str) -> None:
    run, lock = make_run(tmp_path), tmp_path / "dvc.lock"
    whole = lock.read_text()
    lock.write_text(whole[: whole.index("  tokenize")] + ending if ending else "")
    run._remedy(Attempt("dvc", set(), text="ERROR: './dvc.lock' validation failed."))
    assert (lock.read_text(), run.repaired, run.failed) == (whole, ["dvc.lock"], [])


def test_remedy_waits_once_for_slurm_job(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for _ in range(2):
        run.attempts.append(Attempt("snakemake", set(), text="error: Slurm jobs of another run are active"))
        run._remedy(run.attempts[-1])
    assert (run.repaired, len(run.failed)) == (["waited"], 1)


def test_fill_cache_commits_recorded_stages_missing_in_cache(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dvc").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    (tmp_path / "bin/dvc").chmod(0o755)
    run.environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    (tmp_path / "data").mkdir()
    (tmp_path / "data/clean").touch()
    run._fill_cache(Attempt("dvc", set(), text="ERROR: failed to transfer 'x' - [Errno 28] No space left on device"))
    assert (tmp_path / "called").read_text() == "commit -q -f clean\n"
    assert run.repaired == ["cache"]


def test_remedy_unknown_failure_counts_as_miss(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run._remedy(Attempt("dvc", set(), text="ERROR: './dvc.lock' validation failed."))
    run._remedy(Attempt("snakemake", set(), text="MissingInputException"))
    assert [problem.split(":")[0] for problem in run.failed] == ["dvc", "snakemake"]
