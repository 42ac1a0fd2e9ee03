"""Exchange, truncate and modify saved models, and have `verify` find them: ``python -m tests.stress.swaps``.

One short training keeps five models. Each case takes a fresh copy of all of them, leaves one as it is or spoils it in a
random way, with or without putting its new hashes into the ledger, and asks whether it is intact.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pipeline_src.base.files import read_json, write_json
from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.tools.verify import read_ledgers, verify
from pipeline_src.training.checkpoint import OPTIMIZER_TENSORS, WEIGHTS, saved_files
from tests.unit.pretrain.small import EXAMPLES, make_study, train_phase

MODELS = {"phase1/steps/10": 10, "phase1/steps/25": 25, "phase1": 40, "phase2/steps/45": 45, "phase2": 50}
CHANGES = {"phase1": 40, "keep_checkpoint_steps": (10, 25, 45)}
STATE = "training_state"


def swap(folder: Path, chance: random.Random) -> None:
    """Put another model, or its weights or moments alone, in place of this one."""
    root = next(parent for parent in folder.parents if parent.name == "pretrained")
    replacement = root / chance.choice([name for name in MODELS if root / name != folder])
    for name in chance.choice([(WEIGHTS, f"{STATE}/state.json", f"{STATE}/{OPTIMIZER_TENSORS}"), (WEIGHTS,)]):
        shutil.copyfile(replacement / name, folder / name)


def cut(folder: Path, chance: random.Random) -> None:
    """Cut off the end of a file, or leave the file out."""
    path = folder / chance.choice([WEIGHTS, "config.json", "tokenizer.json", f"{STATE}/{OPTIMIZER_TENSORS}"])
    if chance.random() < 0.3:
        path.unlink()
    else:
        os.truncate(path, chance.randrange(path.stat().st_size))


def alter(folder: Path, chance: random.Random) -> None:
    """Change one number of one tensor in its last bit, or one byte of a file."""
    if chance.random() < 0.3:
        path = folder / chance.choice([WEIGHTS, "config.json", "tokenizer.json"])
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        return
    path = folder / chance.choice([WEIGHTS, f"{STATE}/{OPTIMIZER_TENSORS}"])
    tensors = load_file(path)
    bits = tensors[chance.choice(sorted(tensors))].view(-1).view(torch.int32)
    bits[chance.randrange(len(bits))] ^= 1  # the last bit of a float32
    save_file(tensors, path, {"format": "pt"} if path.name == WEIGHTS else None)


WAYS: dict[str, Callable[[Path, random.Random], None] | None] = {
    "intact": None,
    "exchanged": swap,
    "truncated": cut,
    "modified": alter,
}


def forge(folder: Path, name: str) -> None:
    """Put the hashes of a spoilt model into its ledger."""
    path = Path("results/pretrain") / f"{name.partition('/')[0]}.json"
    results = read_json(path)
    results["ledger"]["files"][str(MODELS[name])] = saved_files(folder)
    write_json(path, results)


def run_case(number: int, seed: int) -> str | None:
    """Run one case in a folder with the study; return what `verify` got wrong, or None."""
    chance = random.Random(f"{seed} {number}")
    truth = list(WAYS)[number % len(WAYS)]
    name = chance.choice(list(MODELS))
    folder = Path("models/pretrained") / name
    forged = ""
    if spoil := WAYS[truth]:
        spoil(folder, chance)
        if spoil != cut and chance.random() < 0.5:
            forge(folder, name)
            forged = ", with its ledger"
    is_ok, message = verify(folder, read_ledgers())
    print(f"{number + 1:3} {truth + forged:26} {name:16} {message}", flush=True)
    return None if is_ok == (spoil is None) else f"{name} is {truth}: {message}"


def main(argv: list[str] | None = None) -> int:
    """Run the cases; the exit status is 1 if one was judged wrongly."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    wrong = []
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        make_study(Path(scratch))
        Path("machine.yaml").write_text("pretrain: {threads: 1}\n")
        plan_examples(seed=1, examples=EXAMPLES)
        for phase in ("phase1", "phase2"):
            train_phase(phase, **CHANGES)  # type: ignore[arg-type]
        for number in range(arguments.cases):
            with tempfile.TemporaryDirectory() as copy, contextlib.chdir(copy):
                shutil.copytree(scratch, copy, dirs_exist_ok=True)
                if mistake := run_case(number, arguments.seed):
                    wrong.append(mistake)
    print(f"{arguments.cases - len(wrong)} of {arguments.cases} told correctly")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
