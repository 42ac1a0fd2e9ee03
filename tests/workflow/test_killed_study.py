"""Both engines, disturbed at random moments, one of the two next (``tests.stress.chaos`` begins with nothing)."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.disturb import KINDS, Record, Run

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.slow
LATE = ("pretrain_phase2", "finetune", "evaluate", "report")
MAX_FAULTS = 5
MIN_FAULTS = 2  # certain even if no fault does harm: see `Run._ended_before_fault`


def test_disturbed_project_ends_with_same_results(finished_study: Project, tmp_path: Path) -> None:
    study = finished_study.copy(tmp_path / "study")
    disturb(study, Record.read(study.path, stages_of(study)), LATE, list(KINDS), max_pause=5)


# The toy's stages do not look at their inputs again when they end.
OF_TOY = [kind for kind in KINDS if kind != "exchange"]


@pytest.mark.parametrize("kinds", [["engine"], OF_TOY], ids=["kills", "all kinds"])
def test_disturbed_toy_study_ends_with_same_results(finished: Project, tmp_path: Path, kinds: list[str]) -> None:
    study = finished.copy(tmp_path / "study")
    undisturbed = Record.read(study.path, stages_of(study))
    undisturbed.files.clear()  # the toy writes outputs under their final names
    disturb(study, undisturbed, ("",), kinds, max_pause=0.5)


def stages_of(study: Project) -> list[str]:
    return study.dvc("stage", "list", "--name-only").split()


def disturb(study: Project, undisturbed: Record, stages: tuple[str, ...], kinds: list[str], max_pause: float) -> None:
    """Forget what the stages whose names begin with ``stages`` have made, and make it again through faults."""
    forget(study.path, [name for name in undisturbed.lock if name.startswith(stages) and name != "code"])
    study.commit()  # `git checkout dvc.lock`, where a kill has cut it off
    draw, chosen = random.Random("1"), {kind: KINDS[kind] for kind in kinds}
    run = Run(study.path, study.variables({}), undisturbed, draw, max_pause, chosen)
    run.to_end(MAX_FAULTS)
    # `pytest -rP` shows it.
    print(run)
    assert run.good, run
    assert run.faults.total() >= MIN_FAULTS, run


def forget(path: Path, stages: list[str]) -> None:
    """Make a finished study one in which these stages never ran: no outputs, records, run-cache or checkpoints."""
    lock = yaml.safe_load((path / "dvc.lock").read_text(encoding="utf-8"))
    for name in stages:
        for out in lock["stages"].pop(name)["outs"]:
            made = path / out["path"]
            shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    (path / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False), encoding="utf-8")
    for folder in (".dvc/cache/runs", ".snakemake", "checkpoints"):
        shutil.rmtree(path / folder, ignore_errors=True)
