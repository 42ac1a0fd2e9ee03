"""Tool ``verify``: check saved models against the ledger of their training, and by replaying their last steps.

The ledger in ``results/pretrain/PHASE.json`` has the parameters, data, code and machine of a phase, and the size and
sha256 of every file of every model that the phase saved. A step depends only on its number and the model before it. So
replaying the steps from one saved model must give the next with the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json
from pipeline_src.base.paths import DEFAULT_MODEL, EXAMPLES, PRETRAIN_RESULTS, PRETRAINED, TOKENS, VOCABULARY
from pipeline_src.base.progress import log
from pipeline_src.base.registry import member_module
from pipeline_src.engine.dvc_lock import hashes, parse_entry, read_entry_text
from pipeline_src.engine.fingerprint import fingerprint
from pipeline_src.examples.token_store import read_sample_index
from pipeline_src.pretrain.outputs import TRAINING_STATE, save_models
from pipeline_src.pretrain.phases import Phase, StepRange
from pipeline_src.pretrain.pretrain import (
    CODE,
    checkpoint_identity,
    make_phase_trainer,
    open_training_examples,
    phase_batches,
    phase_capacity,
)
from pipeline_src.study.machine import Machine, load_machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ObjectivesParams, PretrainParams
from pipeline_src.study.reading import check_block
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.checkpoint import STEPS, difference, environment, saved_files
from pipeline_src.training.distributed import Distributed, single_process

OK, MISMATCH, TRUNCATED, MODIFIED = "ok", "mismatch", "truncated", "modified"
STEP = re.compile(r"(?:steps/|step-)(\d+)$")  # at the end of a folder's path
FILES = {str: {str: {"bytes": int, "sha256": str}}}
IDENTITY = {"seed": int, "mask_prob": float, "model": dict, "pretrain": {"objective": str}, "objective": dict}
LEDGER = {"ledger": {"identity": IDENTITY, "machine": dict, "files": FILES}}
NOT_MACHINE = ("torch", "processes", "device", "mixed")  # keys of an environment that machine.yaml does not set


class Result(NamedTuple):
    """Result for a model; ``kind`` is OK, MISMATCH (it is another model), TRUNCATED or MODIFIED."""

    kind: str
    why: str


@dataclass(frozen=True)
class Ledger:
    """The ledger of a phase.

    Attributes:
        identity, machine: see ``training.checkpoint.Checkpointer``; ``machine`` also has ``mixed``.
        files: step of a saved model -> path -> size and sha256 of the file.
    """

    phase: Phase
    identity: Mapping[str, Any]
    machine: Mapping[str, Any]
    files: Mapping[int, Mapping[str, Mapping[str, Any]]]

    def folder(self, step: int) -> Path:
        """Return the folder of the model saved after a step."""
        folder = PRETRAINED / self.phase.name
        return folder if step == self.phase.last else folder / STEPS / str(step)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments."""
    parser.add_argument(
        "models",
        nargs="*",
        type=Path,
        default=[DEFAULT_MODEL],
        metavar="MODEL",
        help=f"folders of models that this study saved, or copies of them (default {DEFAULT_MODEL})",
    )
    parser.add_argument("--step", type=int, help="steps that a copy has taken, if its path does not end in them")


def main(arguments: argparse.Namespace) -> int:
    """Print a line for each model; the exit status is 2 if a model is not OK."""
    ledgers, status = read_ledgers(), 0
    for folder in arguments.models:
        kind, why = verify(folder, ledgers, arguments.step)
        print(f"{folder}: {kind}: {why}", flush=True)
        status = status if kind == OK else 2
    return status


def read_ledgers() -> list[Ledger]:
    """Return the ledgers of the phases that have run, in the order of phases."""
    paths = sorted(PRETRAIN_RESULTS.glob("phase*.json"))
    if not paths:
        raise PipelineError("no ledger of a training", PRETRAIN_RESULTS, hint="run the study, or `dvc pull` it")
    return [_read_ledger(path) for path in paths]


