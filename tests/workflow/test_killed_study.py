"""The project's own study, killed at random moments with all its jobs, by both engines (``benchmarks.chaos``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import chaos

if TYPE_CHECKING:
    from conftest import Project

LATE = ("pretrain_long", "finetune", "evaluate", "report")  # what is run again; `benchmarks.chaos` begins with nothing


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2"])
def test_a_study_that_is_killed_again_and_again_ends_the_same(
    finished_study: Project, tmp_path: Path, seed: str
) -> None:
    study = finished_study.copy(tmp_path / "study")
    here = study.dvc("stage", "list", "--name-only").split()
    undisturbed = {name: stage for name, stage in chaos.read_lock(study.path).items() if name in here}
    chaos.forget(study.path, [name for name in undisturbed if name.startswith(LATE)])
    outcome = chaos.disturb(study.path, undisturbed, study.variables({}), seed, wait=(2, 15), kills=3)
    assert outcome.good, outcome
    assert any(attempt.killed for attempt in outcome.attempts)
