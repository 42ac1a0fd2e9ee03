"""The runs of one task's grid: each is kept when it ends, so that a stage that was killed goes on with the next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.finetuning.recipes import Point

Predictions = Mapping[str, Sequence[Mapping[str, Any]]]  # by score row
RUNS = [{"weights": str, "main": float, **dict.fromkeys(Point._fields, float)}]


class Grid:
    """Runs of one task and restart, and what the best of each kind of weights left.

    ``runs.json`` lists the runs that ended; ``best-<weights>/`` holds the best one's predictions, and its model where
    that is asked for. A run is listed as its point, weights, last training loss, the scores of the task's first row
    and ``main`` among them.

    Args:
        folder: of these settings alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[dict[str, Any]] = (
            read_json(folder / "runs.json", RUNS) if (folder / "runs.json").exists() else []
        )

    def has(self, weights: str, point: Point) -> bool:
        """Whether a run has ended."""
        return any(run["weights"] == weights and _point(run) == point for run in self.runs)

    def best(self, weights: str) -> dict[str, Any]:
        """The run with the highest main metric; of equal ones the first."""
        return max((run for run in self.runs if run["weights"] == weights), key=lambda run: run["main"])

    def best_folder(self, weights: str) -> Path:
        """Where the best run's ``predictions`` and ``model`` are."""
        return self.folder / f"best-{weights}"

    def keep(
        self,
        weights: str,
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
            "weights": weights,
            **point._asdict(),
            "train_loss": loss,
            "dev": dict(scores),
            "main": scores[main],
        }
        earlier = [other["main"] for other in self.runs if other["weights"] == weights]
        if not earlier or run["main"] > max(earlier):
            # Killed between this and the list below, the run is done again and ends the same.
            with atomic_directory(self.best_folder(weights)) as folder:
                write_predictions(folder / "predictions", predictions)
                if save_model:
                    (folder / "model").mkdir()
                    save_model(folder / "model")
        self.runs.append(run)
        write_json(self.folder / "runs.json", self.runs)

    def finish(self) -> None:
        """Remove what was kept, now that the stage's outputs are whole."""
        shutil.rmtree(self.folder, ignore_errors=True)


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
