"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as __main__ sets it; read when torch is imported


# A file runs on one worker from end to end: those that take minutes begin first, the two that mostly wait for Slurm one
# after the other.
LONGEST = [
    *("test_slurm_study.py", "test_real_study.py", "test_two_engines.py", "test_learning.py", "test_slurm.py"),
    *("test_ablations.py", "test_team.py", "test_experiments.py", "test_checkpoint.py", "test_finetune.py"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first; the others stay in their order."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def root() -> Path:
    """Root of the project."""
    return Path(__file__).resolve().parents[1]
