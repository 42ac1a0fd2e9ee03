"""Each border takes or refuses input, without a traceback: a few hundred of the cases of ``tests.stress.fuzz``."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pipeline_src.sources import https
from tests.stress import fuzz
from tests.stress.fuzz import BORDERS

CASES = 30  # of each border


@pytest.fixture(autouse=True)
def project_folder(root, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The borders read the project's own files; a case that hangs is interrupted."""
    monkeypatch.chdir(root)
    monkeypatch.setattr(https, "MAX_WAIT", 0.0)
    before = signal.signal(signal.SIGALRM, fuzz._alarm)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", sorted(BORDERS))
def test_border_damaged_input_is_taken_or_refused(name: str) -> None:
    for number in range(CASES):
        outcome, message = fuzz.run_case(BORDERS[name], f"suite {name} {number}")
        assert outcome in ("taken", "refused"), f"--only {name!r} --case 'suite {name} {number}'\n{message}"
