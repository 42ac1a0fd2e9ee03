"""Both engines, killed at random moments with all their jobs, one of the two next (``tests.kills``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import kills

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.slow
LATE = ("pretrain_phase2", "finetune", "evaluate", "report")  # what is run again


@pytest.mark.parametrize("seed", ["1", "2"])
def test_killed_project_ends_as_if_never_killed(finished_study: Project, tmp_path: Path, seed: str) -> None:
    kill_again_and_again(finished_study.copy(tmp_path / "study"), LATE, seed, wait=(2, 15))


@pytest.mark.parametrize("seed", ["1", "2"])
def test_killed_toy_ends_as_if_never_killed(finished: Project, tmp_path: Path, seed: str) -> None:
    kill_again_and_again(finished.copy(tmp_path / "study"), ("",), seed, wait=(0.3, 1.8))


def kill_again_and_again(study: Project, stages: tuple[str, ...], seed: str, wait: tuple[float, float]) -> None:
    """Forget what these stages have made, and make it again through five kills."""
    here = study.dvc("stage", "list", "--name-only").split()
    undisturbed = {name: stage for name, stage in kills.read_lock(study.path).items() if name in here}
    kills.forget(study.path, [name for name in undisturbed if name.startswith(stages) and name != "code"])
    study.commit()  # `git checkout dvc.lock`, where a kill has cut it off
    outcome = kills.disturb(study.path, undisturbed, study.variables({}), seed, wait=wait, kills=5)
    assert outcome.good, outcome
    assert sum(attempt.killed for attempt in outcome.attempts) >= 2, outcome
