"""Every border takes a case or refuses it in one error: a few hundred of those that ``tests.stress.fuzz`` makes."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.download import https
from tests.stress import fuzz
from tests.stress.fuzz import BORDERS

CASES = 30  # of each border


@pytest.fixture(autouse=True)
def in_the_root(root, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The borders read the project's own files; a case that hangs is interrupted."""
    monkeypatch.chdir(root)
    monkeypatch.setattr(https, "MAX_WAIT", 0.0)
    before = signal.signal(signal.SIGALRM, fuzz._alarm)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", sorted(BORDERS))
def test_a_case_is_taken_or_refused(name: str) -> None:
    found: Counter[str] = Counter()
    for number in range(CASES):
        outcome, said = fuzz.run_case(BORDERS[name], f"suite {name} {number}")
        assert outcome in ("taken", "refused"), f"--only {name!r} --case 'suite {name} {number}'\n{said}"
        found[outcome] += 1
    assert found.total() == CASES


def test_what_a_border_does_wrong_is_told_apart() -> None:
    def hang(*_: object) -> None:
        signal.raise_signal(signal.SIGALRM)

    def outside(_: object, folder) -> None:
        (folder / "../elsewhere").write_text("x")

    def speak(*_: object) -> None:
        raise PipelineError("bad", "\x1b[1m\ud800", hint="mend it")

    def crash(*_: object) -> None:
        raise KeyError

    outcomes = {border.__name__: fuzz.run_case(border, "1")[0] for border in (hang, outside, speak, crash)}
    assert outcomes == {"hang": "hang", "outside": "outside", "speak": "refused", "crash": "traceback"}
    assert r"\x1b[1m\ud800" in str(PipelineError("bad", "\x1b[1m\ud800", hint="mend it"))
