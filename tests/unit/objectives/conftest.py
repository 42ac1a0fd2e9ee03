"""A folder in which a tiny encoder can be pretrained in a second, with a teacher at hand."""

import shutil
from pathlib import Path

import pytest

from pipeline_src.examples.build_examples import run as plan_examples
from tests.unit.pretraining.small import EXAMPLES, make_study, make_teacher


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Tokens, vocabulary and teacher."""
    folder = tmp_path_factory.mktemp("study")
    make_study(folder)
    make_teacher(folder)
    return folder


@pytest.fixture
def study(made, tmp_path, monkeypatch) -> Path:
    """The same and plans of examples, in the working directory."""
    folder = shutil.copytree(made, tmp_path / "study")
    monkeypatch.chdir(folder)
    plan_examples(seed=1, examples=EXAMPLES)
    return folder
