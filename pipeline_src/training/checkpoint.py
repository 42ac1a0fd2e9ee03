"""Checkpoints: all that a training needs to go on, so that one killed at any moment ends as one never stopped.

``checkpoints/<phase>/<fingerprint>/step-<N>/`` holds weights and moments, and ``state.json`` with the identity of the
training, the loop's state, the checksum of the tensors and one of all this. A folder takes its name only when it is
whole; damage that comes later is found by the checksums. Where the data stands and what dropout draws are functions of
seed and step, so need no keeping.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import google_crc32c
from torch import Tensor
from torch.optim import Optimizer

from pipeline_src.common.checksum import checksum
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.common.progress import log
from pipeline_src.models.tensors import write_tensors
from pipeline_src.training.checkpoint_settings import ROOT, minutes
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.identity import difference, fingerprint
from pipeline_src.training.loop import TrainState
from pipeline_src.training.optimiser import MOMENTS
from pipeline_src.training.state import STATE, WEIGHT, Parameters, restore_tensors, tensors_of

TENSORS = "tensors.safetensors"
KINDS = (WEIGHT, *MOMENTS)
NAME = re.compile(r"step-[0-9]{8,}")
OWN_SUM = "checksum_of_the_rest"  # of state.json itself
IN_USE = ".in-use"  # beside the checkpoints of a training; locked while it runs
KEEP = 2  # newest checkpoints of one training; the best by validation loss is kept besides


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds beside weights and moments.

    Attributes:
        state: of the loop.
        compute: what was spent so far, as :class:`pipeline_src.training.compute_tracker.ComputeTracker` keeps it.
    """

    state: TrainState
    compute: dict[str, Any]


