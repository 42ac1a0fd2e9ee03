"""The runs of one task's grid: each is kept when it ends, so that a stage that was killed goes on with the next."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline_src.common.checksum import checksum
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.common.progress import log
from pipeline_src.finetuning.recipes import Point
from pipeline_src.training.identity import fingerprint

Predictions = Mapping[str, Sequence[Mapping[str, Any]]]  # by score row
RUNS = {"runs": [{"weights": str, "main": float, **dict.fromkeys(Point._fields, float)}], "sums": dict}
KEPT_BASELINES = 8  # of one task and restart, the newest


class Grid:
    """Runs of one task, restart and kind of weights, and what the best of them left.

    ``runs.json`` lists the runs that ended, with sums of the list and of the best one's files; ``run-<N>/``, N its
    place in the list, holds that one's predictions, and its model where that is asked for. A run is listed as its
    point, weights, last training loss, the scores of the task's first row and ``main`` among them. A damaged folder is
    emptied with a warning.

    Args:
        folder: of these settings alone.
        weights: where training starts from.
    """

    def __init__(self, folder: Path, weights: str) -> None:
        self.folder, self.weights = folder, weights
        self.runs: list[dict[str, Any]] = []
        if not (folder / "runs.json").exists():
            return
        with suppress(PipelineError):
            found = read_json(folder / "runs.json", RUNS)
            self.runs = found["runs"]
            if self.runs and found["sums"] == self._sums():
                return
        log.warning("%s is not as it was written; its runs are trained again", folder)
        self.runs = []
        shutil.rmtree(folder)

    def has(self, point: Point) -> bool:
        """Whether a run has ended."""
        return any(_point(run) == point for run in self.runs)

    def best(self) -> dict[str, Any]:
        """The run with the highest main metric; of equal ones the first."""
        return max(self.runs, key=lambda run: run["main"])

    @property
    def best_folder(self) -> Path:
        """Where the best run's ``predictions`` and ``model`` are."""
        return self.folder / f"run-{self.runs.index(self.best())}"

    def keep(
        self,
        point: Point,
        loss: float,
        scores: Mapping[str, float],
        main: str,
        predictions: Predictions,
        save_model: Callable[[Path], None] | None,
    ) -> None:
        """Take a run that ended: its scores in any case, its predictions and model where it is the best so far.

        Args:
            main: the metric of ``scores`` that decides.
            save_model: fills an empty folder; None where nobody asks for the model.
        """
        run = {
            "weights": self.weights,
            **point._asdict(),
            "train_loss": loss,
            "dev": dict(scores),
            "main": scores[main],
        }
        before = self.best_folder if self.runs else None
        self.runs.append(run)
        if self.best() is run:
            with atomic_directory(self.best_folder) as folder:
                write_predictions(folder / "predictions", predictions)
                if save_model:
                    (folder / "model").mkdir()
                    save_model(folder / "model")
        # Killed before this, the run is done again and ends the same.
        write_json(self.folder / "runs.json", {"runs": self.runs, "sums": self._sums()})
        if before is not None and before != self.best_folder:
            shutil.rmtree(before)

    def _sums(self) -> dict[str, int | str]:
        files = sorted(path for path in self.best_folder.rglob("*") if path.is_file())
        sums = {str(path.relative_to(self.folder)): checksum(path) for path in files}
        return {"runs": fingerprint({"runs": self.runs}), **sums}

    def finish(self) -> None:
        """Remove what was kept, now that the stage's outputs are whole."""
        shutil.rmtree(self.folder, ignore_errors=True)


class BaselineGrid(Grid):
    """Runs from random weights, which do not depend on pretraining: they stay, for the next encoder of this form.

    A study whose pretraining alone changes, as by ``dvc exp run -S mask_prob=0.2``, thus trains no baseline again.
    """

    def finish(self) -> None:
        """Mark this one as the newest and remove the oldest of its task and restart."""
        os.utime(self.folder)
        oldest_first = sorted(self.folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in oldest_first[:-KEPT_BASELINES]:
            shutil.rmtree(old, ignore_errors=True)


def _point(run: Mapping[str, Any]) -> Point:
    return Point(*(run[name] for name in Point._fields))


def write_predictions(folder: Path, predictions: Predictions) -> None:
    """One file of JSON lines per score row."""
    folder.mkdir(exist_ok=True)
    for row, lines in predictions.items():
        write_lines(folder / f"{row}.jsonl", lines)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Rows as JSON lines."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
