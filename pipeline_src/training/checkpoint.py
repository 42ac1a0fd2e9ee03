"""Checkpoints, from which a killed training continues bit for bit, and the state with which the second phase starts.

``checkpoints/<phase>/<hash of the identity>/step-<N>/`` holds weights and moments, and ``state.json`` with the identity
of the training, the loop's state, a checksum of the tensors and a checksum of ``state.json`` itself. A folder gets its
name only when it is complete; the checksums reveal later damage. The position in the data and the random numbers of
dropout are functions of seed and step, so they are not stored.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import google_crc32c
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, checksum, hash_file, read_json, write_json
from pipeline_src.base.names import number_of
from pipeline_src.base.paths import CHECKPOINTS
from pipeline_src.base.progress import log
from pipeline_src.engine.dependencies import CHECKS, remove_folder
from pipeline_src.model.hub import CARD, write_tensors
from pipeline_src.training.distributed import Distributed, distribute_like, full_tensor, is_dtensor
from pipeline_src.training.optimizers import MOMENTS, step_count
from pipeline_src.training.stop import StopRequest
from pipeline_src.training.trainer import Callback, Objective, Requests, Trainer, TrainState

FOLDER = "PIPELINE_CHECKPOINTS"
MINUTES = "PIPELINE_CHECKPOINT_MINUTES"
# Where `dvc exp run --temp` and the queue's workers run.
EXPERIMENTS = ".dvc/tmp/exps"
WEIGHTS = "model.safetensors"
STATE = "state.json"
OPTIMIZER_TENSORS = "optimizer.safetensors"
TENSORS = "tensors.safetensors"
# The prefix of the names of weights in a checkpoint.
WEIGHT = "weight"
KINDS = (WEIGHT, *MOMENTS)
NAME = re.compile(r"step-[0-9]{8,}")
# Folder, in a saved model, of the models of ``keep_checkpoint_steps``.
STEPS = "steps"
# The checksum of state.json itself.
STATE_CHECKSUM = "checksum_of_the_rest"
# File in the folder of a training's checkpoints; locked while the training runs.
IN_USE = ".in-use"
# Settings of machine.yaml with which dropout draws the same random numbers in the same order.
SAME_MASKS = {"portable", "threads", "activation_checkpointing", "sharding"}
# So many of the newest checkpoints are kept, and the best by validation loss.
NUM_KEPT = 2
# Stored name -> parameter.
Parameters = Mapping[str, nn.Parameter]


def checkpoint_root(folder: Path) -> Path:
    # DVC deletes the folder of a stopped experiment. So the experiment's checkpoints are kept in the main checkout,
    # where the same command finds them.
    main_checkout, separator, _ = str(folder).partition(f"/{EXPERIMENTS}/")
    return Path(main_checkout, CHECKPOINTS) if separator else CHECKPOINTS


ROOT = Path(os.environ.get(FOLDER) or checkpoint_root(Path.cwd()))


def check_settings() -> None:
    # Before any work, the environment variables that set where and when checkpoints are saved.
    minutes()
    reason = None
    try:
        ROOT.mkdir(parents=True, exist_ok=True)
        if not os.access(ROOT, os.W_OK | os.X_OK):
            reason = "no permission to write there"
    except OSError as error:
        reason = error.strerror
    if reason:
        raise PipelineError(
            "checkpoints cannot be written",
            ROOT,
            where=reason,
            hint=f"name a folder that you may write in ${FOLDER}, or unset it",
        )


def minutes() -> float:
    return number_of("minutes", MINUTES, 10)


def stored_tensors(
    parameters: Parameters, optimizer: Optimizer, kinds: Iterable[str], keep: bool = True
) -> dict[str, Tensor]:
    """Return ``<kind>.<parameter>`` -> tensor for all parameters.

    Kinds are ``WEIGHT`` and moments. Moments of a parameter that has not been trained yet are zero. DTensors are
    gathered to the host one at a time, so all processes must call this. Only the process with ``keep`` gets the result;
    others get {}.
    """
    tensors = {}
    for name, parameter in parameters.items():
        for kind in kinds:
            tensor = parameter if kind == WEIGHT else optimizer.state[parameter].get(kind, torch.zeros_like(parameter))
            gathered = full_tensor(tensor.detach()).cpu() if is_dtensor(tensor) else tensor.detach()
            if keep:
                tensors[f"{kind}.{name}"] = gathered.contiguous()
    return tensors


def gathered_weights(module: nn.Module, keep: bool) -> dict[str, Tensor]:
    tensors = {}
    for name, tensor in module.state_dict().items():
        gathered = full_tensor(tensor).cpu() if is_dtensor(tensor) else tensor
        if keep:
            tensors[name] = gathered
    return tensors


def restore_tensors(
    path: Path, parameters: Parameters, optimizer: Optimizer, kinds: Iterable[str], step: int, hint: str
) -> None:
    try:
        with safe_open(path, "pt") as stored, torch.no_grad():
            names = set(stored.keys())
            for name, parameter in parameters.items():
                state = optimizer.state[parameter]
                for kind in kinds:
                    full = f"{kind}.{name}"
                    if full not in names or tuple(stored.get_slice(full).get_shape()) != tuple(parameter.shape):
                        raise PipelineError("the training state belongs to another model", full, where=path, hint=hint)
                    target = parameter if kind == WEIGHT else state.setdefault(kind, torch.empty_like(parameter))
                    target.copy_(distribute_like(stored.get_tensor(full), target))
                state["step"] = step_count(optimizer, parameter, step)
    except (FileNotFoundError, SafetensorError, OSError) as error:
        raise PipelineError("no training state to read", error, where=path, hint=hint) from None


def save_state(folder: Path, moments: dict[str, Tensor], step: int) -> None:
    """Write the training state with which the next phase starts.

    It has the moments, from ``stored_tensors``, and the number of steps. ``state.json`` also has checksums of the
    moments and of the model's weights, which identify the state.
    """
    folder.mkdir()
    write_tensors(folder / OPTIMIZER_TENSORS, moments)
    write_json(folder / STATE, {"step": step, "sums": {name: checksum(path) for name, path in _summed(folder)}})


def _summed(folder: Path) -> Iterator[tuple[str, Path]]:
    yield OPTIMIZER_TENSORS, folder / OPTIMIZER_TENSORS
    # The weights of each saved model.
    for path in (folder.parent / WEIGHTS, *sorted(folder.parent.glob(f"*/{WEIGHTS}"))):
        yield str(path.relative_to(folder.parent)), path


def saved_files(folder: Path) -> dict[str, dict[str, Any]]:
    # All files of a saved model, except its card and the models in ``STEPS``.
    named = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: {"bytes": path.stat().st_size, "sha256": hash_file(path)}
        for name, path in named.items()
        if path.name != CARD and not name.startswith(f"{STEPS}/")
    }


def load_state(folder: Path, parameters: Parameters, optimizer: Optimizer) -> int:
    hint = "run the phase before again, or `dvc pull` its output"
    try:
        state = read_json(folder / STATE)
        step = int(state["step"])
        sums = dict(state["sums"])
        actual = {name: checksum(path) for name, path in _summed(folder)}
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise PipelineError("no training state to read", error, where=folder, hint=hint) from None
    if actual != sums:
        damaged = sorted(name for name in actual.keys() | sums.keys() if actual.get(name) != sums.get(name))
        raise PipelineError("the training state fails its checksums", ", ".join(damaged), where=folder, hint=hint)
    restore_tensors(folder / OPTIMIZER_TENSORS, parameters, optimizer, MOMENTS, step, hint)
    return step


def hash_values(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    # "pretrain.train_batch_size 32 there, 64 here"
    before = dict(_flat(there))
    now = dict(_flat(here))
    differences = []
    for name in sorted(before.keys() | now.keys()):
        value_before = before.get(name, "not set")
        value_now = now.get(name, "not set")
        if value_before != value_now:
            differences.append(f"{name} {value_before} there, {value_now} here")
    return "; ".join(differences)


def environment(distributed: Distributed, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the result depends on besides its identity.

    That is torch, processes, device, and ``settings`` of machine.yaml. These change rounding, and with dropout most of
    them change the masks too, as another seed would.
    """
    device = distributed.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    # Builds for CUDA have the same kernels for a CPU.
    version = torch.__version__.partition("+")[0] if device.type == "cpu" else torch.__version__
    return {"torch": version, "processes": distributed.world_size, "device": name, **settings}


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