def _read_ledger(path: Path) -> Ledger:
    ledger = read_json(path, LEDGER)["ledger"]
    identity, machine = ledger["identity"], ledger["machine"]
    settings = {key: value for key, value in machine.items() if key not in NOT_MACHINE}
    shared = {key: settings.pop(key) for key in Machine.model_fields if key in settings}
    here = load_machine()
    if shared.get("portable", False) != here.portable:  # the code paths were chosen when this process started
        hint = f"set portable: {str(not here.portable).lower()} in machine.yaml"
        raise PipelineError("trained with another setting of machine.yaml", "portable", where=path, hint=hint)
    phase = Phase(
        path.stem,
        identity["seed"],
        identity["mask_prob"],
        check_block(ModelParams, identity["model"], path),
        check_block(PretrainParams, identity["pretrain"], path),
        check_block(Machine, {**shared, "device": here.device, "pretrain": settings}, path),
        check_block(ObjectivesParams, {identity["pretrain"]["objective"]: identity["objective"]}, path),
    )
    return Ledger(phase, identity, machine, {int(step): files for step, files in ledger["files"].items()})


def verify(folder: Path, ledgers: Sequence[Ledger], step: int | None = None) -> Result:
    """Verify that ``folder`` has the model of ``step``, by default the number at the end of its path."""
    if not folder.is_dir():
        raise PipelineError("no model here", folder, hint="give the folder of a model that this study saved")
    if step is None:
        step = _step_of(folder, ledgers)
    for ledger in ledgers:
        if step in ledger.files:
            return compare_files(folder, step, ledgers) or _compare_with_replay(folder, step, ledger, ledgers)
    steps = [str(saved) for ledger in ledgers for saved in sorted(ledger.files)]
    hint = f"it has those of {', '.join(steps)}"
    raise PipelineError("the ledger has no model of that step", step, where=PRETRAIN_RESULTS, hint=hint)


def _step_of(folder: Path, ledgers: Sequence[Ledger]) -> int:
    """Return the step at the end of a path, as in steps/200, or the last one of the phase that it is named for."""
    if match := STEP.search(folder.resolve().as_posix()):
        return int(match[1])
    for ledger in ledgers:
        if folder.name == ledger.phase.name:
            return ledger.phase.last
    raise PipelineError("the path does not say after which step it was saved", folder, hint="give --step N")


def compare_files(folder: Path, step: int, ledgers: Sequence[Ledger]) -> Result | None:
    """Return the first mismatch of a model's files with the ledger, or None; the training state may be missing."""
    by_step: dict[int, Mapping[str, Mapping[str, Any]]] = {}
    for ledger in ledgers:
        by_step |= ledger.files
    files = saved_files(folder)
    has_state = (folder / TRAINING_STATE).exists()
    for name, recorded in by_step[step].items():
        saved = files.get(name)
        if saved is None:
            if name.startswith(f"{TRAINING_STATE}/") and not has_state:
                continue
            return Result(TRUNCATED, f"{name} is missing")
        # checked first: the ledger may have been changed with the file
        others = [other for other in by_step if other != step and by_step[other].get(name) == saved]
        if name.endswith(".safetensors") and others:
            return Result(MISMATCH, f"{name} is that of step {others[0]:,}, not {step:,}")
        if saved["bytes"] < recorded["bytes"]:
            return Result(TRUNCATED, f"{name} has {saved['bytes']:,} of {recorded['bytes']:,} bytes")
        if saved != recorded:
            return Result(MODIFIED, f"{name} is not as it was written after step {step:,}")
    return None


