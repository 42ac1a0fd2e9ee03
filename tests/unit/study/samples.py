"""The sample study, and variants of it."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = yaml.safe_load((ROOT / "workflow/presets/sample.yaml").read_text(encoding="utf-8"))


def changed_all(changes: dict[str, Any]) -> dict[str, Any]:
    """The sample study with some dotted keys set to values."""
    study = copy.deepcopy(SAMPLE)
    for key, value in copy.deepcopy(changes).items():
        *path, last = key.split(".")
        functools.reduce(dict.__getitem__, path, study)[last] = value
    return study


def changed(key: str, value: Any) -> dict[str, Any]:
    return changed_all({key: value})
