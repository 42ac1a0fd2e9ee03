"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as __main__ sets it; read when torch is imported


@pytest.fixture(scope="session")
def root() -> Path:
    """Root of the project."""
    return Path(__file__).resolve().parents[1]
