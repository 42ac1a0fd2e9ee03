"""One training step is a short walk through the code, from its batch to its checkpoint."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_walk_of_pretraining_step_is_within_limits(root):
    done = subprocess.run([sys.executable, "-m", "tests.stress.walk"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
