"""Two users of one group share a checkout: umask 002, and folders whose group all new files get."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.users import FIRST, GROUP, SECOND, needs_root

if TYPE_CHECKING:
    from conftest import Project


def as_user(number: int) -> list[str]:
    """The beginning of a command of another user, who can read this installation of Python."""
    rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    user = [f"--reuid={number}", f"--regid={GROUP}", "--clear-groups"]
    return ["setpriv", *user, *rights, "bash", "-c", 'umask 002; exec "$@"', "_"]


def share(project: Project) -> None:
    for path in (project.path, *project.path.rglob("*")):
        if not path.is_symlink():
            os.chown(path, FIRST, GROUP)
            path.chmod(0o2775 if path.is_dir() else path.stat().st_mode & 0o777 | 0o660)


@needs_root
@pytest.mark.slow
def test_study_is_continued_by_second_user(study: Project, tmp_path: Path) -> None:
    if not shutil.which("setpriv") or subprocess.run([*as_user(FIRST), "true"], check=False).returncode:
        pytest.skip("no setpriv here")
    share(study)
    homes = {}
    for number in (FIRST, SECOND):
        homes[number] = tmp_path / f"home-{number}"
        homes[number].mkdir()
        os.chown(homes[number], number, GROUP)

    def run(number: int, *command: str) -> str:
        home = str(homes[number])
        git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        return study.run(
            *as_user(number), *command, HOME=home, XDG_CACHE_HOME=f"{home}/.cache", USER=f"user-{number}", **git
        ).stdout

    for number, before, value, command in (
        (FIRST, "0.15", "0.2", ["snakemake", "--cores", "2", "all"]),
        (SECOND, "0.2", "0.25", ["snakemake", "--cores", "2", "all"]),
        (FIRST, "0.25", "0.3", ["dvc", "repro"]),
        (SECOND, "0.3", "0.35", ["dvc", "repro"]),
    ):
        study.edit("params.yaml", f"mask_prob: {before}", f"mask_prob: {value}")
        run(number, *command)
        assert "pretrain" in study.ran()
        # nothing is left to do for the other
        run(FIRST + SECOND - number, "snakemake", "--cores", "2", "all")
        assert study.ran() == []
