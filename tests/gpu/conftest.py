"""Tests that need a GPU. ``CUDA_VISIBLE_DEVICES=0 pytest tests/gpu`` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder if there is no CUDA device."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.skip(reason="tests/gpu needs a CUDA device"))
