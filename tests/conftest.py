"""What all tests share."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as __main__ sets it; read when torch is imported
# A first call may import half of scipy, and the machine may be busy: time is no property of what is tested.
settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


# What takes longest begins first: workers share out what is left of the others' tests, not of one.
LONGEST = [
    *(
        "test_slurm_study.py",
        "test_two_hosts.py",
        "test_documented_commands.py",
        "test_ablations.py",
        "test_killed_study.py",
    ),
    *("test_real_study.py", "test_members.py", "test_slurm.py", "test_learning.py"),
    *("test_experiments.py", "test_checkpoint.py", "test_two_engines.py", "test_finetune.py", "test_distributed.py"),
    *("test_gpu_rehearsal.py", "test_every_objective.py"),
]
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first; the others stay in their order."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what ``-m`` leaves out, by file."""
    for item in items:
        item.config.stash[LEFT_OUT][item.nodeid.split("::")[0]] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells its count."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker leaves out the same."""
    node.config.stash[LEFT_OUT].update(Counter(node.workeroutput.get("left_out", {})) - node.config.stash[LEFT_OUT])


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line of `make test` names what it left out, and how it is run."""
    left_out = config.stash.get(LEFT_OUT, {})
    if config.getoption("markexpr") == "not slow" and left_out and not hasattr(config, "workerinput"):
        named = ", ".join(f"{name} ({count})" for name, count in sorted(left_out.items()))
        print(
            f"left out, {sum(left_out.values())} tests that take minutes, run by `make test-slow` and .ci/run: {named}"
        )


@pytest.fixture(scope="session")
def root() -> Path:
    """Root of the project."""
    return Path(__file__).resolve().parents[1]
