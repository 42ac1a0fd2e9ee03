"""The stages of this folder run in one process, except where a test sets another number."""

import pytest


@pytest.fixture(autouse=True)
def _one_process(monkeypatch):
    # Starting processes takes longer than the work of these small corpora.
    monkeypatch.setenv("PIPELINE_WORKERS", "1")