def _compare_with_replay(folder: Path, step: int, ledger: Ledger, ledgers: Sequence[Ledger]) -> Result:
    """Replay the steps from the last model before ``step``, and compare the files they write with the folder's."""
    phase = ledger.phase
    torch.set_num_threads(phase.machine.pretrain.threads)
    distributed = single_process(phase.machine.precision, phase.machine.device)
    _check_conditions(ledger, distributed)
    start, first = _nearest_start(step, ledger, ledgers)
    tokenizer = load_tokenizer(VOCABULARY)
    examples = open_training_examples(phase, tokenizer)
    step_range = StepRange(start, first, step)
    trainer = make_phase_trainer(phase, tokenizer, examples.pairs, distributed, step_range=step_range)
    capacity = phase_capacity(phase, examples, tokenizer, trainer.objective.config.attention, distributed)
    trainer.run(phase_batches(phase, examples, first, step, distributed, capacity))
    with TemporaryDirectory() as scratch:
        replayed = Path(scratch, "model")
        save_models(replayed, phase, trainer)
        expected = saved_files(replayed)
    files = saved_files(folder)
    changed = [name for name, content in expected.items() if name in files and files[name] != content]
    steps = f"{step - first:,} steps from step {first:,} taken again write"
    if changed:
        return Result(MODIFIED, f"{steps} another {', '.join(changed)}")
    return Result(OK, f"{steps} the same")


def _check_conditions(ledger: Ledger, distributed: Distributed) -> None:
    """Raise an error unless a replay on this machine, with this code and data, gives the same bits."""
    phase = ledger.phase
    machine = environment(distributed, phase.machine_settings(distributed.device.type)) | {"mixed": False}
    # lists for tuples, as in the file
    here = json.loads(json.dumps({**checkpoint_identity(phase), **machine}))
    del here["code"]
    changes = difference({**ledger.identity, **ledger.machine}, here) or ", ".join(_edited_code(phase.name))
    if changes:
        what = "the steps cannot be taken again under the same conditions"
        hint = "verify in the checkout, and on the kind of machine, where it was trained"
        raise PipelineError(what, changes, where=PRETRAIN_RESULTS, hint=hint)
    tokens = read_json(TOKENS / "manifest.json", {"splits": {"train": {"sha256": str}}})["splits"]["train"]["sha256"]
    index = read_json(EXAMPLES / "manifest.json")[phase.name]["sha256"]["train"]
    samples = read_sample_index(EXAMPLES / phase.name / "train.npy").tobytes()
    same_tokens = hash_file(TOKENS / "train.ids") == tokens
    same_examples = hashlib.sha256(samples).hexdigest() == index
    if not (same_tokens and same_examples):
        raise PipelineError("training data is not as it was written", f"{TOKENS}, {EXAMPLES}", hint="`dvc checkout` it")


def _edited_code(phase: str) -> list[str]:
    """Return the fingerprints of a phase's code that are not as dvc.lock has them; none if it has no such stage."""
    stage = f"pretrain_{phase}" if phase in ("phase1", "phase2") else f"pretrain@{phase}"
    recorded = hashes(parse_entry(read_entry_text(stage)), "deps")
    edited = []
    for path, digest in recorded.items():
        folder, _, name = path.partition("/")
        if folder == "code":
            # "models/bert" is the fingerprint of pipeline_src/model/bert.py
            module = CODE if name == "pretrain" else member_module(*name.split("/"))
            if hashlib.md5(f"{fingerprint(module)}\n".encode()).hexdigest() != digest:
                edited.append(f"code of {name}")
    return edited


def _nearest_start(step: int, ledger: Ledger, ledgers: Sequence[Ledger]) -> tuple[Path | None, int]:
    """Return (folder, step) of the last intact model before ``step``; the folder is None for initial weights."""
    phase = ledger.phase
    candidates: list[tuple[Path | None, int]] = []
    # disentangled embeddings are saved as a sum, which rounds; training of the second phase starts from such sums too
    if ledger.identity["objective"].get("embeddings") != "disentangled":
        for saved in sorted(ledger.files, reverse=True):
            if saved < step:
                candidates.append((ledger.folder(saved), saved))
    candidates.append((phase.start, phase.first))
    for folder, start in candidates:
        if folder is None:
            return None, start
        has_state = (folder / TRAINING_STATE).exists()
        if has_state and compare_files(folder, start, ledgers) is None:
            return folder, start
        log.warning("%s is not as the ledger says: no start for `verify`", folder)
    raise PipelineError("no intact model to start from", phase.start, hint="`dvc checkout` it, and verify it first")
