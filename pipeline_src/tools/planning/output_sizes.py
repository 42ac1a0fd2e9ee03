"""Sizes that are known because the stage ran: from dvc.lock where its parameters are those in force, or from disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

LOCK = Path("dvc.lock")
Sizes = dict[str, int]  # path -> bytes


def recorded_sizes(raw: Mapping[str, Any], lock: Path = LOCK) -> Sizes:
    """Size of every output in ``lock`` that these parameters would make again.

    Code may have changed since; sizes hardly depend on it.

    Args:
        raw: params.yaml as it is written.
        lock: dvc.lock; it is in git, so a fresh clone has sizes too.
    """
    if not lock.exists():
        return {}
    stages = (yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {})
    made_by = {out["path"]: name for name, stage in stages.items() for out in stage.get("outs", [])}
    same: dict[str, bool] = {}

    def holds(name: str) -> bool:
        if name not in same:
            same[name] = True  # a DAG has no way back here
            params = stages[name].get("params", {}).get("params.yaml", {})
            makers = {
                made_by[path] for dep in stages[name].get("deps", []) for path in made_by if overlap(dep["path"], path)
            }
            same[name] = all(_value(raw, key) == value for key, value in params.items()) and all(map(holds, makers))
        return same[name]

    return {
        out["path"]: out["size"]
        for name, stage in stages.items()
        if holds(name)
        for out in stage.get("outs", [])
        if "size" in out
    }


def overlap(path: str, other: str) -> bool:
    """Whether they are one path, or one lies in the other."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def _value(raw: Mapping[str, Any], key: str) -> Any:
    value: Any = raw
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def size_on_disk(path: str | Path) -> int | None:
    """Bytes of a file, or of a folder's files, links followed; None where nothing is."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    if not path.is_dir():
        return None
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            file = Path(folder, name)
            total += file.stat().st_size if file.exists() else 0  # a link may lead nowhere
    return total
