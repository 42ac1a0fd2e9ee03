"""Make a copy of a study for benchmarks of the engines, which kill processes and delete outputs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SNAKEFILE = """
import sys
sys.path[:0] = ["{bridge}", "{bridge}/.."]
import slurm_jobs
from bridge import RUN, STAMPS, Stages
stages = Stages(workflow.is_main_process, {names})
onstart:
    slurm_jobs.begin(workflow)
    stages.prepare_records()
rule all:
    default_target: True
    input: stages.stamps()
for name in {names}:
    rule:
        name: name.partition("@")[0]
        input: stages.before(name)
        output: touch(STAMPS / name)
        params: stage=name
        shell: RUN + " {{params.stage}}"
"""


@dataclass(frozen=True)
class Timed:
    # CPU seconds include those of child processes.
    output: str
    wall: float
    cpu: float


@dataclass(frozen=True)
class Checkout:
    # The engines must find neither the user's settings nor the user's cache.
    path: Path

    def run(self, *command: str) -> Timed:
        """Run a command to its end.

        Raises:
            RuntimeError: it failed; what it said is the text.
        """
        wall, before = time.monotonic(), os.times()
        done = subprocess.run(
            command, cwd=self.path, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        wall, after = time.monotonic() - wall, os.times()
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return Timed(done.stdout, wall, cpu)

    @property
    def environment(self) -> dict[str, str]:
        # Slurm's programs, which ask for their cluster, are off the path. Bytecode is kept from one benchmark to the
        # next, as in an environment that `make` has compiled.
        folders = [str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep)]
        path = os.pathsep.join(folder for folder in folders if not Path(folder, "scontrol").exists())
        home = {"HOME": str(self.path.parent), "DVC_SITE_CACHE_DIR": str(self.path.parent / "dvc")}
        compiled = Path(tempfile.gettempdir(), "benchmarks-bytecode")
        python = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(compiled)}
        return os.environ | home | python | {"PATH": path, "DVC_NO_ANALYTICS": "1"}


def snakefile(stages: Mapping[str, Mapping[str, object]], bridge: Path = ROOT / "workflow") -> str:
    names = [f"{name}@{{item}}" if {"matrix", "foreach"} & set(stage) else name for name, stage in stages.items()]
    return SNAKEFILE.format(bridge=bridge, names=names)


def check_out(path: Path, preset: str) -> Checkout:
    # The checkout's own files, uncommitted ones included, as a git repository with the preset's study.
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True, capture_output=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, path / name, follow_symlinks=False)
    study = Checkout(path)
    study.run("python", "-m", "pipeline_src", "preset", preset)
    study.run("git", "init", "-q", "-b", "main")
    study.run("git", "config", "user.name", "nobody")
    study.run("git", "config", "user.email", "nobody@localhost")
    study.run("git", "add", "-A")
    study.run("git", "commit", "-qm", "start")
    return study
