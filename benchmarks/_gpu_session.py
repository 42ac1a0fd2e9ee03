"""State of a piece of benchmark ``gpu``: its time, its folders, and its file of results."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_src.base.files import write_json

ROOT = Path(__file__).resolve().parents[1]
STOPPED = 75  # a piece's exit status if its time ended before its work: also that of a stage that can go on
RUNNING = "running"  # key of a cell that has begun
COMMIT = "commit"  # file next to the packed study, read where there is no git repository


@dataclass
class Session:
    """The state of one piece, which runs in a separate process.

    A piece has cells. Each is written as soon as it is measured, and one that the file has is never measured again.

    Attributes:
        name: of the piece.
        out: folder of all results and of the study.
        study: folder or archive of the study that is pretrained; None if none travels.
        back: folder of what is taken home.
        rehearsal: on a CPU, with tiny shapes.
        deadline: when the piece is ended, by ``time.monotonic()``.
    """

    name: str
    out: Path
    study: Path | None
    back: Path
    rehearsal: bool
    deadline: float
    content: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.content = read_piece(self.out, self.name) | facts(self.study, self.rehearsal)
        cells = self.content.get("cells", {})
        self.content["cells"] = {name: cell for name, cell in cells.items() if not cell.get(RUNNING)}

    @property
    def cells(self) -> dict[str, Any]:
        """Results by cell."""
        return self.content["cells"]

    def cells_of(self, piece: str) -> dict[str, Any]:
        """Return the results of another piece."""
        return read_piece(self.out, piece).get("cells", {})

    def seconds_left(self) -> float:
        """Return the seconds until the piece is ended."""
        return self.deadline - time.monotonic()

    def cell(self, name: str, measure: Callable[[], Mapping[str, Any]], **labels: str) -> None:
        """Measure a cell unless the file has it; an error is its result too. ``labels`` become part of it.

        The cell is marked before: if the process dies in it, the next one goes on with the cell after.
        """
        if name in self.cells:
            return
        self.cells[name] = {RUNNING: True, **labels}
        self.write()
        try:
            result = dict(measure())
        except Exception as error:
            failure = {"error": f"{type(error).__name__}: {error}"[:1000], "where": traceback.format_exc()[-2000:]}
            self.put(name, labels | failure)
            check_gpu()
        else:
            self.put(name, labels | result)

    def put(self, name: str, result: Mapping[str, Any]) -> None:
        """Write a cell, and print one line of it."""
        self.cells[name] = {**result, "gpu": self.content["gpu"], "rehearsal": self.rehearsal}
        self.write()
        print(f"{self.name}: {name}: {in_one_line(result)}{' (rehearsal)' if self.rehearsal else ''}", flush=True)

    def write(self) -> None:
        """Write the piece's file."""
        write_piece(self.out, self.name, self.content)


def facts(study: Path | None, rehearsal: bool) -> dict[str, Any]:
    """Return what every result names: GPU, versions, commit.

    Raises:
        SystemExit: there is no GPU, and it is no rehearsal.
    """
    import torch

    if not rehearsal and not torch.cuda.is_available():
        raise SystemExit("error: no GPU answers; --rehearse runs everything on a CPU, with tiny shapes")
    return {
        "rehearsal": rehearsal,
        "gpu": None if rehearsal else torch.cuda.get_device_name(0),
        "gpu_memory_gb": None if rehearsal else round(torch.cuda.get_device_properties(0).total_memory / 1e9, 1),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "commit": commit(study),
    }


def commit(study: Path | None) -> str | None:
    """Return the commit of this checkout, ``-dirty`` if files differ from it, else the one packed with a study."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if shutil.which("git"):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    packed = study.parent / COMMIT if study else None
    return packed.read_text().strip() if packed and packed.exists() else None


def check_gpu() -> None:
    """End this process if an error has left its CUDA context unusable: another one goes on."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def in_one_line(result: Mapping[str, Any]) -> str:
    """Return the plain values of a result."""
    plain = {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in result.items()
        if isinstance(value, int | float) or isinstance(value, str) and "\n" not in value
    }
    return ", ".join(f"{key} {value}" for key, value in plain.items())[:300]


def piece_file(out: Path, name: str) -> Path:
    """Return the file of a piece."""
    return out / "pieces" / f"{name}.json"


def read_piece(out: Path, name: str) -> dict[str, Any]:
    """Return the content of a piece's file; empty if it has not begun."""
    path = piece_file(out, name)
    return json.loads(path.read_text()) if path.exists() else {}


def write_piece(out: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write a piece's file."""
    path = piece_file(out, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)
