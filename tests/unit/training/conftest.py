"""Fixtures: folders in which processes can train."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.pretrain.conftest import study as study
from tests.unit.training.processes import finish, launch, new_study


@pytest.fixture(scope="module")
def new_folder(tmp_path_factory) -> Callable[..., Path]:
    """Return a function that makes a new folder with the inputs of a training."""
    made: dict[str, Path] = {}

    def copied(pairs: str = "nsp") -> Path:
        if pairs not in made:
            made[pairs] = new_study(tmp_path_factory.mktemp("made"), pairs)
        return shutil.copytree(made[pairs], tmp_path_factory.mktemp("copied") / "study")

    return copied


@pytest.fixture(scope="module")
def alone(new_folder) -> Callable[..., Path]:
    """Return a function that gives the folder in which one process trained without interruption."""
    done: dict[str, Path] = {}

    def trained(pairs: str = "nsp", **changes) -> Path:
        key = json.dumps([pairs, changes], sort_keys=True)
        if key not in done:
            done[key] = new_folder(pairs)
            assert finish(launch(done[key], 1, {}, **changes)) == [0]
        return done[key]

    return trained
