"""Fixture: a study folder in which a tiny encoder is pretrained in a second."""

from pathlib import Path

import pytest

from pipeline_src.examples.build_examples import run as plan_examples
from tests.unit.pretrain.small import EXAMPLES, make_study


@pytest.fixture
def study(tmp_path, monkeypatch) -> Path:
    """Make tokens, a vocabulary and examples, and make their folder the working directory."""
    monkeypatch.chdir(tmp_path)
    make_study(tmp_path)
    plan_examples(seed=1, examples=EXAMPLES)
    return tmp_path
