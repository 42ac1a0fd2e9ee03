"""A forked engine (``tests/forks.py``) is to a test what the program is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from conftest import Project

Register = Callable[["subprocess.Popen[str]"], "subprocess.Popen[str]"]
COMMANDS = ["dvc status", "dvc repro --dry nothing", "dvc no-command", "snakemake -n -F all", "snakemake --no-option"]


@pytest.mark.parametrize("command", COMMANDS)
def test_it_says_and_returns_what_the_program_does(study: Project, command: str) -> None:
    forked = study.run(*command.split(), check=False)
    program = replace(study, programs=True).run(*command.split(), check=False)
    assert forked.returncode == program.returncode
    assert varying(forked.stdout) == varying(program.stdout) != []


def test_it_sees_its_own_folder_environment_and_arguments(study: Project, tmp_path: Path) -> None:
    (study.path / "workflow/Snakefile").write_text(
        "import json, os, sys\n"
        "print(json.dumps([os.getcwd(), dict(os.environ), sys.argv, os.getpid() == os.getpgrp()], sort_keys=True))\n"
        "rule all:\n"
    )
    seen = {}
    for programs in (False, True):
        given = {"GIVEN": "here", "LC_ALL": "C.UTF-8"}  # where no locale is set Python adds one to a program's own
        said, _ = replace(study, programs=programs).start("snakemake", "-n", "all", **given).communicate()
        seen[programs] = re.search(r"^\[.*\]$", said, re.MULTILINE)[0]
    assert seen[False] == seen[True] and '"GIVEN": "here"' in seen[False] and seen[False].endswith("true]")


def test_it_is_killed_with_all_it_started(study: Project, background: Register) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start("snakemake", "--cores", "1", "all", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    job = next(one for one in psutil.Process(process.pid).children(recursive=True) if "toy.pretrain" in one.cmdline())
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == process.poll() == -signal.SIGKILL
    psutil.wait_procs([job], timeout=10)
    assert not job.is_running() and not psutil.pid_exists(process.pid)
    assert "rule pretrain" in process.communicate()[0]


@pytest.mark.parametrize("programs", [False, True])
def test_it_is_told_to_end_as_the_program_is(study: Project, background: Register, programs: bool) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(replace(study, programs=programs).start("dvc", "repro", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    os.killpg(process.pid, signal.SIGTERM)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == -signal.SIGTERM and "Running stage 'pretrain'" in said


def varying(said: str) -> list[str]:
    """Its words, as a program may order them otherwise at each start, without times, names drawn by each run, and the
    folder in which Snakemake was imported.
    """
    drawn = r"\d{4}-\d\d-\d\d[T ][\d:.]+|\[\w+ \w+ +\d+ [\d:]+ \d+\]|[0-9a-f]{8}-[0-9a-f-]{27}|/tmp/[\w-]+"
    return sorted(re.findall(r"\w+", re.sub(rf"{drawn}|Elapsed time.*|Run directory.*", "", said)))
