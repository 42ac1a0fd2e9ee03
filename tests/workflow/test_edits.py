"""Files edited while a stage reads them: dvc.lock must never pair them with outputs of the old ones, in both engines.

A stage's process is stopped (SIGSTOP) when it has started, something is edited, and it continues.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc here")]
FINETUNE, CLEAN, PRETRAIN = "finetune@rte-1", "clean@wikipedia", "pretrain_phase1"
BERT, HEADS, TABLE = (
    f"pipeline_src/{path}" for path in ("models/bert.py", "finetuning/heads.py", "corpus/wikipedia/tables/en.yaml")
)
LIBRARY = {"finetune": "/torch/lib/", "clean": "/apache_beam/"}  # mapped after the stage has noted its files
REFUSED_FILE, REFUSED_CODE = "a dependency changed while the stage ran", "the code was edited since this run began"


def append(file: str, text: str = "\n") -> Callable[[Project], None]:
    """Return an edit that adds text to a file, replacing DVC's link to its cache by a file."""

    def edit(project: Project) -> None:
        path = project.path / file
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content + text.encode())

    return edit


def touch(file: str) -> Callable[[Project], None]:
    """Return an edit that leaves a file's bytes as they are, as one that was undone."""
    return lambda project: os.utime(project.path / file)


def check_out_other_data(project: Project) -> None:
    """Put another branch's version of the data in place, as `git checkout other; dvc checkout` does."""
    project.run("git", "checkout", "-q", "other", "--", "dvc.lock")
    project.dvc("checkout", "--force", "data/tasks")
    project.run("git", "checkout", "-q", "main", "--", "dvc.lock")


EDITS: dict[str, tuple[str, Callable[[Project], None], str | None]] = {
    "a task's entry in the catalogue": (FINETUNE, append("catalogue/tasks/rte.yaml", "# more\n"), REFUSED_FILE),
    "the data": (FINETUNE, append("data/tasks/rte/train.tsv"), REFUSED_FILE),
    "the data, put back": (FINETUNE, touch("data/tasks/rte/train.tsv"), REFUSED_FILE),
    "the model folder": (FINETUNE, append("models/pretrained/phase2/config.json"), REFUSED_FILE),
    "the teacher": (FINETUNE, append("catalogue/no-teacher"), REFUSED_FILE),
    "a fingerprint": (FINETUNE, append("code/finetune", "0"), REFUSED_CODE),
    "a member of the family": (FINETUNE, append(BERT, "MORE = 1\n"), REFUSED_CODE),
    "code": (FINETUNE, append(HEADS, "MORE = 1\n"), REFUSED_CODE),
    "code, put back": (FINETUNE, touch(HEADS), REFUSED_CODE),
    "a comment": (FINETUNE, append(HEADS, "# more\n"), None),
    "a table of a language": (CLEAN, append(TABLE, "# more\n"), REFUSED_CODE),
    "another branch's data": (FINETUNE, check_out_other_data, REFUSED_FILE),
    "data in mid-training": (PRETRAIN, append("data/examples/manifest.json"), REFUSED_FILE),
    "code in mid-training": (PRETRAIN, append(BERT, "MORE = 1\n"), None),
}


@pytest.fixture(scope="module")
def done(finished_study: Project) -> Project:
    """A finished study, and a branch whose tasks have other examples."""
    project = finished_study
    project.run("make", "identity")
    project.run("git", "checkout", "-q", "-b", "other")
    project.edit("params.yaml", "seed: 1", "seed: 2")
    project.dvc("repro", "-s", "code", "download_tasks")
    project.commit()
    project.run("git", "checkout", "-q", "main")
    project.dvc("checkout", "--force")
    return project


def recorded(project: Project) -> dict[str, Any]:
    stages: dict[str, Any] = yaml.safe_load((project.path / "dvc.lock").read_text())["stages"]
    return stages


def run_with_edit(project: Project, command: list[str], stage: str, edit: Callable[[Project], None]) -> str:
    """Run a command; edit while the stage's process is stopped: as it imports its libraries, or in mid-training."""
    name, begun = stage.partition("@")[0].partition("_")[0], time.time()
    log = project.path / "logs/pretrain/phase1.log"

    def has_begun(process: psutil.Process) -> bool:
        if name == "pretrain":  # all is imported, and the first steps are taken
            return log.exists() and log.stat().st_mtime > begun and "parameters, " in log.read_text()
        return _has_mapped(process, LIBRARY[name])

    engine = project.start(*command)
    process, deadline = None, time.monotonic() + 240
    while process is None or not has_begun(process):
        assert time.monotonic() < deadline and engine.poll() is None, engine.communicate()[0]
        time.sleep(0.002)
        process = process or next(
            filter(lambda candidate: _is_stage(candidate, project, name), psutil.process_iter()), None
        )
    process.send_signal(signal.SIGSTOP)
    edit(project)
    process.send_signal(signal.SIGCONT)
    output, _ = engine.communicate()
    return output


def _has_mapped(process: psutil.Process, library: str) -> bool:
    with contextlib.suppress(OSError):
        return library in Path(f"/proc/{process.pid}/maps").read_text()
    return False


def _is_stage(process: psutil.Process, project: Project, name: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[1:4] == ["-m", "pipeline_src", name] and process.cwd() == str(project.path)
    return False


@pytest.mark.parametrize("edit", EDITS)
def test_dvc_repro_file_edited_while_stage_runs_is_not_recorded_with_old_outputs(
    done: Project, tmp_path: Path, edit: str
) -> None:
    stage, make, refusal = EDITS[edit]
    project = done.copy(tmp_path / "study")
    before = recorded(project)[stage]
    command = ["dvc", "repro", "--force", "--single-item", stage]
    output = run_with_edit(project, command, stage, make)
    if refusal is None:
        assert recorded(project)[stage]["outs"] == before["outs"] and "error" not in output, output
        return
    assert output.count(refusal) == 1 and "hint: " in output and "Traceback" not in output, output
    assert project.run("git", "diff", "dvc.lock").stdout == ""


@pytest.mark.parametrize("edit", ["the data", "code, put back"])
def test_snakemake_file_edited_while_job_runs_is_not_recorded_with_old_outputs(
    done: Project, tmp_path: Path, edit: str
) -> None:
    stage, make, refusal = EDITS[edit]
    project = done.copy(tmp_path / "study")
    project.edit("params.yaml", "    rte: {}", "    rte: {epochs: 2}")
    before = recorded(project)[stage]
    output = run_with_edit(project, ["snakemake", "--cores", "1", "all"], stage, make)
    assert refusal and refusal in output, output
    assert recorded(project)[stage] == before
    project.snakemake()
    assert recorded(project)[stage] != before and project.nothing_to_do()