class Checkpoints:
    """The checkpoints of one training.

    Args:
        phase: the phase of pretraining; ``ROOT/<phase>`` holds those of all identities.
        identity: parameters, data and code that decide the result; JSON values, nested by key.
        machine: what decides only how sums are rounded; another one is logged, not refused.
        distributed: the processes that train. All of them save and restore; the main one writes.
    """

    def __init__(
        self, phase: str, identity: Mapping[str, Any], machine: Mapping[str, Any], distributed: Distributed
    ) -> None:
        self.distributed = distributed
        self.phase, self.identity = ROOT / phase, json.loads(json.dumps(identity))
        self.machine = json.loads(json.dumps(machine))
        self.folder = self.phase / fingerprint(self.identity)
        self._saved = time.monotonic()
        self._pause = 60 * minutes()
        self._in_use: IO[str] | None = None

    def due(self) -> bool:
        """Whether the last one is older than ``$PIPELINE_CHECKPOINT_MINUTES`` (10 where it is not set)."""
        return time.monotonic() - self._saved >= self._pause

    def save(
        self,
        parameters: Parameters,
        optimiser: Optimizer,
        state: TrainState,
        compute: dict[str, Any],
        validation: float | None,
    ) -> None:
        """Write the checkpoint of ``state.step`` and remove those that are neither among the newest nor the best.

        Args:
            parameters, optimiser, state, compute: as :meth:`restore` gives them back.
            validation: the validation loss, where it was measured after this step; the lowest marks the best.
        """
        tensors = tensors_of(parameters, optimiser, KINDS, keep=self.distributed.is_main)
        if self.distributed.is_main:
            self._write(tensors, state, compute, validation)
        self.distributed.wait_for_all()
        self._saved = time.monotonic()

    def _write(
        self, tensors: dict[str, Tensor], state: TrainState, compute: dict[str, Any], validation: float | None
    ) -> None:
        with atomic_directory(self._path(state.step)) as folder:
            write_tensors(folder / TENSORS, tensors)
            content = {
                "identity": self.identity,
                "machine": self.machine,
                "state": asdict(state),
                "compute": compute,
                "validation": validation,
                "checksum": checksum(folder / TENSORS),
            }
            write_json(folder / STATE, content | {OWN_SUM: _own_sum(content)})
        steps = _steps(self.folder)
        kept = {*steps[-KEEP:], self._best(steps)}
        for step in steps:
            if step not in kept:
                shutil.rmtree(self._path(step))

    def restore(self, parameters: Parameters, optimiser: Optimizer) -> Checkpoint | None:
        """Fill parameters and optimiser from the newest whole checkpoint; None where there is none of this identity.

        A damaged one is passed over with a warning. Checkpoints of another identity are named with what differs.

        Raises:
            PipelineError: a checkpoint in this training's folder is of another identity, the processes do not all see
                the same checkpoint, or the same training runs already.
        """
        if self.distributed.is_main and self._in_use is None:
            self._in_use = _lock(self.folder / IN_USE)
        step, content = self._newest()
        self._agree(step, content)
        if content is None:
            for other in self._others():
                log.info("not used: %s", other)
            return None
        path = self._path(step)
        restore_tensors(path / TENSORS, parameters, optimiser, KINDS, step, f"delete {path}")
        if content["machine"] != self.machine:
            changed = difference(content["machine"], self.machine)
            log.warning("going on under other conditions, so last bits may differ by rounding: %s", changed)
        return Checkpoint(TrainState(**content["state"]), content["compute"])

    def finish(self) -> None:
        """Remove this training's checkpoints, now that its outputs are whole; the best one goes to ``best``."""
        best = self._best(_steps(self.folder))
        if best is not None:
            shutil.rmtree(self.phase / "best", ignore_errors=True)
            os.replace(self._path(best), self.phase / "best")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _newest(self) -> tuple[int, dict[str, Any] | None]:
        """Step and content of the newest whole checkpoint; None where there is none."""
        for step in reversed(_steps(self.folder)):
            try:
                return step, self._check(self._path(step))
            except Damaged as error:
                log.warning("checkpoint of step %d is damaged (%s); going back to the one before", step, error)
        return 0, None

    def _agree(self, step: int, content: Mapping[str, Any] | None) -> None:
        """Fail on all processes where they would go on from different checkpoints, or train different things."""
        mine = (self.folder.name, step, content["checksum"] if content else None)
        seen = self.distributed.gather(mine)
        for rank, theirs in enumerate(seen):
            if theirs != seen[0]:
                named = [f"process {one} step {seen[one][1]:,} of {seen[one][0]}" for one in (0, rank)]
                raise PipelineError(
                    "the processes see different checkpoints", ", ".join(named), where=self.phase,
                    remedy="keep checkpoints on a disk that all machines share (PIPELINE_CHECKPOINTS), and start all "
                    "processes in the same checkout",
                )  # fmt: skip

    def kept_model(self, step: int) -> Path:
        """Where the model of a step of ``keep_steps`` waits for the end of its phase."""
        return self.folder / "kept" / str(step)

    def _best(self, steps: list[int]) -> int | None:
        """The step with the lowest validation loss; None where none was measured."""
        losses = {}
        for step in steps:
            try:
                loss = _read_state(self._path(step))["validation"]
            except Damaged:
                continue
            if loss is not None:
                losses[step] = loss
        return min(losses, key=losses.__getitem__) if losses else None

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _check(self, path: Path) -> dict[str, Any]:
        """What ``state.json`` of a checkpoint says, whose tensors are as written and whose identity is this one."""
        content = _read_state(path)
        try:
            whole = checksum(path / TENSORS) == content["checksum"]
        except OSError as error:
            raise Damaged(str(error).splitlines()[0]) from None
        if not whole:
            raise Damaged("the tensors have another checksum than was written")
        if path != self._path(content["state"]["step"]):
            raise Damaged(f"it is of step {content['state']['step']:,}, by what it says of itself")
        if content["identity"] != self.identity:
            raise PipelineError(
                "a checkpoint of other parameters", difference(content["identity"], self.identity), where=path,
                remedy=f"delete {path}, or set the parameters as they were",
            )  # fmt: skip
        return content

    def _others(self) -> Iterator[str]:
        """Checkpoints of other identities, each with what differs."""
        for folder in sorted(self.phase.glob("*")):
            steps = _steps(folder)
            if folder != self.folder and steps:
                try:
                    identity = _read_state(folder / f"step-{steps[-1]:08d}")["identity"]
                    differs = difference(identity, self.identity)
                except Damaged:
                    differs = "damaged, or of an older version"
                yield f"{folder}, step {steps[-1]:,}: {differs} (delete it if that training is not to go on)"


class Damaged(Exception):
    """A checkpoint is not as it was written."""


def _read_state(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself.

    Raises:
        Damaged: it cannot be read, or is not as it was written.
    """
    try:
        content = read_json(path / STATE)
    except (PipelineError, OSError) as error:
        raise Damaged(str(error).splitlines()[0]) from None
    if not isinstance(content, dict) or content.pop(OWN_SUM, None) != _own_sum(content):
        raise Damaged(f"{STATE} has another checksum than was written")
    return content


def _own_sum(content: Any) -> int:
    """CRC-32C of JSON values, whatever the layout of their file."""
    return int(google_crc32c.value(json.dumps(content, sort_keys=True).encode()))


def _steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, ascending; copies under other names are none."""
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*") if NAME.fullmatch(path.name))


def _lock(path: Path) -> IO[str]:
    """An open file that is locked until it is closed, or its process ends however it does.

    Raises:
        PipelineError: another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # held as long as the training
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise PipelineError(
            "the same training runs already",
            path.parent,
            remedy="wait for it, or stop it; this one would go on from it",
        ) from None
    except OSError as error:  # a disk without locks
        log.warning("%s cannot be locked (%s): start this training only once", path.parent, error.strerror)
    return file
