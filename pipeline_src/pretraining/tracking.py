"""Write curves while training runs, in DVCLive's layout, and for TensorBoard if requested.

`dvclive` (3.49) is not used. A run that continues from a checkpoint must drop the rows that a killed run wrote after
that checkpoint, but `Live(resume=True)` appends them again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_src.common.files import atomic_file
from pipeline_src.common.progress import log

TENSORBOARD = "PIPELINE_TENSORBOARD"  # 1 writes TensorBoard's files too, if `tensorboard` is installed


class Tracker:
    """Writes (step, value) rows to ``plots/metrics/<name>.tsv``, which ``dvc plots show -x step`` draws.

    Args:
        folder: such as ``logs/dvclive/phase1``; TensorBoard's is then ``logs/tensorboard/phase1``.
        first_step: steps taken so far; rows of later steps, and incomplete rows, are dropped from existing files.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        self._metrics = folder / "plots" / "metrics"
        self._metrics.mkdir(parents=True, exist_ok=True)
        for path in self._metrics.glob("*.tsv"):
            _drop_rows_after(path, first_step)
        self._tensorboard = _tensorboard(folder.parent.parent / "tensorboard" / folder.name, first_step)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            with open(self._metrics / f"{name}.tsv", "a", encoding="utf-8", newline="\n") as file:
                if not file.tell():
                    file.write(f"step\t{name}\n")
                file.write(f"{step}\t{float(value)!r}\n")
            if self._tensorboard is not None:
                self._tensorboard.add_scalar(name, value, step)
        if self._tensorboard is not None:
            self._tensorboard.flush()


def _drop_rows_after(path: Path, step: int) -> None:
    """Keep the complete rows of ``path`` up to ``step``; delete the file if it has no such row."""
    header, *rows = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] or [""]
    rows = [row for row in rows if (match := re.fullmatch(r"(\d+)\t[^\t]*", row)) and int(match[1]) <= step]
    if not rows:
        path.unlink()
        return
    with atomic_file(path) as file:
        file.write("\n".join([header, *rows, ""]))


def _tensorboard(folder: Path, first_step: int) -> Any:
    """Return a TensorBoard writer that hides earlier runs' steps after ``first_step``; None if not requested."""
    if os.environ.get(TENSORBOARD) != "1":
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.warning("%s=1, but the package tensorboard is not installed: no files for it", TENSORBOARD)
        return None
    return SummaryWriter(str(folder), purge_step=first_step + 1)