class Overdue:
    def __init__(self) -> None:
        self.is_agreed = False
        self.saved_at = time.monotonic()
        self._pause = 60 * minutes()

    def __bool__(self) -> bool:
        return time.monotonic() - self.saved_at >= self._pause


class Checkpointer(Callback):
    """Save checkpoints of one training, and continue from the newest.

    It saves when ``Overdue`` or a stop is requested, after every ``every`` steps, and after the last step.

    Args:
        phase: ``ROOT/<phase>`` holds the checkpoints of all identities.
        identity: nested JSON values: the parameters, data and code that determine the result.
        machine: result of ``environment``; if a checkpoint's differs, this is logged and sets the attribute ``mixed``.
        best_by: validation loss whose lowest value marks the best checkpoint, which is not removed.
        keep_best: whether ``finish`` moves the best checkpoint to ``ROOT/<phase>/best``.
        has_dropout: whether the training has dropout, whose masks depend on ``machine``.
    """

    def __init__(
        self,
        phase: str,
        identity: Mapping[str, Any],
        machine: Mapping[str, Any],
        distributed: Distributed,
        stop_request: StopRequest,
        *,
        every: int | None = None,
        last: int | None = None,
        best_by: str | None = None,
        keep_best: bool = False,
        has_dropout: bool = False,
    ) -> None:
        super().__init__([every], at=() if last is None else (last,))
        self.distributed = distributed
        self._overdue = Overdue()
        self.requests = Requests(stop_request, self._overdue)
        self.best_by = best_by
        self.keep_best = keep_best
        self.has_dropout = has_dropout
        # As a checkpoint has them, so that both compare.
        self.identity = json.loads(json.dumps(identity))
        self.machine = json.loads(json.dumps(machine))
        self.mixed = False
        self.phase = ROOT / phase
        self.folder = self.phase / hash_values(self.identity)
        # Step and loss.
        self._best: tuple[int, float] | None = None
        self._resume_from: tuple[int, dict[str, Any]] | None = None
        self._in_use: IO[str] | None = None

    def due(self, step: int) -> bool:
        return super().due(step) or any(request.is_agreed for request in self.requests)

    def after_step(self, trainer: Trainer[Any]) -> None:
        CHECKS.before_saving()
        state = trainer.state
        step = state.step
        loss = trainer.metrics.get(self.best_by or "", math.nan)
        if loss < (self._best[1] if self._best else math.inf):
            self._best = step, loss
        tensors = stored_tensors(
            trainer.objective.checkpoint_parameters(), trainer.optimizer, KINDS, keep=self.distributed.is_main
        )
        if self.distributed.is_main:
            with atomic_directory(self._path(step)) as folder:
                write_tensors(folder / TENSORS, tensors)
                content = {
                    "identity": self.identity,
                    "machine": self.machine,
                    "mixed": self.mixed,
                    "state": asdict(state) | {"sums": {name: float(value) for name, value in state.sums.items()}},
                    "compute": trainer.compute_tracker.state() if trainer.compute_tracker else {},
                    "best": self._best,
                    "checksum": checksum(folder / TENSORS),
                }
                write_json(folder / STATE, content | {STATE_CHECKSUM: _json_checksum(content)})
            steps = _steps(self.folder)
            for old in {*steps[:-NUM_KEPT]} - {self._best[0] if self._best else 0}:
                shutil.rmtree(self._path(old))
        self.distributed.wait_for_all()
        self._overdue.saved_at = time.monotonic()

    def find(self) -> bool:
        """Find the newest intact checkpoint of this identity.

        Returns whether there is one. A damaged checkpoint is skipped with a warning. If none is found, checkpoints of
        other identities are logged.
        """
        if self.distributed.is_main and self._in_use is None:
            self._in_use = _lock(self.folder / IN_USE)
        self._resume_from = self._newest()
        self._agree()
        if self._resume_from is None:
            for description in self._other_trainings():
                log.info("not used: %s", description)
        return self._resume_from is not None

    def restore(self, trainer: Trainer[Any]) -> None:
        assert self._resume_from is not None
        step, content = self._resume_from
        path = self._path(step)
        parameters = trainer.objective.checkpoint_parameters()
        restore_tensors(path / TENSORS, parameters, trainer.optimizer, KINDS, step, f"delete {path}")
        self.mixed = content["mixed"]
        if content["machine"] != self.machine:
            self.mixed = True
            self._warn_of_changes(content["machine"])
        # It is gone if a checkpoint that is now damaged had replaced it as the best.
        best = content["best"]
        self._best = tuple(best) if best and self._path(best[0]).exists() else None
        trainer.load_state(TrainState(**content["state"]))
        if trainer.compute_tracker is not None:
            trainer.compute_tracker.load_state(content["compute"])
        log.info("going on from the checkpoint of step %d", step)

    def _warn_of_changes(self, before: Mapping[str, Any]) -> None:
        changed = {name for name, value in self.machine.items() if before.get(name) != value}
        effect = "last bits may differ by rounding"
        if self.has_dropout and changed - SAME_MASKS:
            effect = "dropout may draw other masks from here on, as with another seed"
        log.warning("going on under other conditions, so %s: %s", effect, difference(before, self.machine))

    def restore_best(self, objective: Objective[Any]) -> int:
        step = self._best[0] if self._best else 0
        try:
            self._check(self._path(step))
        except CorruptCheckpointError as error:
            raise PipelineError(
                "the best checkpoint cannot be read",
                error,
                where=self._path(step),
                hint=f"delete {self.folder}, and start again: this training is repeated",
            ) from None
        with safe_open(self._path(step) / TENSORS, "pt") as stored, torch.no_grad():
            for name, parameter in objective.checkpoint_parameters().items():
                parameter.copy_(stored.get_tensor(f"{WEIGHT}.{name}"))
        return step

    def finish(self, remove: Callable[[Path], None] = remove_folder) -> None:
        """Let ``remove`` delete this training's checkpoints.

        If ``keep_best``, the best one is copied before.
        """
        CHECKS.before_finishing()
        if self.keep_best and self._best is not None and self._path(self._best[0]).exists():
            remove_folder(self.phase / "best")
            shutil.copytree(self._path(self._best[0]), self.phase / "best", copy_function=_link)
        # On NFS, an open file would keep the folder.
        if self._in_use is not None:
            self._in_use.close()
            self._in_use = None
        remove(self.folder)

    def _newest(self) -> tuple[int, dict[str, Any]] | None:
        steps = _steps(self.folder)
        for step in reversed(steps):
            try:
                return step, self._check(self._path(step))
            except CorruptCheckpointError as error:
                then = "going back to the one before" if step > steps[0] else "there is none before it to go back to"
                log.warning("checkpoint of step %d is damaged (%s); %s", step, error, then)
        return None

    def _agree(self) -> None:
        step, content = self._resume_from or (0, {})
        values = self.distributed.gather((self.folder.name, step, content.get("checksum")))
        for rank, value in enumerate(values):
            if value != values[0]:
                names = [f"process {number} step {values[number][1]:,} of {values[number][0]}" for number in (0, rank)]
                raise PipelineError(
                    "the processes see different checkpoints",
                    ", ".join(names),
                    where=self.phase,
                    hint="keep checkpoints on a disk that all machines share (PIPELINE_CHECKPOINTS), and start all "
                    "processes in the same checkout",
                )

    def kept_model(self, step: int) -> Path:
        return self.folder / "kept" / str(step)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _check(self, path: Path) -> dict[str, Any]:
        content = _read_state(path)
        try:
            intact = checksum(path / TENSORS) == content["checksum"]
        except OSError as error:
            raise CorruptCheckpointError(str(error).splitlines()[0]) from None
        if not intact:
            raise CorruptCheckpointError("the tensors have another checksum than was written")
        if path != self._path(content["state"]["step"]):
            raise CorruptCheckpointError(f"it is of step {content['state']['step']:,}, by what it says of itself")
        if content["identity"] != self.identity:
            raise PipelineError(
                "a checkpoint of other parameters",
                difference(content["identity"], self.identity),
                where=path,
                hint=f"delete {path}, or set the parameters as they were",
            )
        return content

    def _other_trainings(self) -> Iterator[str]:
        for folder in sorted(self.phase.glob("*")):
            steps = _steps(folder)
            if folder != self.folder and steps:
                try:
                    identity = _read_state(folder / f"step-{steps[-1]:08d}")["identity"]
                    differs = difference(identity, self.identity)
                except CorruptCheckpointError:
                    differs = "damaged, or of an older version"
                yield f"{folder}, step {steps[-1]:,}: {differs} (delete it if that training is not to go on)"


def _link(source: str, target: str) -> None:
    # File systems without links get a copy.
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class CorruptCheckpointError(Exception):
    pass


def _read_state(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path / STATE)
    except (PipelineError, OSError) as error:
        raise CorruptCheckpointError(str(error).splitlines()[0]) from None
    if not isinstance(content, dict) or content.pop(STATE_CHECKSUM, None) != _json_checksum(content):
        raise CorruptCheckpointError(f"{STATE} has another checksum than was written")
    return content


def _json_checksum(content: Any) -> int:
    # It does not depend on the values' layout in a file.
    return int(google_crc32c.value(json.dumps(content, sort_keys=True).encode()))


def _steps(folder: Path) -> list[int]:
    # Copies under other names do not count.
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*") if NAME.fullmatch(path.name))


def _lock(path: Path) -> IO[str]:
    # Locked until the file is closed or the process ends.
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # held as long as the training
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        hint = "wait for it, or stop it; this one would continue from it"
        raise PipelineError("the same training runs already", path.parent, hint=hint) from None
    except OSError as error:
        # A disk without locks.
        log.warning("%s cannot be locked (%s): start this training only once", path.parent, error.strerror)
    return file
