"""Tool ``verify``: check that saved models are the result of the recorded training.

The ledger in ``results/pretrain/PHASE.json`` lists a phase's settings, data and machine. For each saved model it has
the size and SHA-256 of all files. The tool compares the files with the ledger. Then it replays the training from the
previous saved model. A training step is deterministic, so the replay must give the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
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
from pipeline_src.pretrain import pretrain
from pipeline_src.pretrain.outputs import TRAINING_STATE, save_models
from pipeline_src.pretrain.phases import Phase, StepRange
from pipeline_src.study.machine import load_machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ObjectivesParams, PretrainParams
from pipeline_src.study.reading import check_block
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.checkpoint import STEPS, difference, environment, saved_files
from pipeline_src.training.distributed import Distributed, single_process

# "models/pretrained/phase1/steps/200" and "downloads/step-200" -> 200
STEP = re.compile(r"(?:steps/|step-)(\d+)$")
IDENTITY = {"seed": int, "mask_prob": float, "model": dict, "pretrain": {"objective": str}, "objective": dict}
LEDGER = {"ledger": {"identity": IDENTITY, "machine": dict, "files": {str: {str: {"bytes": int, "sha256": str}}}}}


class Result(NamedTuple):
    is_ok: bool
    message: str


@dataclass(frozen=True)
class Ledger:
    phase: Phase
    # Settings and data of the training.
    identity: Mapping[str, Any]
    machine: Mapping[str, Any]
    # Step of a saved model -> path of a file -> its size and SHA-256.
    files: Mapping[int, Mapping[str, Mapping[str, Any]]]

    @classmethod
    def read(cls, path: Path) -> Ledger:
        ledger = read_json(path, LEDGER)["ledger"]
        identity = ledger["identity"]
        phase = Phase(
            path.stem,
            identity["seed"],
            identity["mask_prob"],
            check_block(ModelParams, identity["model"], path),
            check_block(PretrainParams, identity["pretrain"], path),
            load_machine(),
            check_block(ObjectivesParams, {identity["pretrain"]["objective"]: identity["objective"]}, path),
        )
        return cls(phase, identity, ledger["machine"], {int(step): files for step, files in ledger["files"].items()})


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    ledgers = read_ledgers()
    results = []
    for folder in arguments.models:
        result = verify(folder, ledgers, arguments.step)
        print(f"{folder}: {'ok' if result.is_ok else 'differs'}: {result.message}", flush=True)
        results.append(result.is_ok)
    return 0 if all(results) else 2


def read_ledgers() -> list[Ledger]:
    paths = sorted(PRETRAIN_RESULTS.glob("phase*.json"))
    if not paths:
        hint = "run pretraining, or get its results with `dvc pull`"
        raise PipelineError("no training ledger found", PRETRAIN_RESULTS, hint=hint)
    return [Ledger.read(path) for path in paths]


def verify(folder: Path, ledgers: Sequence[Ledger], step: int | None = None) -> Result:
    """Verify the saved model in ``folder``.

    Args:
        step: training step after which the model was saved. None: the number at the end of the path.
    """
    if not folder.is_dir():
        raise PipelineError("no such model folder", folder, hint="give the folder of a model that this study saved")
    if step is None:
        step = _step_of(folder, ledgers)
    for ledger in ledgers:
        if step in ledger.files:
            changed = find_changed_file(folder, ledger.files[step])
            return Result(False, changed) if changed else _compare_with_replay(folder, step, ledger)
    steps = itertools.chain.from_iterable(sorted(ledger.files) for ledger in ledgers)
    hint = f"give --step one of {', '.join(map(str, steps))}"
    raise PipelineError("the ledger has no model of that step", step, where=PRETRAIN_RESULTS, hint=hint)


def _step_of(folder: Path, ledgers: Sequence[Ledger]) -> int:
    match = STEP.search(folder.resolve().as_posix())
    if match:
        return int(match[1])
    for ledger in ledgers:
        if folder.name == ledger.phase.name:
            return ledger.phase.last
    raise PipelineError("the path does not end in a step number", folder, hint="give --step N")


def find_changed_file(folder: Path, recorded: Mapping[str, Mapping[str, Any]]) -> str | None:
    # Returns a sentence about the first file that differs from the ledger, or None. The optimizer state may be missing,
    # since copies of a model usually leave it out.
    files = saved_files(folder)
    has_state = (folder / TRAINING_STATE).exists()
    for name, expected in recorded.items():
        saved = files.get(name)
        if saved is None:
            if has_state or not name.startswith(f"{TRAINING_STATE}/"):
                return f"{name} is missing"
        elif saved["bytes"] != expected["bytes"]:
            return f"{name} has {saved['bytes']:,} bytes, not {expected['bytes']:,} as in the ledger"
        elif saved != expected:
            return f"{name} has another SHA-256 than in the ledger"
    return None


def _compare_with_replay(folder: Path, step: int, ledger: Ledger) -> Result:
    phase = ledger.phase
    torch.set_num_threads(phase.machine.pretrain.threads)
    distributed = single_process(phase.machine.precision, phase.machine.device)
    _check_conditions(ledger, distributed)
    start, first = _nearest_start(step, ledger)
    tokenizer = load_tokenizer(VOCABULARY)
    examples = pretrain.open_training_examples(phase, tokenizer)
    step_range = StepRange(start, first, step)
    trainer = pretrain.make_phase_trainer(phase, tokenizer, examples.pairs, distributed, step_range=step_range)
    attention = trainer.objective.config.attention
    capacity = pretrain.phase_capacity(phase, examples, tokenizer, attention, distributed)
    trainer.run(pretrain.phase_batches(phase, examples, first, step, distributed, capacity))
    with TemporaryDirectory() as scratch:
        replayed = Path(scratch, "model")
        save_models(replayed, phase, trainer)
        expected = saved_files(replayed)
    files = saved_files(folder)
    changed = [name for name, content in expected.items() if name in files and files[name] != content]
    steps = f"{step - first:,} steps replayed from step {first:,} give"
    if changed:
        return Result(False, f"{steps} another {', '.join(changed)}")
    return Result(True, f"{steps} the same files")


def _check_conditions(ledger: Ledger, distributed: Distributed) -> None:
    phase = ledger.phase
    machine = environment(distributed, phase.machine_settings(distributed.device.type)) | {"mixed": False}
    # The round trip through JSON turns tuples into lists, as in the ledger.
    here = json.loads(json.dumps({**pretrain.checkpoint_identity(phase), **machine}))
    del here["code"]
    there = {**ledger.identity, **ledger.machine}
    changes = difference(there, here) or ", ".join(_edited_code(phase.name))
    if changes:
        what = "cannot replay the training: its conditions differ"
        hint = "verify the model where it was trained, with the same code, data, kind of machine and machine.yaml"
        raise PipelineError(what, changes, where=PRETRAIN_RESULTS, hint=hint)
    tokens = read_json(TOKENS / "manifest.json")["splits"]["train"]["sha256"]
    index = read_json(EXAMPLES / "manifest.json")[phase.name]["sha256"]["train"]
    samples = read_sample_index(EXAMPLES / phase.name / "train.npy").tobytes()
    same_tokens = hash_file(TOKENS / "train.ids") == tokens
    same_examples = hashlib.sha256(samples).hexdigest() == index
    if not (same_tokens and same_examples):
        hint = "restore the recorded data with `dvc checkout`"
        raise PipelineError("training data was changed after it was written", f"{TOKENS}, {EXAMPLES}", hint=hint)


def _edited_code(phase: str) -> list[str]:
    stage = f"pretrain_{phase}" if phase in ("phase1", "phase2") else f"pretrain@{phase}"
    edited = []
    for path, digest in hashes(parse_entry(read_entry_text(stage)), "deps").items():
        folder, _, name = path.partition("/")
        if folder == "code":
            # For example, code/models/bert is the fingerprint of pipeline_src/model/bert.py.
            module = pretrain.CODE if name == "pretrain" else member_module(*name.split("/"))
            if hashlib.md5(f"{fingerprint(module)}\n".encode()).hexdigest() != digest:
                edited.append(f"code of {name}")
    return edited


def _nearest_start(step: int, ledger: Ledger) -> tuple[Path | None, int]:
    phase = ledger.phase
    # Returns (folder of the nearest intact model before `step`, its step).
    # With disentangled embeddings, a saved model has only the rounded sum of the embeddings, so training cannot resume
    # from it within a phase. The second phase starts from such sums anyway.
    if ledger.identity["objective"].get("embeddings") != "disentangled":
        for saved in sorted(ledger.files, reverse=True):
            folder = PRETRAINED / phase.name / STEPS / str(saved)
            if saved < step:
                if (folder / TRAINING_STATE).exists() and find_changed_file(folder, ledger.files[saved]) is None:
                    return folder, saved
                log.warning("%s differs from the ledger, so the replay does not start there", folder)
    # The phase's initial model is not compared with the ledger here. `make_phase_trainer` checks its checksums.
    return phase.start, phase.first
