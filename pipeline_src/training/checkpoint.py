"""Checkpoints: all that a training needs to go on, so that one killed at any moment ends as one never stopped.

``checkpoints/<phase>/<fingerprint>/step-<N>/`` holds weights and moments, and ``state.json`` with the settings, the
loop's place and the sums of the tensors. A folder takes its name only when it is whole; damage that comes later is
found by the sums. Where the data stands and what dropout draws are functions of seed and step, so need no keeping.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn
from torch.optim import Optimizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.common.paths import CHECKPOINTS
from pipeline_src.common.progress import log
from pipeline_src.training.loop import TrainState
from pipeline_src.training.optimiser import MOMENTS
from pipeline_src.training.state import STATE, WEIGHT, checksum, fill, tensors_of

ROOT = Path(os.environ.get("PIPELINE_CHECKPOINTS", CHECKPOINTS))  # elsewhere, a killed `dvc exp run --temp` goes on
TENSORS = "tensors.safetensors"
KINDS = (WEIGHT, *MOMENTS)
KEEP = 2  # newest checkpoints of one training; the best by validation loss is kept besides
MINUTES = "PIPELINE_CHECKPOINT_MINUTES"  # between checkpoints; decides nothing of the result, so no parameter


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds beside weights and moments.

    Attributes:
        reached: the loop's place.
        cost: what was spent so far, as :class:`pipeline_src.training.compute.CostMeter` keeps it.
    """

    reached: TrainState
    cost: dict[str, Any]


class Checkpoints:
    """The checkpoints of one training.

    Args:
        phase: the phase of pretraining; ``ROOT/<phase>`` holds those of all settings.
        settings: parameters, data and code that decide the result; JSON values, nested by key.
        machine: what decides only how sums are rounded; another one is said, not refused.
    """

    def __init__(self, phase: str, settings: Mapping[str, Any], machine: Mapping[str, Any]) -> None:
        self.phase, self.settings = ROOT / phase, json.loads(json.dumps(settings))
        self.machine = json.loads(json.dumps(machine))
        self.folder = self.phase / fingerprint(self.settings)
        self._saved = time.monotonic()
        self._pause = 60 * _minutes()

    def due(self) -> bool:
        """Whether the last one is older than ``$PIPELINE_CHECKPOINT_MINUTES`` (10 where it is not set)."""
        return time.monotonic() - self._saved >= self._pause

    def save(
        self,
        model: nn.Module,
        optimiser: Optimizer,
        reached: TrainState,
        cost: dict[str, Any],
        validation: float | None,
    ) -> None:
        """Write the checkpoint of ``reached.step`` and remove those that are neither among the newest nor the best.

        Args:
            model, optimiser, reached, cost: as :meth:`restore` gives them back.
            validation: the validation loss, where it was measured after this step; the lowest marks the best.
        """
        with atomic_directory(self._path(reached.step)) as folder:
            save_file(tensors_of(model, optimiser, KINDS), folder / TENSORS)
            state = {
                "settings": self.settings,
                "machine": self.machine,
                "reached": asdict(reached),
                "cost": cost,
                "validation": validation,
                "sum": checksum(folder / TENSORS),
            }
            write_json(folder / STATE, state)
        self._saved = time.monotonic()
        steps = _steps(self.folder)
        kept = {*steps[-KEEP:], self._best(steps)}
        for step in steps:
            if step not in kept:
                shutil.rmtree(self._path(step))

    def restore(self, model: nn.Module, optimiser: Optimizer) -> Checkpoint | None:
        """Fill model and optimiser from the newest whole checkpoint; None where there is none of these settings.

        A damaged one is passed over with a warning. Checkpoints of other settings are named with what differs.

        Raises:
            PipelineError: a checkpoint in this training's folder is of other settings.
        """
        for step in reversed(_steps(self.folder)):
            path = self._path(step)
            try:
                state = self._check(path)
            except Damaged as error:
                log.warning("checkpoint of step %d is damaged (%s); going back to the one before", step, error)
                continue
            fill(path / TENSORS, model, optimiser, KINDS, step, f"delete {path}")
            if state["machine"] != self.machine:
                changed = difference(state["machine"], self.machine)
                log.warning("going on under other conditions, so last bits may differ by rounding: %s", changed)
            return Checkpoint(TrainState(**state["reached"]), state["cost"])
        for other in self._others():
            log.info("not used: %s", other)
        return None

    def finish(self) -> None:
        """Remove this training's checkpoints, now that its outputs are whole; the best one goes to ``best``."""
        best = self._best(_steps(self.folder))
        if best is not None:
            shutil.rmtree(self.phase / "best", ignore_errors=True)
            os.replace(self._path(best), self.phase / "best")
        shutil.rmtree(self.folder, ignore_errors=True)

    def kept_model(self, step: int) -> Path:
        """Where the model of a step of ``keep_steps`` waits for the end of its phase."""
        return self.folder / "kept" / str(step)

    def _best(self, steps: list[int]) -> int | None:
        """The step with the lowest validation loss; None where none was measured."""
        losses = {}
        for step in steps:
            try:
                loss = read_json(self._path(step) / STATE)["validation"]
            except (PipelineError, KeyError):
                continue  # damaged
            if loss is not None:
                losses[step] = loss
        return min(losses, key=losses.__getitem__) if losses else None

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _check(self, path: Path) -> dict[str, Any]:
        """The state of a checkpoint whose tensors are as they were written, and whose settings are these."""
        try:
            state = read_json(path / STATE)
            whole = checksum(path / TENSORS) == state["sum"]
        except (PipelineError, OSError, KeyError) as error:
            raise Damaged(str(error).splitlines()[0]) from None
        if not whole:
            raise Damaged("the tensors have another sum than was written")
        if state["settings"] != self.settings:
            raise PipelineError(
                "a checkpoint of other parameters", difference(state["settings"], self.settings), where=path,
                remedy=f"delete {path}, or set the parameters as they were",
            )  # fmt: skip
        return state

    def _others(self) -> Iterator[str]:
        """Checkpoints of other settings, each with what differs."""
        for folder in sorted(self.phase.glob("*")):
            steps = _steps(folder)
            if folder != self.folder and steps:
                state = folder / f"step-{steps[-1]:08d}" / STATE
                differs = difference(read_json(state)["settings"], self.settings) if state.exists() else "damaged"
                yield f"{folder}, step {steps[-1]:,}: {differs} (delete it if that training is not to go on)"


class Damaged(Exception):
    """A checkpoint is not as it was written."""


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Twelve characters that stand for the settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two settings: ``pretrain.batch 32 there, 64 here``."""
    one, two = dict(_flat(there)), dict(_flat(here))
    return "; ".join(
        f"{name} {one.get(name, 'not set')} there, {two.get(name, 'not set')} here"
        for name in sorted({*one, *two})
        if one.get(name, "not set") != two.get(name, "not set")
    )


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, ascending."""
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))


def _minutes() -> float:
    wanted = os.environ.get(MINUTES, "10")
    try:
        minutes = float(wanted)
    except ValueError:
        minutes = -1
    if minutes < 0:
        raise PipelineError("not a number of minutes", wanted, where=f"${MINUTES}", remedy="set it to 0 or more")
    return minutes
