"""Read params.yaml while DVC may be writing an experiment's values into it.

``dvc exp run`` makes an experiment in the workspace, also with ``--queue`` and ``--temp``: for a second params.yaml has
the experiment's values, and files with uncommitted edits are those of the last commit. Then DVC puts all back. A tenth
of a second before, it lists the workspace in a table of its own, and afterwards removes the line.
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
# Seconds; DVC takes one. A killed DVC leaves its line in the table, so a line that is older does not count.
PATIENCE = 60.0
INTERVAL = 0.05

Seen = TypeVar("Seen")


def when_settled(look: Callable[[], Seen], patience: float = PATIENCE) -> Seen:
    """Return what ``look`` returns while DVC makes no experiment in the workspace.

    Args:
        look: reads or writes files. If DVC began meanwhile, it is called again, whatever it returned or raised.
        patience: seconds after which the workspace is taken as it is.
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
    # Returns when DVC's table was last changed (ns, 0 without a table), and whether it lists the workspace.
    # It does not matter whether the process named there lives: it may run on another host.
    try:
        # on NFS, opening asks the server; `stat` alone may tell what was once true
        with TABLE.open(encoding="utf-8") as file:
            changed = os.fstat(file.fileno()).st_mtime_ns
            text = file.read()
    except OSError:
        return 0, False
    is_recent = abs(time.time() - changed / 1e9) < patience
    try:
        return changed, is_recent and WORKSPACE in json.loads(text).get("write", {})
    except (ValueError, AttributeError):
        # DVC is writing it
        return changed, is_recent
