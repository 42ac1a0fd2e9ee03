"""Wait until DVC has restored the workspace, before params.yaml is read.

``dvc exp run --queue`` and ``--temp`` create an experiment in three steps:

1. DVC adds the workspace to a table of its own (``TABLE``).
2. For about a second, params.yaml has the experiment's values, and files with uncommitted edits are replaced by their
   committed versions.
3. DVC restores all files and removes the workspace from the table.

A stage that reads params.yaml during step 2 would run with the wrong values.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

TABLE = Path(".dvc/tmp/exps/rwlock")
WORKSPACE = "workspace"
# In seconds. DVC needs about one. A killed DVC leaves its line in the table, so a table older than this is ignored.
PATIENCE = 60.0
INTERVAL = 0.05

Seen = TypeVar("Seen")


def when_settled(look: Callable[[], Seen], patience: float = PATIENCE) -> Seen:
    """Call ``look`` at a time when DVC is not creating an experiment in the workspace, and return its result.

    Args:
        look: function that reads files. If DVC starts to create an experiment meanwhile, its result or exception is
            discarded and it is called again.
        patience: seconds after which ``look`` is called in any case.
    """
    deadline = time.monotonic() + patience
    while True:
        is_late = time.monotonic() > deadline
        changed, is_busy = _read_table(patience)
        if is_busy and not is_late:
            time.sleep(INTERVAL)
            continue
        try:
            seen = look()
        except Exception:
            if is_late or _read_table(patience)[0] == changed:
                raise
        else:
            if is_late or _read_table(patience)[0] == changed:
                return seen


def read_settled(path: str | Path) -> str:
    return when_settled(lambda: Path(path).read_text(encoding="utf-8"))


def _read_table(patience: float) -> tuple[int, bool]:
    # Returns (mtime of DVC's table in ns, or 0 without a table; whether the table lists the workspace).
    # It does not check whether the process named in the table is alive, since it may run on another host.
    try:
        # On NFS, opening the file asks the server for its state. `stat` alone may return outdated values.
        with TABLE.open(encoding="utf-8") as file:
            changed = os.fstat(file.fileno()).st_mtime_ns
            text = file.read()
    except OSError:
        return 0, False
    is_recent = abs(time.time() - changed / 1e9) < patience
    try:
        return changed, is_recent and WORKSPACE in json.loads(text).get("write", {})
    except (ValueError, AttributeError):
        # The table is not valid JSON while DVC writes it.
        return changed, is_recent
