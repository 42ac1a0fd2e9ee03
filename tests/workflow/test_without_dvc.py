"""The toy study on a machine without DVC, which recorded it: tool ``without-dvc`` behind Snakemake."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.workflow.conftest import EVERYTHING, FROM_PRETRAIN

if TYPE_CHECKING:
    from conftest import Project

DVC = "python -m pipeline_src without-dvc"
OUTPUTS = ("code", "data", "models", "results")


@pytest.fixture
def without(study: Project, root: Path, tmp_path: Path) -> Project:
    """The toy study where every start and import of DVC fails, in the processes that Snakemake starts too."""
    hidden = tmp_path / "hidden"
    (hidden / "dvc").mkdir(parents=True)
    (hidden / "dvc/__init__.py").write_text("raise ImportError('DVC is not installed')\n")
    program = tmp_path / "bin/dvc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 99\n")
    program.chmod(0o755)
    path = f"{program.parent}:{study.variables({})['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": f"{hidden}:{root}", "DVC": DVC}
    return replace(study, environment=study.environment | environment)


def tool(project: Project, *arguments: str, check: bool = True) -> str:
    return project.run(*DVC.split(), *arguments, check=check).stdout


def outputs(project: Project) -> dict[str, bytes]:
    files = [path for folder in OUTPUTS for path in (project.path / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(project.path)): path.read_bytes() for path in files}


def test_recorded_study_is_fresh_and_restored_without_dvc(without: Project) -> None:
    assert without.run("python", "-c", "import dvc", check=False).returncode
    assert without.run("bash", "-c", "dvc --version", check=False).returncode == 99
    assert json.loads(tool(without, "status")) == {}
    assert "Nothing to be done" in without.snakemake("-n")
    before = outputs(without)
    for folder in OUTPUTS:
        shutil.rmtree(without.path / folder)
    (without.path / "elsewhere").mkdir()
    (without.path / ".dvc/cache/files").rename(without.path / "elsewhere/files")  # as in the folder of a remote
    assert "0 outputs restored" in tool(without, "checkout", check=False)
    assert tool(without, "checkout", "--cache", "elsewhere") == "10 outputs restored\n"
    assert outputs(without) == before
    assert json.loads(tool(without, "status")) == {}


def test_checkout_damaged_cache_file_restores_nothing_of_its_output(without: Project) -> None:
    model = without.path / "models/pretrained/model.txt"
    content = model.read_bytes()
    (cached,) = (path for path in (without.path / ".dvc/cache/files/md5").rglob("*") if _holds(path, content))
    shutil.rmtree(without.path / "models")
    cached.chmod(0o644)
    cached.write_text("bit rot\n")
    assert "models/pretrained: not in .dvc/cache, or damaged there" in tool(without, "checkout", check=False)
    assert not list((without.path / "models").iterdir())


def test_checkout_edited_output_is_left_alone(without: Project) -> None:
    (without.path / "models/pretrained/model.txt").write_text("mine\n")
    assert "models/pretrained: not what was recorded" in tool(without, "checkout", check=False)
    assert (without.path / "models/pretrained/model.txt").read_text() == "mine\n"


def test_status_names_what_is_stale(without: Project) -> None:
    without.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    without.edit("raw/text.txt", "words", "other words")
    (without.path / "results/report.md").unlink()
    assert json.loads(tool(without, "status")) == {
        "shard@a": [{"changed deps": {"raw/text.txt": "modified"}}],
        "shard@b": [{"changed deps": {"raw/text.txt": "modified"}}],
        "pretrain": [{"changed params": {"params.yaml": {"mask_prob": "modified"}}}],
        "report": [{"changed outs": {"results/report.md": "deleted"}}],
    }


def test_changed_study_runs_without_dvc_and_is_fresh_for_dvc(without: Project, study: Project) -> None:
    without.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    without.edit("params.yaml", "seeds: [1]", "seeds: [1, 2]")
    without.snakemake()
    new = {"finetune@cola-2", "finetune@squad2-2"}
    assert sorted(without.ran()) == sorted(FROM_PRETRAIN | new)
    assert "Nothing to be done" in without.snakemake("-n")
    before = outputs(study)
    assert "up to date" in study.dvc("commit", "-f", "-q") + study.dvc("status")
    study.dvc("repro")
    assert study.ran() == [] and outputs(study) == before


def test_study_from_scratch_without_dvc_makes_what_dvc_made(without: Project, study: Project) -> None:
    before, recorded = outputs(without), (without.path / "dvc.lock").read_text()
    for name in (*OUTPUTS, ".snakemake", ".dvc/cache"):
        shutil.rmtree(without.path / name)
    (without.path / "dvc.lock").unlink()
    without.snakemake()
    assert set(without.ran()) == EVERYTHING
    assert outputs(without) == before
    assert sorted((without.path / "dvc.lock").read_text().splitlines()) == sorted(recorded.splitlines())


def test_failed_stage_is_not_recorded(without: Project) -> None:
    without.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    before = (without.path / "dvc.lock").read_text()
    output = without.snakemake(check=False, TOY_FAIL="pretrain")
    assert "told to fail" in output
    assert (without.path / "dvc.lock").read_text() == before


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content
