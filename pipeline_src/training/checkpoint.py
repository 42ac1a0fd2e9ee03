"""Save and restore the training state: checkpoints of a phase, and the state with which the next phase starts.

A killed training resumes from its last checkpoint bit for bit. ``checkpoints/<phase>/<hash of the identity>/step-<N>/``
has two files. ``tensors.safetensors`` holds weights and moments. ``state.json`` holds the training's identity, the
loop's state and two checksums, of the tensors and of ``state.json`` itself, which reveal damage. The position in the
data and the random numbers of dropout are not stored, because they are functions of seed and step.
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
# `dvc exp run --temp` and the workers of DVC's queue run in subfolders of this folder.
EXPERIMENTS = ".dvc/tmp/exps"
WEIGHTS = "model.safetensors"
STATE = "state.json"
OPTIMIZER_TENSORS = "optimizer.safetensors"
TENSORS = "tensors.safetensors"
# In a checkpoint, names of weights start with this.
WEIGHT = "weight"
KINDS = (WEIGHT, *MOMENTS)
NAME = re.compile(r"step-[0-9]{8,}")
# Subfolder of a saved model for the models of ``pretrain.keep_checkpoint_steps``.
STEPS = "steps"
# Key in state.json for the checksum of all its other entries.
STATE_CHECKSUM = "checksum_of_the_rest"
# While a training runs, it holds a lock on this file in its checkpoint folder.
IN_USE = ".in-use"
# Settings of machine.yaml that do not change dropout's masks.
SAME_MASKS = {"portable", "threads", "activation_checkpointing", "sharding"}
# This many of the newest checkpoints are kept, besides the one with the lowest validation loss.
NUM_KEPT = 2
# Name in checkpoints -> parameter.
Parameters = Mapping[str, nn.Parameter]


def checkpoint_root(folder: Path, setting: str | None = None) -> Path:
    # DVC deletes the folder of a stopped experiment. Its checkpoints are therefore kept in the main checkout, where the
    # experiment finds them when it is started again.
    root = Path(setting or CHECKPOINTS)
    main_checkout, separator, _ = str(folder).partition(f"/{EXPERIMENTS}/")
    return Path(main_checkout, root) if separator else root


ROOT = checkpoint_root(Path.cwd(), os.environ.get(FOLDER))


def check_settings() -> None:
    # Check the environment variables for the checkpoints' folder and interval before training starts.
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
            f"checkpoints cannot be written: {reason}",
            ROOT,
            hint=f"set ${FOLDER} to a folder that you may write to, or unset it",
        )


def minutes() -> float:
    return number_of("minutes", MINUTES, 10)


def stored_tensors(
    parameters: Parameters, optimizer: Optimizer, kinds: Iterable[str], keep: bool = True
) -> dict[str, Tensor]:
    """Return ``<kind>.<parameter>`` -> tensor for all parameters.

    All processes must call this, since it gathers sharded tensors to the host, one at a time.

    Args:
        kinds: ``WEIGHT``, names of the optimizer's moments, or both. Moments of untrained parameters are zero.
        keep: whether this process needs the tensors. If False, the result is {}.
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

    ``moments`` is the result of ``stored_tensors``, ``step`` the number of steps so far. ``state.json`` also gets
    checksums of the moments and of the model's weights.
    """
    folder.mkdir()
    write_tensors(folder / OPTIMIZER_TENSORS, moments)
    write_json(folder / STATE, {"step": step, "sums": {name: checksum(path) for name, path in _summed(folder)}})


def _summed(folder: Path) -> Iterator[tuple[str, Path]]:
    yield OPTIMIZER_TENSORS, folder / OPTIMIZER_TENSORS
    # The weights of the model, and of each further model in a subfolder, such as ELECTRA's generator.
    for path in (folder.parent / WEIGHTS, *sorted(folder.parent.glob(f"*/{WEIGHTS}"))):
        yield str(path.relative_to(folder.parent)), path


def saved_files(folder: Path) -> dict[str, dict[str, Any]]:
    # Lists all files of a saved model except its card and the models in ``STEPS``.
    named = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: {"bytes": path.stat().st_size, "sha256": hash_file(path)}
        for name, path in named.items()
        if path.name != CARD and not name.startswith(f"{STEPS}/")
    }


def load_state(folder: Path, parameters: Parameters, optimizer: Optimizer) -> int:
    hint = "run the previous phase again, or `dvc pull` its output"
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
    # Returns, for example, "pretrain.train_batch_size 32 there, 64 here".
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
    """Return the conditions of a training that change its result slightly.

    They are torch's version, the number of processes, the device, and ``settings`` from machine.yaml. They change
    rounding. Most of them also change dropout's masks, as another seed would.
    """
    device = distributed.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    # The part after "+", such as "+cu130", does not matter on a CPU: all builds have the same CPU kernels.
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
    """Save checkpoints of one training, and resume from the newest.

    A checkpoint is saved when the last one is older than ``PIPELINE_CHECKPOINT_MINUTES``, when a stop is requested,
    and after the steps that ``every`` and ``last`` name.

    Args:
        phase: name of the phase. ``ROOT/<phase>`` holds its checkpoints, in a subfolder for each identity.
        identity: settings, data and code that determine the result, as nested JSON values.
        machine: result of ``environment``. Resuming under different conditions is logged and sets ``mixed``.
        every: save after each multiple of this number of steps.
        last: the last step, after which a checkpoint is saved.
        best_by: name of the validation loss that selects the best checkpoint, which is kept.
        keep_best: whether ``finish`` copies the best checkpoint to ``ROOT/<phase>/best``.
        has_dropout: whether the training uses dropout, whose masks depend on ``machine``.
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
        # Convert to JSON types (tuples to lists), so that the values can be compared with those of a checkpoint.
        self.identity = json.loads(json.dumps(identity))
        self.machine = json.loads(json.dumps(machine))
        self.mixed = False
        self.phase = ROOT / phase
        self.folder = self.phase / hash_values(self.identity)
        # (step, validation loss) of the best checkpoint.
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
        # Each process has the sums over its own microbatches.
        sums = self.distributed.gather({name: float(value) for name, value in state.sums.items()})
        if self.distributed.is_main:
            with atomic_directory(self._path(step)) as folder:
                write_tensors(folder / TENSORS, tensors)
                content = {
                    "identity": self.identity,
                    "machine": self.machine,
                    "mixed": self.mixed,
                    "state": asdict(state) | {"sums": sums},
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
        """Find the newest intact checkpoint of this identity, and return whether there is one.

        A damaged checkpoint is skipped with a warning. If no checkpoint is found, those of other identities are logged.
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
        # This checkpoint's best may have been deleted, if a later checkpoint, damaged since, had a lower loss.
        best = content["best"]
        self._best = tuple(best) if best and self._path(best[0]).exists() else None
        state = content["state"]
        trainer.load_state(TrainState(**{**state, "sums": self._own_sums(state["sums"])}))
        if trainer.compute_tracker is not None:
            trainer.compute_tracker.load_state(content["compute"])
        log.info("resuming from the checkpoint of step %d", step)

    def _own_sums(self, sums: list[dict[str, float]]) -> dict[str, float]:
        # `sums`: those of each process that saved the checkpoint.
        processes = self.distributed.world_size
        if len(sums) == processes:
            return sums[self.distributed.rank]
        # With another number of processes, each takes an equal part of the losses. Gradient norms are not parts: all
        # processes have the norm of the whole batch.
        own: dict[str, float] = {}
        for part in sums:
            for name, value in part.items():
                own[name] = own.get(name, 0.0) + value / processes
        if own:
            own["grad_norm"] = sums[0]["grad_norm"]
        return own

    def _warn_of_changes(self, before: Mapping[str, Any]) -> None:
        changed = {name for name, value in self.machine.items() if before.get(name) != value}
        effect = "last bits may differ by rounding"
        if self.has_dropout and changed - SAME_MASKS:
            effect = "dropout may draw other masks from here on, as with another seed"
        log.warning("resuming under other conditions, so %s: %s", effect, difference(before, self.machine))

    def restore_best(self, objective: Objective[Any]) -> int:
        step = self._best[0] if self._best else 0
        try:
            self._check(self._path(step))
        except CorruptCheckpointError as error:
            raise PipelineError(
                "the best checkpoint cannot be read",
                error,
                where=self._path(step),
                hint=f"delete {self.folder} and run the same command: training starts again from step 0",
            ) from None
        with safe_open(self._path(step) / TENSORS, "pt") as stored, torch.no_grad():
            for name, parameter in objective.checkpoint_parameters().items():
                parameter.copy_(stored.get_tensor(f"{WEIGHT}.{name}"))
        return step

    def finish(self, remove: Callable[[Path], None] = remove_folder) -> None:
        """Delete this training's checkpoints by calling ``remove``.

        If ``keep_best`` is set, the best checkpoint is first copied to ``ROOT/<phase>/best``.
        """
        CHECKS.before_finishing()
        if self.keep_best and self._best is not None and self._path(self._best[0]).exists():
            remove_folder(self.phase / "best")
            shutil.copytree(self._path(self._best[0]), self.phase / "best", copy_function=_link)
        # On NFS, a folder with an open file cannot be deleted.
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
                then = "going back to the previous checkpoint" if step > steps[0] else "no earlier checkpoint exists"
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
                    hint="set PIPELINE_CHECKPOINTS to a folder that all machines share, and start all processes in the "
                    "same checkout",
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
            raise CorruptCheckpointError("tensors.safetensors does not match its checksum")
        if path != self._path(content["state"]["step"]):
            raise CorruptCheckpointError(f"its state.json is from step {content['state']['step']:,}")
        if content["identity"] != self.identity:
            raise PipelineError(
                "the checkpoint belongs to a training with other settings, data or code",
                difference(content["identity"], self.identity),
                where=path,
                hint=f"delete {path}, or restore the settings with which it was saved",
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
                    differs = "damaged, or written by an older version"
                yield f"{folder}, step {steps[-1]:,}: {differs} (delete it unless you want to resume that training)"


def _link(source: str, target: str) -> None:
    # Hard-link the file, or copy it if the file system has no hard links.
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
        raise CorruptCheckpointError(f"{STATE} does not match its checksum")
    return content


def _json_checksum(content: Any) -> int:
    # The checksum depends on the values alone, not on white space or the order of keys in the file.
    return int(google_crc32c.value(json.dumps(content, sort_keys=True).encode()))


def _steps(folder: Path) -> list[int]:
    # Folders with other names, such as "step-00000005 (copy)", are ignored.
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*") if NAME.fullmatch(path.name))


def _lock(path: Path) -> IO[str]:
    # The lock is held until the file is closed or the process ends.
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # held as long as the training
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        hint = "wait until the other process ends, or stop it and run the command again, which resumes the training"
        raise PipelineError("the same training runs already", path.parent, hint=hint) from None
    except OSError as error:
        # The file system does not support locks.
        log.warning("%s cannot be locked (%s): start this training only once", path.parent, error.strerror)
    return file
