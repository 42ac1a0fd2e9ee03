"""Both engines, disturbed at random moments, one of the two next (``tests.stress.chaos``)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.disturb import KINDS, Record, Run, forget

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.slow
LATE = ("pretrain_phase2", "finetune", "evaluate", "report")  # `tests.stress.chaos` begins with nothing


@pytest.mark.parametrize("kinds", [["engine"], list(KINDS)], ids=["kills", "all kinds"])
def test_disturbed_project_ends_as_if_undisturbed(finished_study: Project, tmp_path: Path, kinds: list[str]) -> None:
    disturb(finished_study.copy(tmp_path / "study"), LATE, kinds, wait=(2, 15))


@pytest.mark.parametrize("kinds", [["engine"], list(KINDS)], ids=["kills", "all kinds"])
def test_disturbed_toy_ends_as_if_undisturbed(finished: Project, tmp_path: Path, kinds: list[str]) -> None:
    disturb(finished.copy(tmp_path / "study"), ("",), kinds, wait=(0.3, 1.8))


def disturb(study: Project, stages: tuple[str, ...], kinds: list[str], wait: tuple[float, float]) -> None:
    """Forget what these stages have made, and make it again through five faults."""
    here = study.dvc("stage", "list", "--name-only").split()
    undisturbed = Record.of(study.path, here)
    if not (study.path / "pipeline_src").exists():
        undisturbed.files.clear()  # the toy writes outputs under their final names
    forget(study.path, [name for name in here if name.startswith(stages) and name != "code"])
    study.commit()  # `git checkout dvc.lock`, where a kill has cut it off
    chosen = {kind: KINDS[kind] for kind in kinds}
    run = Run(study.path, study.variables({}), undisturbed, random.Random("1"), wait, chosen)
    outcome = run.to_end(5)
    assert outcome.good, outcome
    assert outcome.faults.total() >= 2, outcome
