"""Cache of features on disk, memory-mapped, so that each task file is tokenised once for all seeds and learning rates.

A cache entry is the folder ``data/features/<task>/<key>/``. The key is a hash of everything that determines the
features. Entries are not outputs of a stage and may be deleted at any time. If this process may not access an entry of
another user, the features are made without the cache.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import checksum, read_json, write_json
from pipeline_src.base.names import check_file_name
from pipeline_src.base.paths import FEATURES
from pipeline_src.base.progress import log
from pipeline_src.engine.dependencies import CHECKS
from pipeline_src.engine.fingerprint import fingerprint
from pipeline_src.tasks.features import Features, RankingFeatures, SpanFeatures, TokenFeatures, WindowFeatures

ABOUT = "about.json"
# Number of a task's newest cache entries that are kept, in addition to the one in use.
MAX_ENTRIES = 24
LAYOUTS: dict[str, type[Features]] = {
    layout.__name__: layout for layout in (Features, RankingFeatures, SpanFeatures, TokenFeatures, WindowFeatures)
}
# Module whose code, with everything that it imports, makes the features.
CODE = "pipeline_src.tasks.kinds"


def cached(task: str, key: dict[str, Any], make: Callable[[Counter[str]], Features]) -> Features:
    """Return a task's features from the cache. If they are not cached, make and cache them.

    Args:
        key: JSON values that determine the features, such as checksums. A fingerprint of the code is added to them.
        make: function that makes the features. It counts dropped rows in its argument, which is then added to the
            ``counts`` of the features.
    """
    identity = json.dumps([key, fingerprint(CODE)], sort_keys=True)
    folder = FEATURES / task / hashlib.sha256(identity.encode()).hexdigest()[:16]
    if not _is_complete(folder):
        shutil.rmtree(folder, ignore_errors=True)
        dropped: Counter[str] = Counter()
        features = make(dropped)
        features = replace(features, counts=dict(Counter(features.counts) + dropped))
        try:
            _write(folder, features)
            _remove_old(folder)
        except PermissionError as error:
            log.info(
                "%s: %s; features of %s are made without the cache", error.filename or folder, error.strerror, task
            )
            return features
    content = read_json(folder / ABOUT)
    layout = LAYOUTS[content.pop("layout")]
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in content.pop("sums")}
    return layout(**arrays, **content)


def _write(folder: Path, features: Features) -> None:
    # If two processes write the same entry, the first to finish wins. Raises PermissionError if another user has an
    # entry in this place that this process may neither read nor remove.
    CHECKS.before_saving()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Not `tempfile.mkdtemp`, whose folders only their owner can read. This folder gets the umask's permissions.
    partial = folder.with_name(f".{uuid4().hex}")
    partial.mkdir()
    content: dict[str, Any] = {"layout": type(features).__name__, "sums": {}}
    try:
        for field in fields(features):
            value = getattr(features, field.name)
            if isinstance(value, np.ndarray):
                np.save(partial / f"{field.name}.npy", value)
                content["sums"][field.name] = checksum(partial / f"{field.name}.npy")
            else:
                content[field.name] = value
        write_json(partial / ABOUT, content)
        os.rename(partial, folder)
    except OSError as error:
        # This is no error if another process has finished the same entry in the meantime.
        if not _is_complete(folder):
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder)) from error
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_old(folder: Path) -> None:
    entries = [path for path in folder.parent.iterdir() if path.is_dir() and path != folder]
    newest_first = sorted(entries, key=lambda path: path.stat().st_mtime, reverse=True)
    for old in newest_first[MAX_ENTRIES:]:
        shutil.rmtree(old, ignore_errors=True)


def _is_complete(folder: Path) -> bool:
    try:
        sums = read_json(folder / ABOUT)["sums"]
        return all(checksum(folder / check_file_name(f"{name}.npy")) == value for name, value in sums.items())
    except (PipelineError, OSError, AttributeError, KeyError, TypeError, ValueError):
        return False
