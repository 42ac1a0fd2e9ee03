"""Write curves while training runs, in DVCLive's layout, and for TensorBoard if requested.

`dvclive` (3.49) is not used: a run that continues from a checkpoint must drop the rows that a killed run wrote after
it, whereas `Live(resume=True)` appends them a second time; and it takes 0.8 s to start.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pipeline_src.common.files import atomic_file, write_json
from pipeline_src.common.progress import log

TENSORBOARD = "PIPELINE_TENSORBOARD"  # 1 writes TensorBoard's files too, if `tensorboard` is installed


class Tracker:
    """Numbers by step in ``plots/metrics/<name>.tsv``, and the latest of each in ``metrics.json``.

    ``dvc plots show -x step <folder>/plots/metrics`` draws them, as do other readers of DVCLive's layout. A row is on
    disk when :meth:`row` returns.

    Args:
        folder: such as ``logs/dvclive/phase1``; TensorBoard's is then ``logs/tensorboard/phase1``.
        first_step: steps taken so far. Existing later rows, of a killed run or another one, are dropped, and so are
            incomplete rows.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        self.folder = folder
        self._files: dict[str, IO[str]] = {}
        self._latest: dict[str, Any] = {}
        (folder / "metrics.json").unlink(missing_ok=True)
        for path in sorted((folder / "plots" / "metrics").glob("*.tsv")):
            _drop_rows_after(path, first_step)
        self._tensorboard = _tensorboard(folder.parent.parent / "tensorboard" / folder.name, first_step)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Add ``values`` after ``step`` steps."""
        for name, value in values.items():
            file = self._file(name)
            file.write(f"{step}\t{float(value)!r}\n")
            file.flush()
            if math.isfinite(value):  # JSON has no infinity
                self._latest[name] = float(value)
            if self._tensorboard is not None:
                self._tensorboard.add_scalar(name, value, step)
        write_json(self.folder / "metrics.json", self._latest | {"step": step})
        if self._tensorboard is not None:
            self._tensorboard.flush()

    def _file(self, name: str) -> IO[str]:
        if name not in self._files:
            path = self.folder / "plots" / "metrics" / f"{name}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "a", encoding="utf-8", newline="\n")
            self._files[name] = file
            if not file.tell():
                file.write(f"step\t{path.stem}\n")
        return self._files[name]


def _drop_rows_after(path: Path, step: int) -> None:
    """Keep the complete rows of ``path`` up to ``step``; delete it if there are none."""
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        rows = list(csv.reader((line for line in file if line.endswith("\n")), delimiter="\t"))
    kept = [row for row in rows[1:] if len(row) == 2 and row[0].isdigit() and int(row[0]) <= step]
    if not kept:
        path.unlink()
        return
    with atomic_file(path) as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([rows[0], *kept])


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
