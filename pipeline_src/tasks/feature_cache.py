"""Features kept on disk and mapped into memory, so that every restart and learning rate shares one tokenisation.

``data/features/<task>/<key>/`` is no stage's output: its key stands for all that decides its bytes, and what lies there
may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.closure import code_checksum
from pipeline_src.common.files import read_json, write_json
from pipeline_src.common.paths import FEATURES
from pipeline_src.tasks.features import Features, TokenFeatures
from pipeline_src.tasks.windows import SpanFeatures

KEPT = 24  # of one task, the newest
LAYOUTS: dict[str, type[Features]] = {layout.__name__: layout for layout in (Features, SpanFeatures, TokenFeatures)}
CODE = "pipeline_src.tasks.handlers"  # the module whose code makes features


def cached(task: str, decides: dict[str, Any], make: Callable[[Counter[str]], Features]) -> Features:
    """Features of one file, made by ``make`` unless they lie here already.

    Args:
        task: name of the task.
        decides: JSON values that decide the features, such as sums of the file and of the tokenizer; the code of this
            package counts besides.
        make: gives the features; it is handed a counter for what reading drops, which is kept with their ``counts``.
    """
    identity = json.dumps([decides, code_checksum(CODE)], sort_keys=True)
    folder = FEATURES / task / hashlib.sha256(identity.encode()).hexdigest()[:16]
    if not (folder / "about.json").exists():
        dropped: Counter[str] = Counter()
        write(folder, make(dropped), dropped)
        others = [path for path in folder.parent.iterdir() if path.is_dir() and path != folder]
        for old in sorted(others, key=lambda path: path.stat().st_mtime)[: max(0, len(others) - KEPT)]:
            shutil.rmtree(old, ignore_errors=True)
    return load(folder)


def write(folder: Path, features: Features, dropped: Counter[str]) -> None:
    """Write features to a folder, whole or not at all; of two processes that do so at once the first one counts."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    about: dict[str, Any] = {"layout": type(features).__name__}
    for field in fields(features):
        value = getattr(features, field.name)
        if isinstance(value, np.ndarray):
            np.save(partial / f"{field.name}.npy", value)
        else:
            about[field.name] = value
    write_json(partial / "about.json", about | {"counts": dict(Counter(features.counts) + dropped)})
    try:
        os.rename(partial, folder)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if not folder.is_dir():
            raise


def load(folder: Path) -> Features:
    """Features of a folder; their arrays are mapped, not read."""
    about = read_json(folder / "about.json")
    layout = LAYOUTS[about.pop("layout")]
    arrays = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
    return layout(**arrays, **about)
