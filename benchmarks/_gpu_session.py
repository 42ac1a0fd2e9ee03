"""Results, time limit and processes of the benchmark ``gpu``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.base.files import write_json

ROOT = Path(__file__).resolve().parents[1]
# Time between SIGTERM and SIGKILL, in which a training stage saves a checkpoint.
GRACE_SECONDS = 10.0
# Exit status of a stage that SIGTERM stopped. The same command resumes it.
STOPPED = 75


class TimeOver(Exception):
    # Raised when the time is over. This is no failure, since the same command resumes the benchmark.
    pass


@dataclass(frozen=True)
class Session:
    """A piece of the benchmark: its measurements, called cells, and its time.

    Attributes:
        piece: its name.
        out: folder of ``results.json``, which maps pieces to cells to results.
        rehearsal: on a CPU, with tiny shapes; no figure means anything.
        deadline: when the piece is stopped, by ``time.monotonic()``.
    """

    piece: str
    out: Path
    rehearsal: bool
    deadline: float

    @property
    def study(self) -> Path:
        return self.out / "study"

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def cells(self, piece: str | None = None) -> dict[str, dict[str, Any]]:
        return read_results(self.out).get(piece or self.piece, {})

    def is_measured(self, name: str) -> bool:
        # A cell that failed is not measured.
        return "error" not in self.cells().get(name, {"error": "not measured"})

    def cell(self, name: str, measure: Callable[[], Mapping[str, Any]], **labels: str) -> dict[str, Any]:
        """Return the result of a cell, and measure it if the file does not have it.

        An exception is recorded under the key ``error``, and the cell is measured again by the next call.
        """
        if self.is_measured(name):
            return self.cells()[name]
        try:
            result = dict(measure())
        except TimeOver:
            raise
        except Exception as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        result = {**labels, **result}
        write_results(self.out, {self.piece: self.cells() | {name: result}})
        plain = [f"{key} {value}" for key, value in result.items() if isinstance(value, int | float | str)]
        suffix = " (rehearsal)" if self.rehearsal else ""
        print(f"{self.piece}: {name}: {', '.join(plain)[:300]}{suffix}", flush=True)
        return result

    def run(self, *arguments: str, cwd: Path = ROOT) -> None:
        """Run ``python -m ARGUMENTS`` until it ends or the time is over.

        Raises:
            TimeOver: the time is over, or the process was stopped from outside.
            RuntimeError: it failed; its output is the text.
        """
        if not self.seconds_left:
            raise TimeOver
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path, "PIPELINE_PLAIN_PROGRESS": "1"}
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        # Later processes reuse what the compiler has made in this one.
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(self.out / "compiled" / "inductor")
        if self.rehearsal:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            _, errors = process.communicate(timeout=self.seconds_left)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE_SECONDS)
            process.kill()
            process.communicate()
            raise TimeOver from None
        if process.returncode == STOPPED:
            raise TimeOver
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with status {process.returncode}: {errors[-1500:]}")


def read_results(out: Path) -> dict[str, Any]:
    path = out / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_results(out: Path, changed: Mapping[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "results.json", read_results(out) | dict(changed))
